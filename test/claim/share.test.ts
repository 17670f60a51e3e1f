/** The division of a room among lanes. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { level, minute, second } from '../limits/oracle.ts'
import { type Room, share, type ShareLane } from './share.ts'
import { forAll } from '../for-all.ts'
import { copies } from '../rows.ts'

describe('the division of room among fair keys', () => {
  it('differs among equals by one unit at most, even where a large claim divides little room', () => {
    forAll(
      fc.integer({ min: 1, max: 500 }),
      fc.integer({ min: 0, max: 700 }),
      fc.integer({ min: 1, max: 50 }),
      (want, avail, count) => {
        const lanes = Array.from({ length: count }, (_, fair) => ({ n: 10_000, step: 1_000_000, fair, buckets: [0] }))
        const { take } = share({ want, lanes, vstart: lanes.map(() => 0), units: [avail] })
        expect(Math.max(...take) - Math.min(...take)).toBeLessThanOrEqual(1)
      },
    )
  })

  it('is between fair keys, not lanes: many lanes of a key get no more than one', () => {
    const lane = (fair: number) => ({ n: 1_000, step: 1_000_000, fair, buckets: [0] })
    const { take } = share({ want: 100, lanes: [lane(0), lane(0), lane(0), lane(1)], vstart: [0, 0], units: [1_000] })
    expect(take).toEqual([50, 0, 0, 50])
  })

  it('follows priority within a fair key, and goes further only when the first lane is blocked or done', () => {
    const lane = (n: number, buckets: number[]) => ({ n, step: 1_000_000, fair: 0, buckets })
    const ten = (lanes: ShareLane[], units: number[]) => share({ want: 10, lanes, vstart: [0], units })
    expect(ten([lane(100, [0]), lane(100, [0])], [50]).take).toEqual([10, 0])
    expect(ten([lane(3, [0]), lane(100, [0])], [50]).take).toEqual([3, 7])
    expect(ten([lane(100, [0, 1]), lane(100, [0])], [50, 2])).toMatchObject({
      take: [2, 8],
      blocked: [1, undefined],
    })
  })

  it('lets a key that is behind catch up first', () => {
    const lane = (fair: number) => ({ n: 1_000, step: 1_000_000, fair, buckets: [] })
    const { take } = share({ want: 30, lanes: [lane(0), lane(1)], vstart: [0, 20_000_000], units: [] })
    expect(take[0]).toBeGreaterThanOrEqual(20)
    expect(take[1]).toBeGreaterThan(0)
  })

  it('keeps keys whose jobs have costs within one job of each other', () => {
    const keys = fc.array(fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 12, maxLength: 12 }), {
      minLength: 2,
      maxLength: 6,
    })
    forAll(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 0, max: 300 }), keys, (want, units, costs) => {
      const lanes = costs.map((list, fair) => {
        const jobs = list.map((cost) => ({ costs: [cost], turn: cost }))
        return { n: jobs.length, step: 1_000_000, fair, buckets: [0], jobs }
      })
      const { vstart } = share({ want, lanes, vstart: lanes.map(() => 0), units: [units] })
      expect(Math.max(...vstart) - Math.min(...vstart)).toBeLessThanOrEqual(30_000_000)
    })
  })

  it('keeps a key without costs ahead of a key with costs by its share of the room at most', () => {
    forAll(fc.integer({ min: 1, max: 100 }), fc.integer({ min: 0, max: 300 }), (want, units) => {
      const plain = { n: 1_000, step: 1_000_000, fair: 0, buckets: [0] }
      const jobs = copies(100, { costs: [3], turn: 3 })
      const { vstart } = share({
        want,
        lanes: [plain, { ...plain, n: 100, fair: 1, jobs }],
        vstart: [0, 0],
        units: [units],
      })
      const ahead = ((vstart[0] ?? 0) - (vstart[1] ?? 0)) / 1_000_000
      expect(ahead).toBeLessThanOrEqual(Math.max(1, Math.min(want, units) / 2))
      expect(ahead).toBeGreaterThanOrEqual(-3)
    })
  })
})

interface Tenant {
  n: number
  weight?: number
  own?: Rule
}

/** Claims repeatedly for some minutes, as a greedy worker does; returns the jobs of each tenant in each minute. */
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
    const lanes = order.map((i, fair) => {
      const own = tenants.slice(0, i + 1).filter((one) => one.own).length
      return {
        n: backlog[i] ?? 0,
        step: 1_000_000 / (tenants[i]?.weight ?? 1),
        fair,
        buckets: tenants[i]?.own ? [0, own] : [0],
      }
    })
    const starts = order.map((i) => vstart[i] ?? 0)
    const { take, vstart: moved } = share({ want, lanes, vstart: starts, units: rooms.map((one) => one.avail) })
    order.forEach((i, fair) => (vstart[i] = moved[fair] ?? 0))
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
  /** Repeats claims on a room of 100 that is new each minute. */
  const windows = (tenants: readonly Tenant[], count: number): number[][] => {
    const backlog = tenants.map((one) => one.n)
    const vstart = tenants.map(() => 0)
    return Array.from({ length: count }, () => {
      const got = tenants.map(() => 0)
      const avail = [100, ...tenants.map((one) => one.own?.capacity ?? 100_000)]
      for (let isDone = false; !isDone;) {
        const order = tenants
          .map((_, i) => i)
          .filter((i) => (backlog[i] ?? 0) > 0)
          .toSorted((a, b) => (vstart[a] ?? 0) - (vstart[b] ?? 0))
        const lanes = order.map((i, fair) => ({
          n: backlog[i] ?? 0,
          step: 1_000_000 / (tenants[i]?.weight ?? 1),
          fair,
          buckets: [0, i + 1],
        }))
        const shares = share({ want, lanes, vstart: order.map((i) => vstart[i] ?? 0), units: avail })
        order.forEach((i, fair) => (vstart[i] = shares.vstart[fair] ?? 0))
        order.forEach((i, l) => {
          const k = shares.take[l] ?? 0
          backlog[i] = (backlog[i] ?? 0) - k
          got[i] = (got[i] ?? 0) + k
          avail[0] = (avail[0] ?? 0) - k
          avail[i + 1] = (avail[i + 1] ?? 0) - k
        })
        isDone = shares.take.every((k) => k === 0)
      }
      return got
    })
  }

  it('are divided 34/33/33, then 66/17/17', () => {
    expect(windows([{ n: 10_000 }, { n: 50 }, { n: 50 }], 2)).toEqual([
      [34, 33, 33],
      [66, 17, 17],
    ])
  })

  it('are divided 10/45/45, then 10/5/5 when A has a limit of 10 of its own', () => {
    expect(windows([{ n: 10_000, own: level(10, minute, 10) }, { n: 50 }, { n: 50 }], 2)).toEqual([
      [10, 45, 45],
      [10, 5, 5],
    ])
  })

  it('are divided 50/25/25 by weights 2:1:1', () => {
    expect(windows([{ n: 10_000, weight: 2 }, { n: 50 }, { n: 50 }], 1)).toEqual([[50, 25, 25]])
  })

  it('are divided as fairly, to one unit, by the bucket with the default burst', () => {
    const parent = limit('parent', { rate: '100/min' }).rules
    const [first = [], second = []] = minutes(parent, [{ n: 10_000 }, { n: 50 }, { n: 50 }], 2, want)
    expect(Math.max(...first) - Math.min(...first)).toBeLessThanOrEqual(1)
    expect([(first[1] ?? 0) + (second[1] ?? 0), (first[2] ?? 0) + (second[2] ?? 0)]).toEqual([50, 50])
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
  const fifty = (lanes: ShareLane[], units: number[], more: Partial<Room> = {}) =>
    share({ want: 50, lanes, vstart: [0, 0], units, ...more })

  it('is not overtaken by the cheap ones behind it, and keeps the units of its bucket', () => {
    expect(fifty([lane(0, [10]), cheap(1)], [9])).toMatchObject({ take: [0, 0], blocked: [0, 0] })
  })

  it('keeps no units while another bucket blocks it too', () => {
    expect(fifty([lane(0, [10], [0, 1]), cheap(1)], [9, 3]).take).toEqual([0, 9])
  })

  it('advances its turn by its cost, and the cheap jobs then have their turns', () => {
    expect(fifty([lane(0, [10, 10, 10]), cheap(1)], [40]).take).toEqual([2, 20])
  })

  it('goes first in the bucket whose units were reserved for it', () => {
    const lanes = [cheap(0), lane(1, [10, 10])]
    const vstart = [0, 5_000_000]
    expect(fifty(lanes, [10], { vstart, first: [1] }).take).toEqual([0, 1])
    expect(fifty(lanes, [10], { vstart }).take).toEqual([5, 0])
  })

  it('leaves a lane its longest prefix that fits in all buckets', () => {
    const { take, blocked } = fifty([lane(0, [3, 4, 5, 1], [0, 1])], [100, 11], { vstart: [0] })
    expect({ take, blocked }).toEqual({ take: [2], blocked: [1] })
  })

  it('needs a place of concurrency like any other job', () => {
    expect(fifty([lane(0, [3, 4, 5])], [100], { vstart: [0], places: [2] })).toMatchObject({ take: [2], blocked: [0] })
  })
})
