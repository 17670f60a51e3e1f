/** Reads answers by the table. It may only tighten: what is malformed counts as absent, and nothing is ever thrown. */
import { present } from '../core/fields.ts'
import { type Answer, type Count, cleanCount, type Reading, type Refusal, shortText } from './answer.ts'
import { checkedReading, type ReadAnswer } from './own.ts'
import {
  type CountRow,
  generalCounts,
  generalRefusals,
  type Profile,
  profiles,
  type RefusalRow,
  type VendorName,
} from './profiles.ts'
import { isInBody, numbersAt, type Source, textsAt } from './source.ts'
import { ietfCounts } from './structured.ts'
import {
  minWaitMs,
  type Moment,
  momentOf,
  readMs,
  readReset,
  readRetryAfter,
  type TimeOptions,
  wholeMs,
} from './time.ts'

/** How a vendor's answers are read: by the profile of this name, or by a function of yours too. */
export type Answers = VendorName | ReadAnswer

/** Reads the answers that one call may get. */
export interface Reader {
  /** True if something may stand in the body that its status and headers do not show. */
  needsBody(answer: Answer): boolean
  /** Returns what an answer states; the same answer always reads the same. */
  read(answer: Answer, options?: TimeOptions): Reading
}

// Spreading would not do: a body may have more numbers than a call may have arguments.
const least = (numbers: readonly number[]) =>
  numbers.reduce<number | undefined>((low, one) => Math.min(low ?? one, one), undefined)
const most = (numbers: readonly number[]) =>
  numbers.reduce<number | undefined>((high, one) => Math.max(high ?? one, one), undefined)
const firstText = (answer: Answer, sources: readonly Source[] = []) =>
  sources
    .flatMap((source) => textsAt(answer, source))
    .map(shortText)
    .find((text) => text !== undefined)

function countOf(row: CountRow, answer: Answer, at: Moment): Count | undefined {
  const numbers = (source: Source | undefined) => (source === undefined ? [] : numbersAt(answer, source))
  const usage = row.usage && row.usage.form.exec(textsAt(answer, row.usage.at)[0] ?? '')?.groups
  // A list has the limit that is closest first, and then all policies.
  const limit = usage === undefined ? numbers(row.limit)[0] : Number(usage['limit'])
  const remaining =
    usage === undefined ? least(numbers(row.remaining)) : Math.max(0, Number(limit) - Number(usage['used']))
  const perSecond = numbers(row.perSecond)[0]
  const refillMs =
    limit === undefined || remaining === undefined || !perSecond ? undefined : ((limit - remaining) / perSecond) * 1_000
  const resets = row.reset === undefined ? [] : textsAt(answer, row.reset).map((text) => readReset(text, at))
  return cleanCount({
    policy: row.policy ?? firstText(answer, row.policyAt === undefined ? [] : [row.policyAt]),
    unit: row.unit,
    limit,
    remaining,
    resetMs: resets[0] ?? wholeMs(refillMs, at),
    windowMs: row.windowMs ?? numbers(row.windowAt)[0],
    isFixed: row.isFixed,
  })
}

/** Returns the wait that the answer itself states. */
function statedWait(row: RefusalRow, answer: Answer, at: Moment): number | undefined {
  const { needed, available, perSecond } = row.refill ?? {}
  const figures = [needed, available, perSecond].map((source) =>
    source === undefined ? undefined : numbersAt(answer, source)[0],
  )
  const [need, have, rate] = figures
  const isRefilled = need !== undefined && have !== undefined && rate !== undefined && rate > 0
  const waits = [
    ...textsAt(answer, 'retry-after').map((text) => readRetryAfter(text, at)),
    ...(row.wait ?? []).flatMap((source) =>
      textsAt(answer, source).map((text) => (source.endsWith('-ms') ? readMs(text, at) : readReset(text, at))),
    ),
    isRefilled ? wholeMs(((need - have) / rate) * 1_000, at) : undefined,
  ]
  return most(waits.filter((wait) => wait !== undefined))
}

const isExhausted = ({ remaining }: Count) => remaining === 0

/** Returns the time until what refused begins anew: the count that is named, else those of which nothing remains. */
function resetOf(counts: readonly Count[], policy: string | undefined): number | undefined {
  const named = counts.filter((count) => policy !== undefined && count.policy === policy)
  const of = named.length > 0 ? named : counts.filter((count) => (count.remaining ?? 0) === 0)
  return most(of.flatMap(({ resetMs }) => resetMs ?? []))
}

function isMatch({ status, where = {} }: Pick<RefusalRow, 'status' | 'where'>, answer: Answer): boolean {
  const holds = ([source, form]: [string, RegExp]) => textsAt(answer, source).some((text) => form.test(text))
  return status.includes(answer.status) && Object.entries(where).every(holds)
}

function refusalOf(row: RefusalRow, answer: Answer, counts: readonly Count[], at: Moment): Refusal | undefined {
  const matches = isMatch(row, answer)
  const statedMs = matches ? statedWait(row, answer, at) : undefined
  if (!matches || (row.needs === 'time' && !statedMs)) return undefined
  const exhausted = counts.filter(isExhausted)
  if (row.needs === 'exhausted' && exhausted.length === 0) return undefined
  const policy = row.policy ?? firstText(answer, row.policyAt) ?? exhausted.find((count) => count.policy)?.policy
  // A stated 0 is a rounding, or a mistake: what else is known counts before it.
  const waitMs = (statedMs || undefined) ?? resetOf(counts, policy) ?? row.otherwiseMs ?? statedMs
  return present({
    waitMs: waitMs === undefined ? undefined : Math.min(Math.max(waitMs, minWaitMs), at.capMs),
    policy,
    reason: policy === undefined ? String(answer.status) : `${answer.status} (${policy})`,
  })
}

/** Returns both refusals as one: the name from the first that has one, and the longer wait. */
function joinRefusals(one: Refusal | undefined, other: Refusal | undefined): Refusal | undefined {
  if (one === undefined || other === undefined) return one ?? other
  const waitMs = most([one, other].flatMap((each) => each.waitMs ?? []))
  const named = one.policy === undefined ? other : one
  return present({ ...named, waitMs })
}

const credentials: Readonly<Record<number, 'rejected' | 'forbidden'>> = { 401: 'rejected', 403: 'forbidden' }

function sourcesOf({ where, wait, refill, policyAt }: RefusalRow): Source[] {
  return [...Object.keys(where ?? {}), ...(wait ?? []), ...Object.values(refill ?? {}), ...(policyAt ?? [])]
}

/**
 * Makes a reader.
 * @param given the profiles and functions of the limits that a call is under; without any profile the headers that many
 * vendors share are read
 */
export function readerOf(given: readonly (Answers | undefined)[]): Reader {
  const named = [...new Set(given)].flatMap((one): Profile[] => (typeof one === 'string' ? [profiles[one]] : []))
  const own = given.filter((one) => typeof one === 'function')
  const countRows = named.length === 0 ? generalCounts : [...new Set(named.flatMap(({ counts }) => counts))]
  const refusalRows = [...named.flatMap(({ refusals }) => refusals), ...generalRefusals]
  const countsOf = (answer: Answer, at: Moment) => [
    ...ietfCounts(answer, at),
    ...countRows.flatMap((row) => countOf(row, answer, at) ?? []),
  ]
  const rejectionRows = named.flatMap(({ rejections = [] }) => rejections)
  const credentialOf = (answer: Answer) =>
    rejectionRows.some((row) => isMatch(row, answer)) ? 'rejected' : credentials[answer.status]
  const bodyCounts = countRows.some((row) => isInBody(row.remaining ?? ''))
  const needsBody = (answer: Answer) => {
    const { status } = answer
    if (own.length > 0) return true
    const isRead = [...refusalRows, ...rejectionRows].some(
      (row) => row.status.includes(status) && sourcesOf(row).some(isInBody),
    )
    if (status >= 300 || !(isRead || bodyCounts)) return isRead
    const counts = countsOf(answer, momentOf(null))
    // A success whose headers show that something remains is none of the few that refuse.
    const isPlain = counts.length > 0 && !counts.some(isExhausted) && answer.headers.get('retry-after') === null
    return !isPlain
  }
  const read = (answer: Answer, options?: TimeOptions) => {
    const at = momentOf(answer.headers.get('date'), options)
    const counts = countsOf(answer, at)
    const refused = refusalRows
      .map((row) => refusalOf(row, answer, counts, at))
      .reduce<Refusal | undefined>(joinRefusals, undefined)
    const credential = refused === undefined ? credentialOf(answer) : undefined
    return own.reduce<Reading>((table, one) => {
      const mine = checkedReading(one, answer, at)
      const both = joinRefusals(mine.refused, table.refused)
      return present({
        refused: both,
        counts: [...table.counts, ...mine.counts],
        credential: mine.credential ?? (both === undefined ? table.credential : undefined),
      })
    }, present({ refused, counts, credential }))
  }
  return { needsBody, read }
}
