/** Properties of any division of room, and the agreement of SQL with share.ts. */
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'
import { type Room, share, type ShareLane, type Shares } from './share.ts'
import { forAll, forAllInTime } from '../for-all.ts'
import { cases } from '../long.ts'

/** Lanes as a claim has them: sorted by the virtual start of their fair key, all starts within the horizon. */
function roomOf(
  want: number,
  list: readonly ShareLane[],
  vstart: readonly number[],
  isCut: boolean,
  free: Pick<Room, 'units' | 'places'>,
): Room {
  const starts = (lane: ShareLane) => vstart[lane.fair] ?? 0
  const sorted = list.toSorted((a, b) => starts(a) - starts(b))
  const used = [...new Set(sorted.map((one) => one.fair))]
  const lanes = sorted.map((one) => ({ ...one, fair: used.indexOf(one.fair) }))
  const ascending = used.map((fair) => vstart[fair] ?? 0)
  return { want, lanes, vstart: ascending, ...free, horizon: isCut ? ascending.at(-1) : undefined }
}

const anyStart = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 50_000_000 }))
/** Free units, and free places where a bucket counts jobs. */
const anyFree = (units: fc.Arbitrary<number>, most: number) =>
  fc
    .array(fc.tuple(units, fc.oneof({ weight: 3, arbitrary: fc.constant(2_147_483_647) }, units)), {
      minLength: 1,
      maxLength: most,
    })
    .map((list) => ({ units: list.map(([one]) => one), places: list.map(([, one]) => one) }))

/** No job has costs. */
const anyPlain: fc.Arbitrary<Room> = fc
  .record({
    want: fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 500 })),
    free: anyFree(fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 20 }), fc.integer({ min: 0, max: 1_000 })), 6),
    vstart: fc.array(anyStart, { minLength: 1, maxLength: 20 }),
    isCut: fc.boolean(),
  })
  .chain(({ want, free, vstart, isCut }) => {
    const lane = fc.record({
      n: fc.oneof(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 1, max: 10_000 })),
      step: fc.constantFrom(2_000_000, 1_000_000, 1_000_000, 500_000, 333_333, 100_000, 1_000),
      fair: fc.nat(vstart.length - 1),
      buckets: fc.uniqueArray(fc.nat(free.units.length - 1), { maxLength: 3 }),
    })
    return fc.array(lane, { minLength: 1, maxLength: 50 }).map((list): Room => roomOf(want, list, vstart, isCut, free))
  })

const anyCost = fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 30 }))
/** Some lanes have jobs with costs, and some lanes have reserved units. */
const anyCosts: fc.Arbitrary<Room> = fc
  .record({
    want: fc.integer({ min: 1, max: 40 }),
    free: anyFree(fc.integer({ min: 0, max: 60 }), 5),
    vstart: fc.array(anyStart, { minLength: 1, maxLength: 8 }),
    isCut: fc.boolean(),
  })
  .chain(({ want, free, vstart, isCut }) => {
    const lane = fc
      .record({
        n: fc.integer({ min: 1, max: 60 }),
        step: fc.constantFrom(1_000_000, 1_000_000, 500_000, 100_000),
        fair: fc.nat(vstart.length - 1),
        buckets: fc.uniqueArray(fc.nat(free.units.length - 1), { maxLength: 3 }),
        isCosted: fc.boolean(),
        isFirst: fc.nat(4).map((n) => n === 0),
      })
      .chain(({ isCosted, ...one }) => {
        if (!isCosted) return fc.constant(one)
        const job = fc.record({
          costs: fc.array(anyCost, { minLength: one.buckets.length, maxLength: one.buckets.length }),
          turn: fc.integer({ min: 0, max: 30 }),
        })
        return fc.array(job, { maxLength: 12 }).map((jobs) => ({ ...one, n: jobs.length, jobs }))
      })
    return fc.array(lane, { minLength: 1, maxLength: 16 }).map((list): Room => {
      const room = roomOf(want, list, vstart, isCut, free)
      const isFirst = (one: ShareLane) => 'isFirst' in one && one.isFirst === true
      return { ...room, first: room.lanes.flatMap((one, i) => (isFirst(one) && one.buckets.length > 0 ? [i] : [])) }
    })
  })

const total = (shares: Shares): number => shares.take.reduce((sum, k) => sum + k, 0)
/** The units that a lane's jobs took from a bucket. */
const taken = ({ buckets, jobs }: ShareLane, take: number, b: number, of: 'units' | 'places'): number => {
  const u = buckets.indexOf(b)
  if (u < 0 || jobs === undefined) return u < 0 ? 0 : take
  const ran = jobs.slice(0, take)
  return of === 'places' ? ran.length : ran.reduce((sum, job) => sum + (job.costs[u] ?? 0), 0)
}
const left = (room: Room, shares: Shares, of: 'units' | 'places'): number[] =>
  (room[of] ?? []).map(
    (free, b) => free - room.lanes.reduce((sum, lane, i) => sum + taken(lane, shares.take[i] ?? 0, b, of), 0),
  )
/** Jobs that fit into each bucket. */
const rest = (room: Room, shares: Shares): number[] => {
  const places = left(room, shares, 'places')
  return left(room, shares, 'units').map((units, b) => Math.min(units, places[b] ?? Infinity))
}
const held = (any: fc.Arbitrary<Room>, numRuns: number) => (check: (room: Room, shares: Shares) => void) =>
  forAll(numRuns, any, (room) => check(room, share(room)))

describe.each([
  ['without costs', held(anyPlain, 1_000)],
  ['with costs', held(anyCosts, 2_000)],
] as const)('any division of room %s', (_, holds) => {
  it('stays within the wanted number, the room of each bucket and the jobs of each lane', () => {
    holds((room, shares) => {
      expect(total(shares)).toBeLessThanOrEqual(room.want)
      expect(Math.min(...rest(room, shares))).toBeGreaterThanOrEqual(0)
      shares.take.forEach((k, i) => expect(k >= 0 && k <= (room.lanes[i]?.n ?? 0)).toBe(true))
    })
  })

  it('advances each fair key by the costs of its jobs over its weight', () => {
    holds((room, shares) => {
      const moved = room.vstart.map((start, fair) =>
        room.lanes.reduce((sum, lane, i) => {
          if (lane.fair !== fair) return sum
          const turns = Array.from({ length: shares.take[i] ?? 0 }, (__, j) => lane.jobs?.[j]?.turn ?? 1)
          return sum + turns.reduce((all, turn) => all + turn * lane.step, 0)
        }, start),
      )
      expect(shares.vstart).toEqual(moved)
    })
  })

  it('stops a lane at the wanted number, its jobs, a bucket or the horizon', () => {
    holds((room, shares) => {
      if (total(shares) === room.want) return
      room.lanes.forEach((lane, i) => {
        const isDone = shares.take[i] === lane.n || shares.blocked[i] !== undefined
        expect(isDone || (shares.vstart[lane.fair] ?? 0) > (room.horizon ?? Infinity)).toBe(true)
      })
    })
  })

  it('names a bucket of the lane that has too little room for its next job', () => {
    holds((room, shares) => {
      const units = left(room, shares, 'units')
      const places = left(room, shares, 'places')
      shares.blocked.forEach((b, i) => {
        if (b === undefined) return
        const { buckets, jobs } = room.lanes[i] as ShareLane
        const job = jobs?.[shares.take[i] ?? 0]
        expect(buckets).toContain(b)
        // Or the bucket is reserved for a job that needs more of it.
        const isKept = room.lanes.some((lane, o) => lane.jobs && shares.blocked[o] === b)
        const need = Math.max(1, job?.costs[buckets.indexOf(b)] ?? 1)
        expect((units[b] ?? 0) < need || (places[b] ?? 0) < 1 || isKept).toBe(true)
      })
    })
  })
})

describe('any division of room without costs', () => {
  const holds = held(anyPlain, 1_000)

  it('denies no lane while there is room, except lanes past the horizon', () => {
    holds((room, shares) => {
      if (total(shares) === room.want) return
      const free = rest(room, shares)
      room.lanes.forEach((lane, i) => {
        const isServed = shares.take[i] === lane.n || lane.buckets.some((b) => free[b] === 0)
        expect(isServed || (shares.vstart[lane.fair] ?? 0) > (room.horizon ?? Infinity)).toBe(true)
      })
    })
  })

  it('grants something whenever anything can be granted', () => {
    holds((room, shares) => {
      const free = room.units.map((units, b) => Math.min(units, room.places?.[b] ?? 0))
      const can = room.lanes.some((lane) => lane.buckets.every((b) => (free[b] ?? 0) > 0))
      expect(total(shares) > 0).toBe(can)
    })
  })
})

describe('the division of room in SQL', () => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: (await freshDatabase()).url })
  })
  afterAll(() => sluice.close())

  it.each([
    ['without costs', anyPlain],
    ['with costs', anyCosts],
  ])('is the same as that of the TypeScript model, %s', async (_, any) => {
    const inSql = async ({ want, lanes, vstart, units, places, horizon, first }: Room): Promise<unknown> => {
      const from = lanes.reduce<number[]>((list, lane) => [...list, (list.at(-1) ?? 1) + lane.buckets.length], [1])
      const at: number[] = []
      const costs: number[] = []
      for (const { jobs } of lanes) {
        at.push(jobs === undefined ? 0 : costs.length + 1)
        for (const job of jobs ?? []) costs.push(...job.costs, job.turn)
      }
      const [row] = await sluice.db.query<{ shares: unknown }>(
        `select json_build_object('take', take, 'vstart', vstart, 'blocked', blocked) as shares
         from ${fn}.divide_by_turns($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
        [
          want,
          lanes.map((lane) => lane.n),
          vstart,
          lanes.map((lane) => lane.step),
          lanes.map((lane) => lane.fair + 1),
          from,
          lanes.flatMap((lane) => lane.buckets.map((b) => b + 1)),
          units,
          places,
          horizon ?? null,
          at,
          costs,
          first?.map((i) => i + 1) ?? null,
        ],
      )
      return row?.shares
    }
    await forAllInTime(cases(800), any, async (room) => {
      const shares = share(room)
      expect(await inSql(room)).toEqual({
        ...shares,
        blocked: shares.blocked.map((b) => (b === undefined ? 0 : b + 1)),
      })
    })
  })
})
