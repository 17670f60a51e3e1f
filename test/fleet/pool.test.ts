/** A pool of three accounts, three worker processes on two hosts, and a vendor that knows accounts and addresses. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { afterAll, expect, it } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import type { Arrival } from '../../src/testing/proof.ts'
import type { Report } from '../../src/testing/vendor.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

const jobs = 60
// As in pool.mjs, which has the handler; only keys are compared and stored.
const account = limit('account', { rate: '20/2s', transit: '1s', pool: ['a', 'b', 'c'] })
const machine = limit('machine', { rate: '40/2s', transit: '1s', by: label('host') })
const call = task('call', { input: z.object({}), limits: [account, machine], run: () => undefined })
const children: ChildProcess[] = []

afterAll(async () => {
  const ends = children.map((child) => once(child, 'exit'))
  for (const child of children) child.kill('SIGKILL')
  await Promise.all(ends)
})

async function start(file: string, options: object): Promise<string> {
  const path = fileURLToPath(new URL(file, import.meta.url))
  const child = spawn(process.execPath, [path, JSON.stringify(options)], { stdio: ['pipe', 'pipe', 'inherit'] })
  children.push(child)
  return once(createInterface(child.stdout), 'line').then(([line]) => String(line))
}

it('the vendor sees each account and each host within its limit, all accounts in use, and each job once', async () => {
  const { url: store } = await freshDatabase()
  const rules = [
    { name: 'account', algorithm: 'sliding log', limit: 20, windowMs: 2_000, key: 'header:x-key' },
    { name: 'host', algorithm: 'sliding log', limit: 40, windowMs: 2_000, key: 'header:x-host' },
  ]
  const vendor = await start('../../dist/testing/serve.js', { rules, latencyMs: 5 })
  const sluice = await Sluice.open({ store })
  await Promise.all(['one', 'one', 'two'].map((host) => start('pool.mjs', { store, vendor, host })))
  await sluice.sendMany(
    call,
    Array.from({ length: jobs }, () => ({})),
  )
  await until(async () => (await sluice.jobs.status()).done === jobs, 'all done', 90_000)
  const report = (await (await fetch(`${vendor}/.vendor/report`)).json()) as Report
  const arrivals = (await (await fetch(`${vendor}/.vendor/arrivals`)).json()) as Arrival[]
  expect(report).toMatchObject({ arrivals: jobs, vendor429: 0, duplicates: 0 })
  expect(report.rules.map(({ exceeded }) => exceeded)).toEqual([0, 0])
  const counts = ['a', 'b', 'c'].map((key) => arrivals.filter(({ keys }) => keys[0] === key).length)
  // The claim takes the one with the most room, so they stay close together.
  for (const count of counts) expect(count).toBeGreaterThan(jobs / 6)
  expect(new Set(arrivals.map(({ keys }) => keys[1])).size).toBe(2)
  await sluice.close()
})
