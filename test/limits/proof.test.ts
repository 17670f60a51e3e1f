import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { BucketProof, type Defined, type LedgerRow, promised } from '../../src/limits/proof.ts'
import { minute, second } from './oracle.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const defined = (options: LimitOptions): Defined => limit('a', options)

/** Rows in order, from grants and their refunds. */
type Step = { passUs: number; units: number; version: number; backOf?: number }
function rowsOf(steps: readonly Step[]): LedgerRow[] {
  const rows: LedgerRow[] = []
  let atUs = 1_790_000_000_000_000
  for (const { passUs, units, version, backOf } of steps) {
    atUs += passUs
    const grants = backOf === undefined ? [] : rows.filter((row) => row.units > 0)
    const granted = grants[(backOf ?? 0) % Math.max(1, grants.length)]
    rows.push({
      n: rows.length + 1,
      atUs,
      version,
      units: granted === undefined ? units : -units,
      claim: String(granted === undefined ? rows.length : granted.claim),
      debt: [],
      granted: granted?.n ?? null,
    })
  }
  return rows
}

function judge(versions: Map<number, Defined>, rows: readonly LedgerRow[], fromUs = 0): BucketProof {
  const proof = new BucketProof(versions, fromUs)
  for (const row of rows) proof.add(row)
  return proof
}

/** By a search of all pairs: the most that any half-open window of this length, which a grant ends, held at that time. */
function naive(rows: readonly LedgerRow[], spanUs: number): number[] {
  return rows.flatMap((end, i) => {
    if (end.units < 0) return []
    const kept = new Map<string, number>()
    for (const row of rows.slice(0, i + 1)) {
      const claim = String(row.claim)
      if (row.units > 0) kept.set(claim, row.atUs > end.atUs - spanUs ? row.units : 0)
      else kept.set(claim, Math.max(0, (kept.get(claim) ?? 0) + row.units))
    }
    return [[...kept.values()].reduce((sum, one) => sum + one, 0)]
  })
}

const anyStep = fc.record({
  passUs: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 3 * second }), fc.integer({ min: 0, max: minute })),
  units: fc.integer({ min: 1, max: 9 }),
})
const anySteps = fc.array(
  fc.oneof(
    { weight: 5, arbitrary: anyStep },
    {
      weight: 1,
      arbitrary: fc.tuple(anyStep, fc.nat(60)).map(([step, backOf]) => ({ ...step, backOf })),
    },
  ),
  { maxLength: 60 },
)
const oneVersion = (steps: readonly Omit<Step, 'version'>[]) => rowsOf(steps.map((step) => ({ ...step, version: 1 })))

describe('the proof for rows of a bucket', () => {
  it('counts each unit that was granted ahead of time at its own instant', () => {
    const versions = new Map([[1, defined({ rate: '10/s', burst: 2 })]])
    const row = (n: number, ms: number, earlierMs: number[]): LedgerRow => ({
      n,
      atUs: second + ms * 1_000,
      version: 1,
      units: earlierMs.length,
      earlierUs: earlierMs.map((earlier) => earlier * 1_000),
      claim: String(n),
      debt: [],
      granted: null,
    })
    const seen = (rows: LedgerRow[]) => [...judge(versions, rows).seen.values()].map(({ exceeded }) => exceeded)
    const spaced = [row(1, 300, [300, 200, 100, 0]), row(2, 600, [200, 100, 0])]
    expect(seen(spaced)).toEqual([0])
    expect(judge(versions, spaced)).toMatchObject({ grants: 2, gaps: [] })
    // All at the last instant, or one of them too early, is more than a burst of two allows.
    expect(seen([row(1, 300, [0, 0, 0, 0])])).not.toEqual([0])
    expect(seen([row(1, 300, [300, 200, 100, 0]), row(2, 600, [299, 299, 0])])).not.toEqual([0])
  })

  it('agrees with a search of all pairs, with the refunds up to each grant', () => {
    forAll(
      cases(500),
      anySteps,
      fc.constantFrom<LimitOptions>({ window: '9/10s' }, { rate: '20/10s' }, { rate: '9/s', burst: 4 }),
      (steps, options) => {
        const one = defined(options)
        const rows = oneVersion(steps)
        const { spanUs, most } = promised(one.rules[0] as never, one)
        const sums = naive(rows, spanUs)
        const seen = judge(new Map([[1, one]]), rows).seen.get('1:0')
        expect(seen?.worst ?? 0).toBe(Math.max(0, ...sums))
        // The proof also covers other lengths than the rule's.
        const over = sums.filter((units) => units > most).length
        if (options.window === undefined) expect(seen?.exceeded ?? 0).toBeGreaterThanOrEqual(over)
        else expect(seen?.exceeded ?? 0).toBe(over)
      },
    )
  })

  it.each<{ options: LimitOptions; guarantee: string; rate: string; most: number; windowUs: number }>([
    { options: { rate: '100/min' }, guarantee: 'safe rate', rate: '100/min', most: 100, windowUs: 60.2 * second },
    {
      options: { rate: '100/min', burst: 20 },
      guarantee: 'bucket',
      rate: 'bucket(20, 100/min)',
      most: 120,
      windowUs: 60.2 * second,
    },
    { options: { window: '100/min' }, guarantee: 'exact window', rate: '100/min', most: 100, windowUs: 60.2 * second },
    { options: { quota: '9/day' }, guarantee: 'quota', rate: '9/day (UTC)', most: 9, windowUs: 79_200 * second },
    { options: { concurrency: 5 }, guarantee: 'places', rate: '5', most: 5, windowUs: 0 },
  ])('of $options allows $most in the window and its margin, as $guarantee', ({ options, windowUs, ...promise }) => {
    const one = defined(options)
    expect(promised(one.rules[0] as never, one)).toEqual({ ...promise, spanUs: windowUs })
  })

  it.each<LimitOptions>([{ window: '9/10s' }, { rate: '20/10s' }])(
    'of %j counts a grant a microsecond less than a span ago, and none exactly a span ago',
    (options) => {
      const one = defined(options)
      const { spanUs, most } = promised(one.rules[0] as never, one)
      const after = (passUs: number) => oneVersion([0, passUs].map((us) => ({ passUs: us, units: most })))
      const seen = (passUs: number) => judge(new Map([[1, one]]), after(passUs)).seen.get('1:0')
      expect(seen(spanUs)).toMatchObject({ worst: most })
      expect(seen(spanUs - 1)).toMatchObject({ worst: 2 * most, excess: { units: 2 * most, most } })
      if (options.window !== undefined)
        expect([seen(spanUs), seen(spanUs - 1)]).toMatchObject([{ exceeded: 0 }, { exceeded: 1 }])
    },
  )

  it('is the same from some row on if only the rows that it looks back at are read before', () => {
    forAll(anySteps, fc.nat(60), (steps, k) => {
      const versions = new Map([[1, defined({ window: '9/10s' })]])
      const rows = oneVersion(steps)
      const fromUs = rows[k % Math.max(1, rows.length)]?.atUs ?? 0
      const near = rows.filter((row) => row.atUs > fromUs - 40 * second)
      const whole = judge(versions, rows, fromUs).seen.get('1:0')
      expect(judge(versions, near, fromUs).seen.get('1:0')).toEqual(whole)
    })
  })

  it('keeps in memory only the rows that a span reaches', () => {
    const rows = oneVersion(Array.from({ length: 5_000 }, () => ({ passUs: second, units: 1 })))
    const seen = judge(new Map([[1, defined({ window: '10/10s' })]]), rows).seen.get('1:0')
    expect(seen).toEqual({ worst: 11, exceeded: 4_990, excess: expect.objectContaining({ units: 11, most: 10 }) })
  })
})

describe('a change of the definition', () => {
  const versions = new Map([
    [1, defined({ concurrency: 1 })],
    [2, defined({ window: '10/10s' })],
    [3, defined({ window: '4/10s' })],
    [4, defined({ window: '10/10s' })],
  ])
  const steps = (first: number, ten: number, then: number, four: number): Step[] => [
    ...Array.from({ length: ten }, () => ({ passUs: 0, units: 1, version: first })),
    ...Array.from({ length: four }, (_, i) => ({ passUs: i === 0 ? second : 0, units: 1, version: then })),
  ]
  const over = (rows: Step[]) => [...judge(versions, rowsOf(rows)).seen.values()].map((one) => one.exceeded)

  it('holds windows that touch both definitions to the looser one, and windows of the new one to the new one', () => {
    expect(over(steps(2, 6, 3, 4))).toEqual([0, 0])
    expect(over(steps(2, 8, 3, 4))).toEqual([0, 2])
    expect(over(steps(3, 4, 3, 4))).toEqual([4])
    expect(over(steps(3, 4, 4, 6))).toEqual([0, 0])
    expect(over(steps(3, 4, 4, 7))).toEqual([0, 1])
  })

  it('from a definition without bound proves nothing about windows that touch it', () => {
    expect(over(steps(1, 99, 2, 10))).toEqual([0])
    expect(over(steps(1, 99, 3, 10))).toEqual([0])
  })
})

describe('a quota', () => {
  const one = defined({ quota: '9/min', transit: 900 })
  const { marginUs } = one.rules[0]?.quota ?? { marginUs: 0 }

  it('is judged as by a count of each minute, with the grants within the margin of it', () => {
    expect(marginUs).toBe(second)
    forAll(cases(300), anySteps, (steps) => {
      const rows = oneVersion(steps)
      const minutes = (row: LedgerRow) => [-marginUs, 0, marginUs].map((us) => Math.floor((row.atUs + us) / minute))
      const sums = rows.flatMap((end, i) => {
        if (end.units < 0) return []
        return minutes(end).map((at) => {
          const kept = new Map<string, number>()
          for (const row of rows.slice(0, i + 1)) {
            const claim = String(row.claim)
            if (row.units > 0) kept.set(claim, minutes(row).includes(at) ? row.units : 0)
            else kept.set(claim, Math.max(0, (kept.get(claim) ?? 0) + row.units))
          }
          return [...kept.values()].reduce((sum, units) => sum + units, 0)
        })
      })
      const seen = judge(new Map([[1, one]]), rows).seen.get('1:0')
      expect(seen?.worst ?? 0).toBe(Math.max(0, ...sums))
      expect((seen?.exceeded ?? 0) > 0).toBe(Math.max(0, ...sums) > 9)
    })
  })

  it('that was exceeded is reported with its period, and days of 25 hours are known', () => {
    const day = defined({ quota: '10/day', zone: 'America/Los_Angeles', transit: 0 })
    const hour = 3_600 * second
    const startUs = Date.UTC(2026, 10, 1, 7) * 1_000
    const rows = (atUs: readonly number[]) =>
      atUs.map((us, i) => ({ n: i + 1, atUs: us, version: 1, units: 5, claim: `${i}`, debt: [], granted: null }))
    const judged = (...hours: number[]) =>
      judge(new Map([[1, day]]), rows(hours.map((one) => startUs + one * hour))).seen.get('1:0')
    expect(judged(0.5, 24.5, 25.5, 26)).toMatchObject({ worst: 10, exceeded: 0 })
    expect(judged(0.5, 12, 24.5)).toMatchObject({
      exceeded: 1,
      excess: { fromUs: startUs, spanUs: 25 * hour, units: 15, most: 10 },
    })
  })
})

describe('usage beyond a grant, and a refund by the vendor itself', () => {
  const row = (n: number, units: number, more: Partial<LedgerRow> = {}): LedgerRow => {
    return { n, atUs: n * second, version: 1, units, claim: `${n}`, debt: [], granted: null, ...more }
  }
  const exceeded = (one: Defined, rows: LedgerRow[]) => judge(new Map([[1, one]]), rows).seen.get('1:0')?.exceeded

  it('are counted, so that no later grant may ignore the usage', () => {
    const bucket = defined({ rate: '60/min', burst: 10 })
    expect(exceeded(bucket, [row(1, 10), row(2, 90, { claim: null })])).toBe(0)
    expect(exceeded(bucket, [row(1, 10), row(2, 90, { claim: null }), row(3, 1)])).toBeGreaterThan(0)
    expect(exceeded(bucket, [row(1, 10), row(2, 90, { claim: null }), row(93, 1)])).toBe(0)
    const window = defined({ window: '10/min' })
    expect(exceeded(window, [row(1, 8), row(2, 90, { claim: null }), row(3, 2)])).toBe(0)
    expect(exceeded(window, [row(1, 8), row(2, 90, { claim: null }), row(3, 3)])).toBe(1)
    const quota = defined({ quota: '10/h', transit: 0 })
    expect(exceeded(quota, [row(1, 8), row(2, 90, { claim: null }), row(3, 2)])).toBe(0)
    expect(exceeded(quota, [row(1, 8), row(2, 90, { claim: null }), row(3, 3)])).toBe(1)
  })

  it("give the room back at the time of the vendor's refund", () => {
    const bucket = defined({ rate: '60/min', burst: 10 })
    const rows = [row(1, 10), row(9, -10, { claim: '1', granted: 1 }), row(10, 10), row(11, 9)]
    expect(exceeded({ ...bucket, refund: 'full' }, rows)).toBe(0)
    expect(exceeded({ ...bucket, refund: 'full' }, rows.slice(0, 1).concat(rows.slice(2)))).toBeGreaterThan(0)
  })
})

describe('the number of places', () => {
  const versions = new Map([
    [1, defined({ concurrency: 2 })],
    [2, defined({ concurrency: 1 })],
  ])
  const row = (n: number, running: number, more: Partial<LedgerRow> = {}): LedgerRow => {
    return { n, atUs: n, version: 1, units: 1, claim: 'a', debt: [running], granted: null, ...more }
  }
  const release = { units: 0, claim: null }

  it('is exceeded by a place that is not there, and not by a release, a further request or a new definition', () => {
    const seen = (rows: LedgerRow[]) => [...judge(versions, rows).seen.values()].map((one) => [one.worst, one.exceeded])
    expect(seen([row(1, 1), row(2, 2), row(3, 1, release), row(4, 2)])).toEqual([[2, 0]])
    expect(seen([row(1, 1), row(2, 2), row(3, 3), row(4, 2, release)])).toEqual([[3, 1]])
    // Two ran when the definition changed, and go on to; then one makes a further request.
    const changed = { version: 2, ...release }
    expect(seen([row(1, 2), row(2, 2, changed), row(3, 2, { version: 2 })])).toEqual([[2, 0]])
    expect(seen([row(1, 2), row(2, 2, changed), row(3, 3, { version: 2 })])).toEqual([
      [2, 0],
      [3, 1],
    ])
  })
})

describe('the rows of a ledger', () => {
  const versions = new Map([[1, defined({ window: '9/10s' })]])
  const rows = oneVersion(Array.from({ length: 6 }, () => ({ passUs: minute, units: 1 })))

  it('are complete, or the proof names the place where some are missing', () => {
    expect(judge(versions, rows).gaps).toEqual([])
    // The first rows may have been deleted.
    expect(judge(versions, rows.slice(2)).gaps).toEqual([])
    expect(judge(versions, rows.toSpliced(3, 2)).gaps).toEqual([{ after: rows[2], before: rows[5] }])
    // Rows from before the period do not matter.
    expect(judge(versions, rows.toSpliced(3, 1), rows[3]?.atUs).gaps).toEqual([])
  })
})
