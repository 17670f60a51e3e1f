/** Generators for random histories of buckets. `history.ts` computes the effects. */
import fc from 'fast-check'
import { pacedRules, type Rule } from '../../src/limits/rule.ts'
import { anyRules, level, minute, second, sliding } from './oracle.ts'

/** One event; `buckets` are numbers of buckets, `limit` of a limit. */
export type Act =
  | { kind: 'pass'; us: number }
  /** Time passes to the moment that a bucket's hint names, or to a microsecond before. */
  | { kind: 'jump'; bucket: number; us: number }
  /** Time passes to the end of a period of a bucket's quota, or some margins after it, or a microsecond from there. */
  | { kind: 'edge'; bucket: number; margins: number; us: number }
  | { kind: 'take'; buckets: number[]; units: number; again: boolean }
  /** `size`: units of each job. */
  | { kind: 'charge'; buckets: number[]; shares: number[]; size: number }
  /** Grants up to so many units of one bucket ahead of time. */
  | { kind: 'ahead'; bucket: number; units: number }
  /** Refunds a share of what is left of the grant that was made `ago` grants ago; negative: settles for more. */
  | { kind: 'refund'; bucket: number; ago: number; share: number }
  /** Ends a part of what runs, which only concurrency counts. */
  | { kind: 'release'; buckets: number[]; units: number }
  /** Without `trialUs` only a hold. */
  | { kind: 'hold'; buckets: number[]; us: number; trialUs: number | null }
  | { kind: 'accept'; buckets: number[] }
  /** `stays`: some rules stay, behind the others; `isNarrower`: a quota among them with half of its margin. */
  | { kind: 'redefine'; limit: number; rules: Rule[]; stays?: boolean; isNarrower?: boolean }
  /** Time passes without acts; then old rows and unused buckets are deleted. The next job creates its bucket anew. */
  | { kind: 'retire'; us: number }

/** The limit of each bucket. */
export const bucketsOf = [0, 0, 1, 1, 2]
/** For how many units each bucket's hint is computed. */
export const needs = [1, 3, 1, 100, 7]
/** How long the ledger is kept: longer than any of the rules looks back. */
export const keepUs = 60 * 86_400 * second
const anyBuckets = fc
  .uniqueArray(fc.nat(bucketsOf.length - 1), { minLength: 1 })
  .map((list) => list.toSorted((a, b) => a - b))
const anyPass = fc.oneof(
  { weight: 6, arbitrary: fc.integer({ min: 0, max: 2 * second }) },
  { weight: 1, arbitrary: fc.integer({ min: -minute, max: -1 }) },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 10 * minute }) },
)

const anyJump = fc.record({
  kind: fc.constant('jump'),
  bucket: fc.nat(bucketsOf.length - 1),
  us: fc.constantFrom(0, -1),
})

const anyEdge = fc.record({
  kind: fc.constant('edge'),
  bucket: fc.nat(bucketsOf.length - 1),
  margins: fc.constantFrom(-1, 0, 1),
  us: fc.constantFrom(-1, 0, 1),
})

/** All acts but a change of a limit. */
const anyOther: fc.Arbitrary<Act> = fc.oneof(
  { weight: 3, arbitrary: anyJump },
  { weight: 3, arbitrary: anyEdge },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('pass'), us: anyPass }) },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('take'),
      buckets: anyBuckets,
      units: fc.constantFrom(1, 1, 1, 0, 3),
      again: fc.nat(4).map((n) => n === 0),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('charge'),
      buckets: anyBuckets,
      shares: fc.array(fc.constantFrom(0, 0.3, 1), { minLength: bucketsOf.length, maxLength: bucketsOf.length }),
      size: fc.constantFrom(1, 1, 4, 0),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('ahead'),
      bucket: fc.nat(bucketsOf.length - 1),
      units: fc.constantFrom(1, 3, 20),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('refund'),
      bucket: fc.nat(bucketsOf.length - 1),
      ago: fc.integer({ min: 1, max: 6 }),
      share: fc.constantFrom(0.3, 1, 0.3, 1, -0.5, -4),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('hold'),
      buckets: anyBuckets,
      us: fc.integer({ min: 1, max: 3 * second }),
      trialUs: fc.option(fc.integer({ min: 1, max: 3 * second }), { freq: 2 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('accept'), buckets: anyBuckets }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('release'),
      buckets: anyBuckets,
      units: fc.integer({ min: 1, max: 20 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('retire'), us: fc.constantFrom(0, minute, keepUs, keepUs + minute) }),
  },
)

/** Acts, of which so many of fifty change a limit to such rules. */
const anyAct = (rules: fc.Arbitrary<Rule[]>, changes: number): fc.Arbitrary<Act> =>
  fc.oneof(
    { weight: 50 - changes, arbitrary: anyOther },
    {
      weight: changes,
      arbitrary: fc.record({
        kind: fc.constant('redefine'),
        limit: fc.nat(2),
        rules,
        stays: fc.boolean(),
        isNarrower: fc.boolean(),
      }),
    },
  )

const anySmall = fc
  .record({
    units: fc.integer({ min: 1, max: 12 }),
    windowUs: fc.constantFrom(second, 2 * second, 10 * second),
    capacity: fc.integer({ min: 1, max: 8 }),
  })
  .map(({ units, windowUs, capacity }) => [level(units, windowUs, capacity)])
const anySmallPaced = fc
  .tuple(fc.integer({ min: 20, max: 32 }), fc.constantFrom(second, 2 * second))
  .map(([units, windowUs]) => pacedRules('a', { rate: `${units}/${windowUs / 1_000}ms` as '1/s', units, windowUs }, 0))
const anySmallRules = fc
  .array(
    fc.oneof(
      { weight: 4, arbitrary: anySmall },
      { weight: 3, arbitrary: anySmallPaced },
      fc.constantFrom([sliding(5, second / 10)], [sliding(9, second / 5)]),
      // One rate, written in three ways.
      fc.constantFrom(
        [level(1, 2 * second, 5)],
        [level(5, 10 * second, 5)],
        [{ ...level(5, 10 * second, 5), classic: true }],
      ),
    ),
    { minLength: 1, maxLength: 2 },
  )
  .map((list) => list.flat())

/** Returns the rule; a quota with half of its margin. */
export function narrower(rule: Rule): Rule {
  if (rule.quota === undefined) return rule
  const marginUs = Math.floor(rule.quota.marginUs / 2)
  return { ...rule, spanUs: rule.spanUs - rule.quota.marginUs + marginUs, quota: { ...rule.quota, marginUs } }
}

/** One bucket that is used as much as it allows, for spans of its rules, while its limit is changed now and then. */
export const anyLoad: fc.Arbitrary<History> = fc
  .record({
    rules: fc.array(anySmallRules, { minLength: 3, maxLength: 6 }),
    grants: fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 6, maxLength: 6 }),
    shares: fc.array(fc.constantFrom(0.3, 1, 1), { minLength: 6, maxLength: 6 }),
    ahead: fc.array(fc.boolean(), { minLength: 6, maxLength: 6 }),
    stays: fc.boolean(),
  })
  .map(({ rules, grants, shares, ahead, stays }) => ({
    limits: [rules[0] ?? [], [level(1, second, 1)], [level(1, second, 1)]],
    full: [false, false, false],
    startUs: 1_800_000_000 * second,
    acts: rules.flatMap((changed, i) => [
      ...(i > 0 ? [{ kind: 'redefine' as const, limit: 0, rules: changed, stays }] : []),
      ...Array.from({ length: grants[i] ?? 0 }, (): Act[] => [
        { kind: 'jump', bucket: 0, us: 0 },
        ahead[i] === true
          ? { kind: 'ahead', bucket: 0, units: 5 }
          : { kind: 'charge', buckets: [0], shares: [shares[i] ?? 1], size: 1 },
      ]).flat(),
    ]),
  }))

/** A random history: three limits, five buckets, the time of its beginning, and its acts. */
export interface History {
  limits: Rule[][]
  /** For each limit whether its vendor itself refunds. */
  full: boolean[]
  startUs: number
  acts: Act[]
  /** A call writes each bucket that it names under its present definition, as in Redis. Default: only takes do, as in SQL. */
  isEager?: boolean
}

/** Any time, or one close to nights in which the clocks of some zone change. */
const anyStart = fc
  .tuple(
    fc.constantFrom(
      '2018-02-17T12:00Z',
      '2018-11-03T12:00Z',
      '2024-03-09T12:00Z',
      '2024-03-30T00:00Z',
      '2024-04-06T00:00Z',
    ),
    fc.integer({ min: 0, max: 86_400 * second }),
  )
  .map(([at, us]) => Date.parse(at) * 1_000 + us)

/** Histories of this number of acts, of which so many of fifty change a limit to such rules. */
export const anyHistory = (length: number, rules = anyRules, changes = 2): fc.Arbitrary<History> =>
  fc.record({
    limits: fc.array(rules, { minLength: 3, maxLength: 3 }),
    full: fc.array(
      fc.nat(3).map((n) => n === 0),
      { minLength: 3, maxLength: 3 },
    ),
    startUs: anyStart,
    acts: fc.array(anyAct(rules, changes), { minLength: length, maxLength: length }),
  })

/** The same history without what only the store does: in Redis a refusal is a hold, and nothing more. */
export const inRedis = (history: History): History => ({
  ...history,
  isEager: true,
  acts: history.acts.map((act): Act => {
    if (act.kind === 'accept') return { kind: 'pass', us: 1 }
    if (act.kind === 'ahead') return { kind: 'charge', buckets: [act.bucket], shares: [1], size: 1 }
    return act.kind === 'hold' ? { ...act, trialUs: null } : act
  }),
})
