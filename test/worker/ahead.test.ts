/** Jobs that are granted ahead of time begin at their instants. */
import { expect, it, onTestFinished } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

it('a worker starts each job at its instant, and the record shows when', async () => {
  const starts: number[] = []
  const ring = task('ring', { limits: [limit('bell', { rate: '50/s' })], run: () => void starts.push(Date.now()) })
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  const ids = await Promise.all(Array.from({ length: 80 }, () => sluice.send(ring, {})))
  const worker = await sluice.work([ring], { concurrency: 10 })
  await until(() => starts.length === 80, 'all have started')
  await worker.stop()
  const seen = await Promise.all(ids.map((id) => sluice.jobs.get(id)))
  const begins = seen.map((job) => job?.attempts[0]?.startedAt.getTime() ?? Number.NaN).toSorted((a, b) => a - b)
  // The first ones begin at once; then each begins some 20 ms after the one before, and not the ten of a claim together.
  const apart = (times: readonly number[]) => times.slice(20).filter((ms, i) => ms - (times[i + 19] ?? 0) >= 5).length
  expect(apart(starts)).toBeGreaterThan(20)
  expect(apart(begins)).toBeGreaterThan(20)
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
})
