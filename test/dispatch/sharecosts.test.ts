import { fn } from '../servers/fn.ts'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { shareCosts, type ShareLane, type Shares } from '../../src/dispatch/share.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'

interface Case {
  want: number
  lanes: ShareLane[]
  vstart: number[]
  avail: number[]
  horizon: number | undefined
  first: number[]
}

const anyCost = fc.oneof(fc.integer({ min: -1, max: 3 }), fc.integer({ min: 0, max: 30 }))

/** As a claim has it: lanes sorted by the virtual start of their fair key, all starts within the horizon. */
const anyCase: fc.Arbitrary<Case> = fc
  .record({
    want: fc.integer({ min: 1, max: 40 }),
    avail: fc.array(fc.integer({ min: 0, max: 60 }), { minLength: 1, maxLength: 5 }),
    vstart: fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 50_000_000 })), { minLength: 1, maxLength: 8 }),
    isCut: fc.boolean(),
  })
  .chain(({ want, avail, vstart, isCut }) => {
    const lane = fc
      .record({
        n: fc.integer({ min: 1, max: 60 }),
        step: fc.constantFrom(1_000_000, 1_000_000, 500_000, 100_000),
        fair: fc.nat(vstart.length - 1),
        buckets: fc.uniqueArray(fc.nat(avail.length - 1), { maxLength: 3 }),
        isCosted: fc.boolean(),
        isFirst: fc.nat(4).map((n) => n === 0),
      })
      .chain(({ isCosted, ...one }) => {
        if (!isCosted) return fc.constant(one)
        const job = fc.record({
          costs: fc.array(anyCost, { minLength: one.buckets.length, maxLength: one.buckets.length }),
          turn: fc.integer({ min: 0, max: 30 }),
        })
        return fc.array(job, { minLength: 1, maxLength: 12 }).map((jobs) => ({ ...one, n: jobs.length, jobs }))
      })
    return fc.array(lane, { minLength: 1, maxLength: 16 }).map((list): Case => {
      const used = [...new Set(list.map((one) => one.fair))]
      const starts = used.map((fair) => vstart[fair] ?? 0)
      const lanes = list
        .map((one) => ({ ...one, fair: used.indexOf(one.fair) }))
        .toSorted((a, b) => (starts[a.fair] ?? 0) - (starts[b.fair] ?? 0))
      const horizon = isCut ? starts[lanes.at(-1)?.fair ?? 0] : undefined
      const first = lanes.flatMap((one, i) => (one.isFirst && one.buckets.length > 0 ? [i] : []))
      return { want, avail, vstart: starts, lanes, horizon, first }
    })
  })

const divide = (one: Case): Shares => shareCosts(one.want, one.lanes, one.vstart, one.avail, one.horizon, one.first)
/** What a lane's jobs took of a bucket. */
const taken = (lane: ShareLane, take: number, b: number): number => {
  const u = lane.buckets.indexOf(b)
  if (u < 0) return 0
  if (lane.jobs === undefined) return take
  return lane.jobs.slice(0, take).reduce((sum, job) => sum + Math.max(0, job.costs[u] ?? 0), 0)
}
const left = (one: Case, shares: Shares): number[] =>
  one.avail.map((units, b) => units - one.lanes.reduce((sum, lane, i) => sum + taken(lane, shares.take[i] ?? 0, b), 0))

describe('any division of costs', () => {
  const holds = (check: (one: Case, shares: Shares) => void) =>
    fc.assert(
      fc.property(anyCase, (one) => check(one, divide(one))),
      { numRuns: 2_000 },
    )

  it('is within what is wanted, what each bucket has, and what each lane has', () => {
    holds((one, shares) => {
      expect(shares.take.reduce((sum, k) => sum + k, 0)).toBeLessThanOrEqual(one.want)
      expect(Math.min(...left(one, shares))).toBeGreaterThanOrEqual(0)
      shares.take.forEach((k, i) => expect(k >= 0 && k <= (one.lanes[i]?.n ?? 0)).toBe(true))
    })
  })

  it('moves each fair key on by what its jobs say', () => {
    holds((one, shares) => {
      const moved = one.vstart.map((start, fair) =>
        one.lanes.reduce((sum, lane, i) => {
          if (lane.fair !== fair) return sum
          const turns = Array.from({ length: shares.take[i] ?? 0 }, (_, j) => lane.jobs?.[j]?.turn ?? 1)
          return sum + turns.reduce((all, turn) => all + turn * lane.step, 0)
        }, start),
      )
      expect(shares.vstart).toEqual(moved)
    })
  })

  it('leaves nothing undone that nobody waits for', () => {
    holds((one, shares) => {
      if (shares.take.reduce((sum, k) => sum + k, 0) === one.want) return
      one.lanes.forEach((lane, i) => {
        const isDone = shares.take[i] === lane.n || shares.blocked[i] !== undefined
        expect(isDone || (shares.vstart[lane.fair] ?? 0) > (one.horizon ?? Infinity)).toBe(true)
      })
    })
  })
})

describe('an expensive job', () => {
  const lane = (fair: number, costs: number[], buckets = [0]) => ({
    n: costs.length,
    step: 1_000_000,
    fair,
    buckets,
    jobs: costs.map((cost) => ({ costs: buckets.map(() => cost), turn: Math.max(1, cost) })),
  })
  const cheap = (fair: number, buckets = [0]) => ({ n: 100, step: 1_000_000, fair, buckets })

  it('is not overtaken by the cheap ones behind it: it keeps what the bucket has', () => {
    expect(shareCosts(50, [lane(0, [10]), cheap(1)], [0, 0], [9], undefined, [])).toMatchObject({
      take: [0, 0],
      blocked: [0, 0],
    })
  })

  it('keeps nothing while another bucket is in its way too', () => {
    const { take } = shareCosts(50, [lane(0, [10], [0, 1]), cheap(1)], [0, 0], [9, 3], undefined, [])
    expect(take).toEqual([0, 9])
  })

  it('takes its turn for what it costs: the cheap ones then have theirs', () => {
    const { take } = shareCosts(50, [lane(0, [10, 10, 10]), cheap(1)], [0, 0], [40], undefined, [])
    expect(take).toEqual([2, 20])
  })

  it('for which the bucket was kept goes first', () => {
    const lanes = [cheap(0), lane(1, [10, 10])]
    expect(shareCosts(50, lanes, [0, 5_000_000], [10], undefined, [1]).take).toEqual([0, 1])
    expect(shareCosts(50, lanes, [0, 5_000_000], [10], undefined, []).take).toEqual([6, 0])
  })

  it('the longest prefix of a lane goes that fits in all buckets', () => {
    const { take, blocked } = shareCosts(50, [lane(0, [3, 4, 5, 1], [0, 1])], [0], [100, 11], undefined, [])
    expect({ take, blocked }).toEqual({ take: [2], blocked: [1] })
  })
})

describe('share_costs in SQL', () => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: (await freshDatabase()).url })
  })
  afterAll(() => sluice.close())

  it('divides as share.ts does', async () => {
    const inSql = async (one: Case): Promise<unknown> => {
      const from = one.lanes.reduce<number[]>((list, lane) => [...list, (list.at(-1) ?? 1) + lane.buckets.length], [1])
      const at: number[] = []
      const costs: number[] = []
      for (const { jobs } of one.lanes) {
        at.push(jobs === undefined ? 0 : costs.length + 1)
        for (const job of jobs ?? []) costs.push(...job.costs, job.turn)
      }
      const [row] = await sluice.db.query<{ shares: unknown }>(
        `select json_build_object('take', take, 'vstart', vstart, 'blocked', blocked) as shares
         from ${fn}.share_costs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
        [
          one.want,
          one.lanes.map((lane) => lane.n),
          one.vstart,
          one.lanes.map((lane) => lane.step),
          one.lanes.map((lane) => lane.fair + 1),
          from,
          one.lanes.flatMap((lane) => lane.buckets.map((b) => b + 1)),
          one.avail,
          one.horizon ?? null,
          at,
          costs,
          one.first.map((i) => i + 1),
        ],
      )
      return row?.shares
    }
    await fc.assert(
      fc.asyncProperty(anyCase, async (one) => {
        const shares = divide(one)
        expect(await inSql(one)).toEqual({
          ...shares,
          blocked: shares.blocked.map((b) => (b === undefined ? 0 : b + 1)),
        })
      }),
      { numRuns: 600 },
    )
  })
})
