/** One-shot dispatch from many processes at once. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { limit, Sluice } from '../../src/index.ts'
import { vendor } from '../../src/testing/vendor.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { brief } from '../v8.ts'

const processes = isLong ? 100 : 12
const file = fileURLToPath(new URL('./once.mjs', import.meta.url))
const schema = 'once'
/** `600/h` allows this number at once, and one more every 6.7 s. */
const allowedNow = 60

test(`${processes} one-shot dispatchers at once run the jobs that the limit allows, each once, and no more`, async () => {
  const database = await freshDatabase()
  const standIn = vendor({ rules: [{ algorithm: 'sliding log', limit: 600, windowMs: 3_600_000 }] })
  const url = await standIn.listen()
  const sluice = await Sluice.open({ store: database.url, schema })
  const call = task('once', {
    input: z.object({ i: z.number() }),
    limits: [limit('hourly', { rate: '600/h' })],
    run: () => undefined,
  })
  await sluice.sendMany(
    call as unknown as AnyTask,
    Array.from({ length: 100 }, (_, i) => ({ i })),
  )
  /** `again`: how often cron calls again if the machine or the server has no room for so many processes at once. */
  const dispatchOnce = async (again = 5): Promise<number> => {
    const child = spawn(process.execPath, [
      ...brief,
      file,
      JSON.stringify({ store: database.url, schema, vendor: url }),
    ])
    let [out, errors] = ['', '']
    child.stdout.on('data', (part: Buffer) => (out += part.toString()))
    child.stderr.on('data', (part: Buffer) => (errors += part.toString()))
    const [code] = (await once(child, 'close')) as [number]
    if (code !== 0 && again > 0 && errors.includes('SLUICE_STORE_UNREACHABLE')) return dispatchOnce(again - 1)
    expect(code, errors).toBe(0)
    return Number(out)
  }
  const ran = await Promise.all(Array.from({ length: processes }, () => dispatchOnce()))
  // A process that was too slow ten times in a row leaves room unused; the next call by cron finds it all refunded.
  for (let calls = 0; calls < 10 && standIn.arrivals().length < allowedNow; calls++) ran.push(await dispatchOnce())
  const arrivals = standIn.arrivals()
  expect(new Set(arrivals.map((arrival) => arrival.jobId)).size).toBe(arrivals.length)
  expect(standIn.report().rules.map((rule) => rule.exceeded)).toEqual([0])
  // Room for 60, and one more for each 6.7 s.
  expect(arrivals.length).toBeGreaterThanOrEqual(allowedNow)
  expect(arrivals.length).toBeLessThanOrEqual(allowedNow + 45)
  expect(ran.reduce((sum, n) => sum + n, 0)).toBe(arrivals.length)
  const { waiting, running, scheduled } = await sluice.jobs.status()
  expect(waiting + scheduled).toBe(100 - arrivals.length)
  expect(running).toBe(0)
  await sluice.close()
  await standIn.close()
  await database.drop()
}, 900_000)
