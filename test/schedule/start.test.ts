import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Store } from '../../src/db/store.ts'
import { ScheduleRunner } from '../../src/schedule/schedule-runner.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { minutely } from './stage.ts'

it('a worker with many schedules leaves connections to others when it stores them', async () => {
  const stored: unknown[] = []
  let [now, most] = [0, 0]
  const run = async (_: string, [name]: unknown[]) => {
    most = Math.max(most, ++now)
    await new Promise((resolve) => setImmediate(resolve))
    now--
    if (Array.isArray(name)) return [{ nowMs: 0, name: null }]
    stored.push(name)
    return [{ name }]
  }
  const store = { clock: systemClock, run } as unknown as Store
  const schedules = Array.from({ length: 200 }, (_, n) => minutely({}, `of-${n}`))
  await new ScheduleRunner({ store, schedules, rulebook: new Rulebook() }).define()
  expect(new Set(stored).size).toBe(200)
  expect(most).toBeLessThanOrEqual(20)
})
