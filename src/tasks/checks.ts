/** Checks of what a task, a send or a rule may give. */
import { inspect } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { type Duration, durationMs } from '../core/rate.ts'

/** Checks a priority and returns it. @throws UsageError SLUICE_BAD_OPTION */
export function checkPriority(priority: number): number {
  if (Number.isInteger(priority) && Math.abs(priority) <= 1000) return priority
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    `priority is ${inspect(priority)}; it must be a whole number from -1000 to 1000`,
  )
}

/** Checks tags and returns them. @throws UsageError SLUICE_BAD_OPTION */
export function checkTags(list: readonly string[] | undefined): readonly string[] {
  const isTag = (tag: unknown) => typeof tag === 'string' && /^[^\u0000-\u001f]{1,100}$/u.test(tag)
  if (list === undefined || (Array.isArray(list) && list.length <= 20 && list.every(isTag))) return list ?? []
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    'tags: a list of up to 20 texts, each 1 to 100 characters without control characters',
  )
}

/** Returns a longest wait in ms. @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
export function maxWaitMs(span: Duration): number {
  const ms = durationMs(span)
  if (ms >= 1 && ms <= 366 * 86_400_000) return ms
  throw new UsageError('SLUICE_BAD_OPTION', '`maxWait` must be between 1 ms and 366 days')
}

/** @throws UsageError SLUICE_BAD_TASK unless the name can be stored and typed on a command line */
export function checkName(what: 'task' | 'queue' | 'rule', name: string): void {
  if (typeof name !== 'string' || !/^[A-Za-z0-9._:-]{1,100}$/.test(name)) {
    throw new UsageError(
      'SLUICE_BAD_TASK',
      `"${name}" cannot name a ${what}: use 1 to 100 of a-z, A-Z, 0-9, ".", "_", "-", ":"`,
    )
  }
}
