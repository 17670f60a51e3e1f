import type * as threads from 'node:worker_threads'
import { expect, test, vi } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

// As in a bundle that lacks the thread's file.
vi.mock('node:worker_threads', async (original) => {
  const { Worker } = await original<typeof threads>()
  return {
    Worker: class extends Worker {
      constructor(url: URL, options: threads.WorkerOptions) {
        super(new URL('left-behind.js', url), options)
      }
    },
  }
})

test('a worker whose heartbeat thread cannot run logs that, and sends heartbeats all the same', async () => {
  const { url } = await freshDatabase()
  const error = vi.fn<(message: string, details?: Record<string, unknown>) => void>()
  const quiet = () => {}
  const sluice = await Sluice.open({ store: url, log: { debug: quiet, info: quiet, warn: quiet, error } })
  const beats = async () => {
    const [row] = await sluice.db.query<{ beat: string }>('select beat from sluice.worker')
    return Number(row?.beat)
  }
  await sluice.work([task('idle', { input: z.object({}), run: () => undefined })])
  await until(async () => (await beats()) >= 2, 'two beats')
  await sluice.close()
  expect(error.mock.calls).toEqual([
    [expect.stringContaining('heartbeat thread ended'), { error: expect.stringContaining('left-behind.js') }],
  ])
})
