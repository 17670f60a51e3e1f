/** Schedules in workers, and in `dispatchOnce`, by the store's own clock. */
import { beforeEach, describe, expect, it, onTestFinished, test } from 'vitest'
import { z } from 'zod'
import { watch } from '../../src/core/test-points.ts'
import { type Schedule, schedule, scheduledFor } from '../../src/schedule/schedule.ts'
import type { Sluice } from '../../src/sluice.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { emptied, mainEngines } from '../claim/engine.ts'
import { crm, minutely, sync } from './stage.ts'

describe.each(mainEngines)('on $name', (engine) => {
  const store = emptied(engine)
  let sluice: Sluice

  beforeEach(async () => {
    sluice = store.sluice
    await sluice.db.query('with gone as (delete from sluice.schedule) delete from sluice.firing')
  })

  it('a schedule whose jobs could not be sent is refused when its worker starts', async () => {
    const start = (each: Schedule) => sluice.dispatchOnce([sync as unknown as AnyTask], { schedules: [each] })
    const thrown = minutely({ input: () => ({ account: 5 as unknown as string }) })
    await expect(start(thrown)).rejects.toMatchObject({
      code: 'SLUICE_INVALID_INPUT',
      message: expect.stringContaining('schedule "minutely": input of "sync" does not fit its schema: account'),
    })
    const keyless = task('keyless', { input: z.object({}), limits: [crm as never], run: () => undefined })
    await expect(start(schedule('keyless', { task: keyless, every: '1h', input: {} }))).rejects.toMatchObject({
      code: 'SLUICE_MISSING_KEY',
    })
    expect(await sluice.schedules.list()).toEqual([])
    await expect(
      sluice.work([sync as unknown as AnyTask], { schedules: [minutely(), minutely()] }),
    ).rejects.toMatchObject({ code: 'SLUICE_BAD_SCHEDULE' })
  })

  test('dispatchOnce sends and runs due jobs, and the handler gets the instant', async () => {
    const seen: (Date | undefined)[] = []
    const tick = task('tick', { input: z.object({}), run: (_, { job }) => void seen.push(scheduledFor(job)) })
    const schedules = [schedule('tick', { task: tick, every: '1s', input: {} })]
    const tasks = [tick as unknown as AnyTask]
    expect(await sluice.dispatchOnce(tasks, { schedules })).toBe(0)
    await sluice.db.query(`update sluice.schedule set next_at = next_at - interval '3 s'`)
    expect(await sluice.dispatchOnce(tasks, { schedules })).toBeGreaterThanOrEqual(3)
    const times = seen.map((each) => each?.getTime() ?? NaN)
    expect(times).toEqual(times.map((_, i) => (times[0] ?? NaN) + i * 1_000))
  })

  test('dispatchOnce that is to stop fires no further schedule', async () => {
    const stop = new AbortController()
    const tasks = [sync as unknown as AnyTask]
    const schedules = Array.from({ length: 30 }, (_, index) => minutely({}, `s${index}`))
    await sluice.dispatchOnce(tasks, { schedules })
    await sluice.db.query(`update sluice.schedule set next_at = next_at - interval '1 min'`)
    watch((point) => void (point === 'schedule.fired' && stop.abort()))
    onTestFinished(() => watch(undefined))
    await sluice.dispatchOnce(tasks, { schedules, signal: stop.signal })
    const firings = await Promise.all(['s0', 's29'].map((name) => sluice.schedules.history(name)))
    expect(firings.map(({ length }) => length)).toEqual([1, 0])
  })

  test('a worker fires schedules for as long as it works', async () => {
    const seen: number[] = []
    const tick = task('tick', {
      input: z.object({}),
      run: (_, { job }) => void seen.push(scheduledFor(job)?.getTime() ?? NaN),
    })
    const schedules = [schedule('tick', { task: tick, cron: '* * * * * *', input: {} })]
    const worker = await sluice.work([tick as unknown as AnyTask], { schedules })
    await expect.poll(() => seen.length, { timeout: 60_000, interval: 50 }).toBeGreaterThanOrEqual(2)
    await worker.stop()
    expect(seen.toSorted((a, b) => a - b)).toEqual(seen.map((_, i) => Math.min(...seen) + i * 1_000))
  })
})
