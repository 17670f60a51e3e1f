/** The limiter's clock when the store clock steps: on both engines, with all clocks controlled by the test. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { type Clock, StoreClock, systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Sluice } from '../../src/sluice.ts'
import { isLong } from '../long.ts'
import { takeIn } from '../takes/engine.ts'
import { addBucket, forgetSteps, limiterNow, storeTimeOf, watchClock } from '../limits/engine.ts'
import { count, empty, mainEngines, openOn, ownClock } from './engine.ts'

const startMs = 1_790_000_000_000
const hourMs = 3_600_000
/** How often workers claim, in seconds of the clock. */
const stepS = isLong ? 1 : 2
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }

describe.each(mainEngines)('when the clock of the store steps, on $name', (engine) => {
  let sluice: Sluice
  let store: { set(ms: number): Promise<void> }
  /** The time that has really passed, and by how much the store's clock is off. */
  let realMs: number
  let offMs: number
  /** When a unit was granted, in real ms. */
  let grants: number[]
  let bucket: string

  beforeAll(async () => {
    sluice = await openOn(engine)
    store = await ownClock(sluice.db, startMs)
    await defineLimit(sqlOn(sluice.db), limit('crm', { window: '10/30s', transit: 0 }))
  })
  beforeEach(async () => {
    await empty(sluice.db)
    await forgetSteps(sluice.db)
    await watchClock(sluice.db)
    ;[realMs, offMs, grants] = [0, 0, []]
    bucket = await addBucket(sluice.db, 'crm')
    await pass(0)
  })
  afterAll(() => sluice.close())

  const pass = async (ms: number) => {
    realMs += ms
    await store.set(startMs + realMs + offMs)
  }
  /** A worker with its clocks; `lostMs`: the time that its monotonic clock stood still, of which the machine slept `sleptMs`. */
  const worker = () => {
    const at = { lostMs: 0, sleptMs: 0 }
    const clock: Clock = {
      ...systemClock,
      monotonicMs: () => realMs - at.lostMs,
      bootMs: () => realMs - at.lostMs + at.sleptMs,
    }
    const storeClock = new StoreClock()
    const epoch = new StoreEpoch(storeOn(sluice.db, { clock, log }), storeClock)
    /** Takes all it can, as claims do. */
    const take = async () => {
      const rows = await sluice.db.query<{ now: string; granted: boolean }>(
        `select ${limiterNow('$2::bigint')} as now, t.granted from unnest($3::uuid[]) with ordinality g (id, n)
         cross join lateral ${takeIn('g.id', '$1::bigint[]', '$2::bigint + 0 * g.n')}`,
        [[bucket], storeClock.cap(clock.monotonicMs()), [1, 2, 3, 4].map(() => newId())],
      )
      for (const { granted } of rows) if (granted) grants.push(realMs)
      const readMs = clock.monotonicMs()
      storeClock.recordReading(Number(rows[0]?.now), [readMs, readMs])
    }
    return { at, epoch, take, look: () => epoch.check() }
  }
  type Man = ReturnType<typeof worker>
  const aheadMs = async () =>
    Number((await sluice.db.query<{ ms: string }>('select clock_offset_us / 1000 as ms from sluice.epoch'))[0]?.ms)
  const live = async (seconds: number, men: readonly Man[]) => {
    for (let second = 0; second < seconds; second += stepS) {
      for (const man of men) {
        if (second % 2 === 0) await man.look()
        await man.take()
      }
      await pass(1_000 * Math.min(stepS, seconds - second))
    }
  }
  /** No window of real time has more than 10, and grants come at least so often. */
  const check = (untilMs: number, everyMs = 36_000) => {
    for (const at of grants)
      expect(grants.filter((other) => other >= at && other < at + 30_000).length).toBeLessThan(11)
    for (let at = 0; at + everyMs < untilMs; at += 1_000)
      expect(grants.filter((other) => other >= at && other < at + everyMs).length).toBeGreaterThan(0)
  }

  it.each(
    [
      { how: 'an hour forward', byMs: hourMs },
      { how: 'an hour back', byMs: -hourMs },
      { how: '20 s forward', byMs: 20_000 },
      { how: '20 s back', byMs: -20_000 },
    ].slice(0, engine.name === 'PGlite' ? 1 : 4),
  )('$how and back again: windows are neither exceeded nor stalled', async ({ byMs }) => {
    const men = [worker(), worker()]
    await live(9, men)
    offMs = byMs
    await pass(0)
    // Many claims before a worker checks the clock: the bound must not grow with them.
    for (let n = 0; n < 60; n++) await men[n % 2]?.take()
    await live(70, men)
    expect(Math.abs((await aheadMs()) + byMs)).toBeLessThan(3_000)
    offMs = 0
    await pass(0)
    await live(50, men)
    expect(Math.abs(await aheadMs())).toBeLessThan(3_000)
    check(realMs)
    expect(grants.length).toBeGreaterThanOrEqual(36)
  })

  it('several workers notice one step at once, and it is corrected once', async () => {
    const men = Array.from({ length: 4 }, worker)
    await live(5, men)
    offMs = hourMs
    await pass(0)
    await Promise.all(men.map((man) => man.look()))
    expect(Math.abs((await aheadMs()) + hourMs)).toBeLessThan(3_000)
    offMs = -hourMs
    await pass(0)
    await Promise.all(men.map((man) => man.look()))
    expect(Math.abs((await aheadMs()) - hourMs)).toBeLessThan(3_000)
  })

  it('a worker whose own clock stood still is not believed when others saw time pass', async () => {
    const [awake, frozen] = [worker(), worker()] as const
    await live(3, [awake, frozen])
    await live(120, [awake])
    frozen.at.lostMs = 120_000
    await frozen.look()
    expect(await aheadMs()).toBe(0)
    await live(60, [awake, frozen])
    expect(await aheadMs()).toBe(0)
    check(realMs)
  })

  it('a lone worker that was frozen only loses time, and one whose machine slept notices that it slept', async () => {
    const alone = worker()
    await live(3, [alone])
    await pass(hourMs)
    alone.at.lostMs = hourMs
    await alone.look()
    expect(Math.abs((await aheadMs()) + hourMs)).toBeLessThan(3_000)
    await sluice.db.query('update sluice.epoch set clock_offset_us = 0')
    const sleeper = worker()
    await sleeper.look()
    await pass(hourMs)
    sleeper.at.lostMs = sleeper.at.sleptMs = hourMs
    await sleeper.look()
    expect(await aheadMs()).toBe(0)
    await live(40, [sleeper])
    expect(grants.length).toBeGreaterThanOrEqual(20)
  })

  it('a step back while no worker ran: the first worker to start goes on from the last grant', async () => {
    await live(3, [worker()])
    await pass(10_000)
    offMs = -hourMs
    await pass(0)
    await live(35, [worker()])
    expect((await aheadMs()) - hourMs).toBeGreaterThan(-15_000)
    expect(grants).toHaveLength(20)
    check(realMs, 50_000)
  })

  it('a clock that drifts a little, as while it is slewed, counts as no step', async () => {
    const man = worker()
    for (let n = 0; n < 40; n++) {
      await man.look()
      // 500 millionths.
      offMs += 1
      await pass(2_000)
    }
    // After a long outage too.
    offMs += 1_800
    await pass(hourMs)
    await man.look()
    expect(await aheadMs()).toBe(0)
  })

  it('due times of jobs follow the wall clock, whatever clock the limits use', async () => {
    const man = worker()
    await man.look()
    offMs = hourMs
    await pass(0)
    await man.look()
    const [row] = await sluice.db.query<{ off: number }>(
      `select extract(epoch from ${storeTimeOf(limiterNow())} - sluice.now())::float8 as off`,
    )
    expect(Math.abs(row?.off ?? 1)).toBeLessThan(0.001)
    expect(await count(sluice.db, `sluice.epoch where stepped_us > 3590000000 and stepped_at is not null`)).toBe(1)
  })
})
