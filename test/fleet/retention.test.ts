import fc from 'fast-check'
import { expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { Sluice } from '../../src/sluice.ts'
import { RetentionSettings, isPruneTime, retentionSettings } from '../../src/fleet/retention.ts'
import { count, engines, quietTask } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { forAll } from '../for-all.ts'
import { until } from '../until.ts'
import { beats, workersSeen } from './engine.ts'

const minute = 60_000
const hour = 60 * minute

it('the hours for dropping begin at their time of day in their zone, last as long as set, and may pass midnight', () => {
  const berlin = { at: '23:30', zone: 'Europe/Berlin', for: '2h' } as const
  const at = (text: string) => isPruneTime(berlin, Date.parse(text))
  expect(['2026-07-01T21:29Z', '2026-07-01T21:30Z', '2026-07-01T23:29Z', '2026-07-01T23:30Z'].map(at)).toEqual([
    false,
    true,
    true,
    false,
  ])
  // An hour later in winter.
  expect(['2026-12-01T22:29Z', '2026-12-01T22:30Z', '2026-12-02T00:30Z'].map(at)).toEqual([false, true, false])
})

it('each day of a year has such hours, never much longer than set, also when the clocks are changed', () => {
  const zones = fc.constantFrom('Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu', 'UTC')
  forAll(60, zones, fc.nat(23), fc.constantFrom(2, 3, 5), fc.nat(364), (zone, at, hours, dayOfYear) => {
    const time = { at: `${String(at).padStart(2, '0')}:00`, zone, for: hours * hour }
    const begin = Date.UTC(2026, 0, 1) + dayOfYear * 24 * hour
    const isOpen = Array.from({ length: 24 * 4 }, (_, i) => isPruneTime(time, begin + i * 15 * minute))
    const quarters = isOpen.filter(Boolean).length
    expect(quarters).toBeGreaterThanOrEqual((hours - 1) * 4)
    expect(quarters).toBeLessThanOrEqual((hours + 1) * 4)
  })
})

it('retention settings are checked, and converted to ms', () => {
  expect(retentionSettings({ retention: { done: '1h' }, prune: { at: '03:00' } })).toEqual({
    keepDoneMs: hour,
    prune: { at: '03:00', zone: 'UTC', for: 4 * hour },
  })
  expect(retentionSettings({ prune: 'any' })).toEqual({ prune: 'any' })
  for (const prune of [{ at: '24:00' }, { at: '03:00', for: '25h' }, { at: '03:00', for: '1s' }, { at: 3 }])
    expect(() => retentionSettings({ prune: prune as never })).toThrow(/prune/)
})

it.each(engines)('the latest setting holds, also for processes that set another before: $name', async (engine) => {
  const sluice = await Sluice.open({ store: await engine.store() })
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const saying = (done: '1h' | '30d') =>
    new RetentionSettings(storeOn(sluice.db, { clock }), retentionSettings({ retention: { done }, prune: 'any' }))
  const [older, newer] = [saying('1h'), saying('30d')]
  // No process has set anything yet.
  expect(await older.inForce()).toMatchObject({ doneMs: hour, failedMs: 7 * 24 * hour })
  await older.publish()
  await newer.publish()
  nowMs += minute
  for (const one of [older, newer, saying('1h')]) expect(await one.inForce()).toMatchObject({ doneMs: 30 * 24 * hour })
  // A process that sets it gets the value in force at once.
  await older.publish()
  expect(await older.inForce()).toMatchObject({ doneMs: hour })
  await sluice.close()
})

it("a worker's retention setting is recorded even if another does the maintenance, and only once", async () => {
  const { url } = await freshDatabase()
  const [first, later] = [
    await Sluice.open({ store: url }),
    await Sluice.open({ store: url, retention: { done: '3d' } }),
  ]
  const workers = [await first.work([quietTask('quiet')])]
  await until(async () => (await workersSeen(first.db)) === 1, 'the first looks at the fleet')
  workers.push(await later.work([quietTask('quiet')]))
  await until(async () => (await workersSeen(first.db)) === 2, 'it goes on')
  await until(async () => (await count(first.db, 'sluice.setting')) === 1, 'the second has spoken')
  await first.db.query('delete from sluice.setting')
  await workers[0]?.stop()
  const before = await beats(first.db)
  await until(async () => (await beats(first.db)) >= before + 3, 'it does the maintenance')
  expect(await count(first.db, 'sluice.setting')).toBe(0)
  await workers[1]?.stop()
  await Promise.all([first.close(), later.close()])
})
