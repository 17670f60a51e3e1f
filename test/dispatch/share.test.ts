import { fn } from '../servers/fn.ts'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { share, type ShareLane, type Shares } from '../../src/dispatch/share.ts'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { Sluice } from '../../src/sluice.ts'
import { level, minute, second } from '../limits/oracle.ts'
import { freshDatabase } from '../servers/database.ts'

interface Case {
  want: number
  lanes: ShareLane[]
  vstart: number[]
  avail: number[]
  horizon: number | undefined
}

/** As a claim has it: lanes sorted by the virtual start of their fair key, all starts within the horizon. */
const anyCase: fc.Arbitrary<Case> = fc
  .record({
    want: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 500 })),
    avail: fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 20 }), fc.integer({ min: 0, max: 1_000 })), {
      minLength: 1,
      maxLength: 6,
    }),
    vstart: fc.array(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 50_000_000 })), {
      minLength: 1,
      maxLength: 20,
    }),
    isCut: fc.boolean(),
  })
  .chain(({ want, avail, vstart, isCut }) => {
    const lane = fc.record({
      n: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 10_000 })),
      step: fc.constantFrom(1_000_000, 1_000_000, 500_000, 333_333, 100_000, 1),
      fair: fc.nat(vstart.length - 1),
      buckets: fc.uniqueArray(fc.nat(avail.length - 1), { maxLength: 3 }),
    })
    return fc.array(lane, { minLength: 1, maxLength: 50 }).map((list): Case => {
      const used = [...new Set(list.map((one) => one.fair))]
      const starts = used.map((fair) => vstart[fair] ?? 0)
      const lanes = list
        .map((one) => ({ ...one, fair: used.indexOf(one.fair) }))
        .toSorted((a, b) => (starts[a.fair] ?? 0) - (starts[b.fair] ?? 0))
      return { want, avail, vstart: starts, lanes, horizon: isCut ? starts[lanes.at(-1)?.fair ?? 0] : undefined }
    })
  })

const divide = (one: Case): Shares => share(one.want, one.lanes, one.vstart, one.avail, one.horizon)
const total = (shares: Shares): number => shares.take.reduce((sum, k) => sum + k, 0)
const left = (one: Case, shares: Shares): number[] =>
  one.avail.map(
    (units, b) =>
      units - one.lanes.reduce((sum, lane, i) => sum + (lane.buckets.includes(b) ? (shares.take[i] ?? 0) : 0), 0),
  )

describe('any division', () => {
  const holds = (check: (one: Case, shares: Shares) => void) =>
    fc.assert(
      fc.property(anyCase, (one) => check(one, divide(one))),
      { numRuns: 1_000 },
    )

  it('is within what is wanted, what each bucket has, and what each lane has', () => {
    holds((one, shares) => {
      expect(total(shares)).toBeLessThanOrEqual(one.want)
      expect(Math.min(...left(one, shares))).toBeGreaterThanOrEqual(0)
      shares.take.forEach((k, i) => expect(k >= 0 && k <= (one.lanes[i]?.n ?? 0)).toBe(true))
    })
  })

  it('denies nobody while there is room, but for those past the horizon', () => {
    holds((one, shares) => {
      if (total(shares) === one.want) return
      const rest = left(one, shares)
      one.lanes.forEach((lane, i) => {
        const isServed = shares.take[i] === lane.n || lane.buckets.some((b) => rest[b] === 0)
        expect(isServed || (shares.vstart[lane.fair] ?? 0) > (one.horizon ?? Infinity)).toBe(true)
      })
    })
  })

  it('names the bucket that denied a lane: it is empty', () => {
    holds((one, shares) => {
      const rest = left(one, shares)
      const isAll = total(shares) < one.want && one.horizon === undefined
      const wrong = shares.blocked.filter((b, i) => {
        if (b !== undefined) return !one.lanes[i]?.buckets.includes(b) || rest[b] !== 0
        return isAll && shares.take[i] !== one.lanes[i]?.n
      })
      expect(wrong).toEqual([])
    })
  })

  it('moves each fair key on by what it got, over its weight', () => {
    holds((one, shares) => {
      const moved = one.vstart.map((start, fair) => {
        return (
          start +
          one.lanes.reduce((sum, lane, i) => sum + (lane.fair === fair ? (shares.take[i] ?? 0) * lane.step : 0), 0)
        )
      })
      expect(shares.vstart).toEqual(moved)
    })
  })

  it('takes something whenever anything can be taken', () => {
    holds((one, shares) => {
      const can = one.lanes.some((lane) => lane.buckets.every((b) => (one.avail[b] ?? 0) > 0))
      expect(total(shares) > 0).toBe(can)
    })
  })
})

describe('fairness', () => {
  it('equals differ by one unit at most, also where a small room is shared by a claim that may take much', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 500 }),
        fc.integer({ min: 0, max: 700 }),
        fc.integer({ min: 1, max: 50 }),
        (want, avail, count) => {
          const lanes = Array.from({ length: count }, (_, fair) => ({ n: 10_000, step: 1_000_000, fair, buckets: [0] }))
          const { take } = share(
            want,
            lanes,
            lanes.map(() => 0),
            [avail],
          )
          expect(Math.max(...take) - Math.min(...take)).toBeLessThanOrEqual(1)
        },
      ),
    )
  })

  it('is between fair keys, not lanes: many lanes get no more than one', () => {
    const lane = (fair: number) => ({ n: 1_000, step: 1_000_000, fair, buckets: [0] })
    const { take } = share(100, [lane(0), lane(0), lane(0), lane(1)], [0, 0], [1_000])
    expect(take).toEqual([50, 0, 0, 50])
  })

  it('goes by priority within a fair key, further only when the first is blocked or done', () => {
    const lane = (n: number, buckets: number[]) => ({ n, step: 1_000_000, fair: 0, buckets })
    expect(share(10, [lane(100, [0]), lane(100, [0])], [0], [50]).take).toEqual([10, 0])
    expect(share(10, [lane(3, [0]), lane(100, [0])], [0], [50]).take).toEqual([3, 7])
    expect(share(10, [lane(100, [0, 1]), lane(100, [0])], [0], [50, 2])).toMatchObject({
      take: [2, 8],
      blocked: [1, undefined],
    })
  })

  it('lets who is behind catch up first', () => {
    const lane = (fair: number) => ({ n: 1_000, step: 1_000_000, fair, buckets: [] })
    expect(share(30, [lane(0), lane(1)], [0, 20_000_000], []).take[0]).toBeGreaterThanOrEqual(20)
  })
})

interface Tenant {
  n: number
  weight?: number
  own?: Rule
}

/** Claims, again and again for some minutes, as a greedy worker does; returns what each tenant got in each minute. */
function minutes(parent: readonly Rule[], tenants: readonly Tenant[], count: number, want: number): number[][] {
  const rules = [parent, ...tenants.flatMap((one) => (one.own ? [[one.own]] : []))]
  const buckets = rules.map((own) => emptyBucket(own, 0))
  const backlog = tenants.map((one) => one.n)
  const vstart = tenants.map(() => 0)
  const got = Array.from({ length: count }, () => tenants.map(() => 0))
  for (let nowUs = 0; nowUs < count * minute; nowUs += second / 10) {
    const rooms = rules.map((own, b) => room(own, buckets[b] ?? emptyBucket(own, 0), nowUs))
    const order = tenants
      .map((_, i) => i)
      .filter((i) => (backlog[i] ?? 0) > 0)
      .toSorted((a, b) => (vstart[a] ?? 0) - (vstart[b] ?? 0))
    const lanes = order.map((i) => {
      const own = tenants.slice(0, i + 1).filter((one) => one.own).length
      return {
        n: backlog[i] ?? 0,
        step: 1_000_000 / (tenants[i]?.weight ?? 1),
        fair: i,
        buckets: tenants[i]?.own ? [0, own] : [0],
      }
    })
    const { take, vstart: moved } = share(
      want,
      lanes,
      vstart,
      rooms.map((one) => one.avail),
    )
    vstart.splice(0, vstart.length, ...moved)
    rooms.forEach((one, b) => {
      const units = lanes.reduce((sum, lane, l) => sum + (lane.buckets.includes(b) ? (take[l] ?? 0) : 0), 0)
      buckets[b] = charge(rules[b] ?? [], one.bucket, units)
    })
    order.forEach((i, l) => {
      backlog[i] = (backlog[i] ?? 0) - (take[l] ?? 0)
      const row = got[Math.floor(nowUs / minute)]
      if (row) row[i] = (row[i] ?? 0) + (take[l] ?? 0)
    })
  }
  return got
}

describe.each([1, 7, 100, 500])('100 a minute among A 10,000, B 50, C 50, by claims of up to %i', (want) => {
  /** One claim after another on a room of 100 that is new each minute. */
  const windows = (tenants: readonly Tenant[], count: number): number[][] => {
    const backlog = tenants.map((one) => one.n)
    let vstart = tenants.map(() => 0)
    return Array.from({ length: count }, () => {
      const got = tenants.map(() => 0)
      const avail = [100, ...tenants.map((one) => one.own?.room ?? 100_000)]
      for (let isDone = false; !isDone;) {
        const order = tenants
          .map((_, i) => i)
          .filter((i) => (backlog[i] ?? 0) > 0)
          .toSorted((a, b) => (vstart[a] ?? 0) - (vstart[b] ?? 0))
        const lanes = order.map((i) => ({
          n: backlog[i] ?? 0,
          step: 1_000_000 / (tenants[i]?.weight ?? 1),
          fair: i,
          buckets: [0, i + 1],
        }))
        const shares = share(want, lanes, vstart, avail)
        vstart = shares.vstart
        order.forEach((i, l) => {
          const k = shares.take[l] ?? 0
          backlog[i] = (backlog[i] ?? 0) - k
          got[i] = (got[i] ?? 0) + k
          avail[0] = (avail[0] ?? 0) - k
          avail[i + 1] = (avail[i + 1] ?? 0) - k
        })
        isDone = total(shares) === 0
      }
      return got
    })
  }

  it('gives 34/33/33, then 66/17/17', () => {
    expect(windows([{ n: 10_000 }, { n: 50 }, { n: 50 }], 2)).toEqual([
      [34, 33, 33],
      [66, 17, 17],
    ])
  })

  it('gives 10/45/45, then 10/5/5 when A is limited to 10', () => {
    expect(windows([{ n: 10_000, own: level(10, minute, 10) }, { n: 50 }, { n: 50 }], 2)).toEqual([
      [10, 45, 45],
      [10, 5, 5],
    ])
  })

  it('gives 50/25/25 by weights 2:1:1', () => {
    expect(windows([{ n: 10_000, weight: 2 }, { n: 50 }, { n: 50 }], 1)).toEqual([[50, 25, 25]])
  })

  it('is as fair with the safe bucket, to one unit', () => {
    const parent = limit('parent', { rate: '100/min' }).rules
    const [first = [], second = []] = minutes(parent, [{ n: 10_000 }, { n: 50 }, { n: 50 }], 2, want)
    expect(Math.max(...first) - Math.min(...first)).toBeLessThanOrEqual(1)
    expect([(first[1] ?? 0) + (second[1] ?? 0), (first[2] ?? 0) + (second[2] ?? 0)]).toEqual([50, 50])
  })
})

describe('share in SQL', () => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: (await freshDatabase()).url })
  })
  afterAll(() => sluice.close())

  it('divides as share.ts does', async () => {
    const inSql = async (one: Case): Promise<unknown> => {
      const from = one.lanes.reduce<number[]>((list, lane) => [...list, (list.at(-1) ?? 1) + lane.buckets.length], [1])
      const [row] = await sluice.db.query<{ shares: unknown }>(
        `select json_build_object('take', take, 'vstart', vstart, 'blocked', blocked) as shares
         from ${fn}.share($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
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
      { numRuns: 800 },
    )
  })
})
