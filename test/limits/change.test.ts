/** Definitions that change at random under a load that takes whatever is free. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type Bucket, charge, emptyBucket, room } from '../../src/limits/decide.ts'
import type { Entry } from './specification.ts'
import { rebuild } from './rebuild.ts'
import { type Limit, limit, type LimitOptions } from '../../src/limits/limit.ts'
import { BucketProof, type LedgerRow, promised } from '../../src/limits/proof.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { greedy, level, minute, second, worst } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const anyFigure = fc
  .tuple(fc.integer({ min: 1, max: 60 }), fc.constantFrom('s', '3s', '10s', 'min'))
  .map(([units, every]) => `${units}/${every}` as const)

const anyOptions: fc.Arbitrary<LimitOptions> = fc.oneof(
  { weight: 3, arbitrary: anyFigure.map((rate) => ({ rate })) },
  { weight: 2, arbitrary: fc.record({ rate: anyFigure, burst: fc.integer({ min: 1, max: 90 }) }) },
  { weight: 1, arbitrary: anyFigure.map((window) => ({ window })) },
  { weight: 1, arbitrary: fc.record({ rate: anyFigure, window: anyFigure }) },
  { weight: 1, arbitrary: fc.tuple(anyFigure, anyFigure).map((rate) => ({ rate })) },
  { weight: 1, arbitrary: anyFigure.map((rate) => ({ rate, quota: '300/hour' as const })) },
)

/** Definitions one after another: how many grants each gives, and how far apart they are at least. */
const anyChanges = fc.array(
  fc.record({
    options: anyOptions,
    grants: fc.integer({ min: 0, max: 150 }),
    idleUs: fc.oneof({ weight: 4, arbitrary: fc.constant(0) }, fc.integer({ min: 0, max: 5 * second })),
    share: fc.constantFrom(1, 1, 0.4),
  }),
  { minLength: 2, maxLength: 6 },
)

interface Played {
  versions: Map<number, Limit>
  rows: LedgerRow[]
}

/** Takes all that is free as soon as it is, under one definition after another. */
function play(changes: readonly { options: LimitOptions; grants: number; idleUs: number; share: number }[]): Played {
  const [versions, rows]: [Played['versions'], LedgerRow[]] = [new Map(), []]
  const granted: Entry[] = []
  let old: readonly Rule[] | undefined
  let bucket: Bucket = emptyBucket([], 1_790_000_000 * second)
  for (const [i, { options, grants, idleUs, share }] of changes.entries()) {
    const made = limit('a', options)
    const { rules } = made
    versions.set(i + 1, made)
    bucket = old === undefined ? emptyBucket(rules, bucket.atUs) : rebuild([old, rules], granted, bucket)
    old = rules
    for (let left = grants; left > 0; left--) {
      const { nextUs } = room(rules, bucket, bucket.atUs + idleUs)
      const free = room(rules, bucket, nextUs)
      const units = Math.max(1, Math.ceil(free.avail * share))
      bucket = charge(rules, free.bucket, units)
      granted.push({ atUs: bucket.atUs, units })
      const n = rows.length + 1
      rows.push({ n, atUs: bucket.atUs, version: i + 1, units, claim: `${n}`, debt: [], granted: null })
    }
  }
  return { versions, rows }
}

it('a change is proved by the ledger, and no window that ends under a definition holds more than it allows', () => {
  let changed = 0
  forAll(cases(400), anyChanges, (changes) => {
    const { versions, rows } = play(changes)
    const proof = new BucketProof(versions, 0)
    for (const row of rows) proof.add(row)
    for (const { excess } of proof.seen.values()) expect(excess).toBeUndefined()
    for (const [version, made] of versions) {
      const from = rows.findIndex((row) => row.version === version)
      if (from < 0) continue
      if (from > 0) changed++
      const grants = rows.filter((row) => row.version <= version).map((row) => [row.atUs, row.units] as const)
      for (const rule of made.rules.filter(({ kind }) => kind !== 'quota')) {
        const { spanUs, most } = promised(rule, made)
        expect(worst(grants, spanUs, 'half-open', from)).toBeLessThanOrEqual(most)
      }
    }
  })
  expect(changed).toBeGreaterThan(cases(400))
})

/** When a bucket that was used for ten minutes as much as `before` allows has a unit free under `after`, after the change. */
function waitUs(before: Rule, after: Rule): number {
  const used = greedy([before], 0, 10 * before.units).map(([atUs, units]): Entry => ({ atUs, units }))
  const atUs = used.at(-1)?.atUs ?? 0
  return room([after], rebuild([[before], [after]], used, emptyBucket([before], atUs)), atUs).nextUs - atUs
}

it('a change waits for what is owed of one window, however long the old definition was used', () => {
  const [high, low] = [level(91, minute, 10), level(46, minute, 5)]
  // 91 of the last minute, less the 46 that drain in it, and one that has to be free again of five.
  expect(waitUs(high, low)).toBeGreaterThan(38 * (minute / 46))
  expect(waitUs(high, low)).toBeLessThan(44 * (minute / 46))
  expect(waitUs(low, high)).toBeLessThan(minute / 46)
  expect(waitUs(high, { ...high, rate: 'the same' })).toBeLessThanOrEqual(Math.ceil(minute / 91))
})
