/** A pool of three accounts, three worker processes on two hosts, and a vendor that knows accounts and addresses. */
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { start, vendorOf } from './children.ts'

const jobs = 60
// As in pool.mjs, which has the handler; only keys are compared and stored.
const account = limit('account', { rate: '20/2s', transit: '1s', pool: ['a', 'b', 'c'] })
const machine = limit('machine', { rate: '40/2s', transit: '1s', by: label('host') })
const call = task('call', { input: z.object({}), limits: [account, machine], run: () => undefined })
const memberFile = fileURLToPath(new URL('pool.mjs', import.meta.url))

it('the vendor sees each account and each host within its limit, all accounts in use, and each job once', async (context) => {
  const { url: store } = await freshDatabase()
  const rules = [
    { name: 'account', algorithm: 'sliding log', limit: 20, windowMs: 2_000, key: 'header:x-key' },
    { name: 'host', algorithm: 'sliding log', limit: 40, windowMs: 2_000, key: 'header:x-host' },
  ]
  const vendor = await vendorOf(context, rules)
  const sluice = await Sluice.open({ store })
  const options = { store, vendor: vendor.url }
  await Promise.all(['one', 'one', 'two'].map((host) => start(context, memberFile, { ...options, host })))
  await sluice.sendMany(call, copies(jobs))
  await until(async () => (await sluice.jobs.status()).done === jobs, 'all done', 90_000)
  const [report, arrivals] = [await vendor.report(), await vendor.arrivals()]
  expect(report).toMatchObject({ arrivals: jobs, vendor429: 0, duplicates: 0 })
  expect(report.rules.map(({ exceeded }) => exceeded)).toEqual([0, 0])
  const counts = ['a', 'b', 'c'].map((key) => arrivals.filter(({ keys }) => keys[0] === key).length)
  // The claim takes the one with the most room, so they stay close together.
  for (const count of counts) expect(count).toBeGreaterThan(jobs / 6)
  expect(new Set(arrivals.map(({ keys }) => keys[1])).size).toBe(2)
  await sluice.close()
})
