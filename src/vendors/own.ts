/** Checks what a function of the user's returns about an answer: it may be JavaScript, and wrong. */
import { present } from '../core/fields.ts'
import { type Answer, cleanCount, type Count, countUnits, type Reading, type Refusal, shortText } from './answer.ts'
import { minWaitMs, type Moment, wholeMs } from './time.ts'

/**
 * Reads an answer, beside the general reading. It can add a refusal, a longer wait, counts; it cannot make a refusal of
 * the vendor's undone. It is called for every answer, with the parsed body if that is JSON of at most 64 KiB. What it
 * throws, and fields that it gets wrong, are ignored.
 */
export type ReadAnswer = (answer: Answer) => Partial<Reading> | undefined

/** Most counts that a function may return. */
const countsMax = 32

type Loose<T> = { readonly [Field in keyof T]?: unknown }

const numberOf = (value: unknown) => (typeof value === 'number' ? value : undefined)

function refusalOf(given: unknown, { status }: Answer, at: Moment): Refusal | undefined {
  if (typeof given !== 'object' || given === null) return undefined
  const { waitMs, policy, reason } = given as Loose<Refusal>
  const wholeWait = wholeMs(numberOf(waitMs), at)
  const name = shortText(policy)
  return present({
    waitMs: wholeWait === undefined ? undefined : Math.max(wholeWait, minWaitMs),
    policy: name,
    reason: shortText(reason) ?? (name === undefined ? String(status) : `${status} (${name})`),
  })
}

function countOf(given: unknown, at: Moment): Count | undefined {
  if (typeof given !== 'object' || given === null) return undefined
  const { policy, unit, limit, remaining, resetMs, windowMs, isFixed } = given as Loose<Count>
  return cleanCount({
    policy: shortText(policy),
    unit: countUnits.find((known) => known === unit) ?? 'other',
    limit: numberOf(limit),
    remaining: numberOf(remaining),
    resetMs: wholeMs(numberOf(resetMs), at),
    windowMs: numberOf(windowMs),
    isFixed: isFixed === true,
  })
}

/** Calls a function of the user's; returns what is valid of its result. */
export function checkedReading(read: ReadAnswer, answer: Answer, at: Moment): Reading {
  try {
    const { refused, counts, credential } = (read(answer) ?? {}) as Loose<Reading>
    const list: unknown[] = Array.isArray(counts) ? counts.slice(0, countsMax) : []
    return present({
      refused: refusalOf(refused, answer, at),
      counts: list.flatMap((count) => countOf(count, at) ?? []),
      credential: (['rejected', 'forbidden'] as const).find((known) => known === credential),
    })
  } catch {
    return { counts: [] }
  }
}
