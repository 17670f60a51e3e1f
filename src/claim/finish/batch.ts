/** A batch of ended attempts as the parameters of `claim/finish/finish_attempts.sql`. */
import { StoreError } from '../../core/errors.ts'
import type { ClaimedJob } from '../claimed-job.ts'
import type { Outcome } from './outcome.ts'

/** One ended attempt. */
export interface Ending {
  job: ClaimedJob
  outcome: Outcome
  /** How long after its claim it began, in microseconds; undefined: not known. */
  beganUs: number | undefined
  report: string | undefined
  resolve: (accepted: boolean) => void
}

/** Returns the parameters, in order. @param ended claims of which no other job is in hand */
export function paramsOf(batch: readonly Ending[], ended: readonly string[]): unknown[] {
  const claims = [...new Set(batch.map(({ job }) => job.claim))]
  const position = new Map(claims.map((claim, i) => [claim, i + 1]))
  const column = <T>(pick: (outcome: Outcome) => T | undefined): (T | null)[] | null => {
    const values = batch.map(({ outcome }) => pick(outcome) ?? null)
    return values.every((value) => value === null) ? null : values
  }
  return [
    claims,
    ended,
    listed(batch, ({ job }) => job.seq),
    listed(batch, ({ job }) => job.id),
    listed(batch, ({ job }) => position.get(job.claim)),
    listed(batch, ({ outcome }) => outcome.kind),
    listed(batch, ({ beganUs }) => beganUs),
    column((outcome) =>
      'reason' in outcome ? outcome.reason : 'delayReason' in outcome ? outcome.delayReason : undefined,
    ),
    column((outcome) => (outcome.kind === 'done' ? (outcome.result ?? undefined) : undefined)),
    column((outcome) => ('error' in outcome ? outcome.error : undefined)),
    column((outcome) => ('delayMs' in outcome ? Math.round(outcome.delayMs * 1_000) : undefined)),
    column((outcome) => (outcome.kind === 'readmit' ? JSON.stringify(outcome.place) : undefined)),
    batch.some(({ report }) => report !== undefined) ? batch.map(({ report }) => report ?? null) : null,
  ]
}

/** How many characters the result of an attempt has. */
export function resultLength({ outcome }: Ending): number {
  return outcome.kind === 'done' ? (outcome.result?.length ?? 0) : 0
}

/** Returns the buckets that an attempt was charged in. */
export function chargedBuckets({ job }: Ending): string[] {
  return job.chargedBuckets ?? job.buckets ?? []
}

/**
 * Returns an array literal of values that need no quotes: built at once, because the client would inspect each element.
 */
function listed(batch: readonly Ending[], pick: (ending: Ending) => string | number | undefined): string {
  return `{${batch.map((ending) => pick(ending) ?? 'null').join(',')}}`
}

/**
 * Returns true when the store rejected the content of an outcome (a value it cannot take, too much of it), not when it
 * accepts no writes: read-only after a failover, a pooler that lost a statement, a function or a privilege that is
 * missing for a while.
 */
export function isRefused(error: unknown): boolean {
  const { code, table } = error as { code?: unknown; table?: unknown }
  if (error instanceof StoreError || typeof code !== 'string') return false
  return /^(22|54)...$/.test(code) || (/^23...$/.test(code) && /^(done|failed)/.test(String(table)))
}

/** Replaces a rejected outcome by a failure; without a cause, by one that contains nothing of the attempt. */
export function replaceOutcomes(batch: readonly Ending[], params: unknown[], cause: unknown): void {
  const message = cause instanceof Error ? `: ${cause.message}`.slice(0, 500).toWellFormed() : ''
  params[5] = listed(batch, () => 'failed')
  params[6] = cause === undefined ? null : params[6]
  params[7] = batch.map(() => 'refused')
  params[8] = null
  params[9] = batch.map(() => JSON.stringify({ message: `the store refused the result${message}` }))
  params[10] = null
  params[11] = null
  params[12] = cause === undefined ? null : params[12]
}
