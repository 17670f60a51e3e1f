/**
 * A workload that somebody asked for (graphile/worker#118), at a vendor that has the same limits and counts each exactly:
 * 3,000 messages a minute in all, 1,000 a minute for each client, 6 a second for each sender number. One client came first,
 * with nine tenths of all that waits, half of it from one number. `dispatch/workload.test.ts` has it on a clock that steps.
 */
import { fileURLToPath } from 'node:url'
import { expect, test, vi } from 'vitest'
import { type AnyTask, Sluice } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { end, start, vendorOf } from './children.ts'

// The definition of the workers' own code.
const definitions: string = './senders.mjs'
const { message } = (await import(definitions)) as { message: AnyTask }
const memberFile = fileURLToPath(new URL('./senders.mjs', import.meta.url))
const clients = isLong ? 200 : 20
const numbers = 20
/** Of each client but the first. In all more than a burst of the shared limit, so that turns decide. */
const jobsEach = 20
/** Of each of two workers. */
const concurrency = 10
/** So many of the first client's go while the test looks: more than it may at once, so that its own limit decides. */
const largeGoal = isLong ? 400 : 160
vi.setConfig({ testTimeout: 900_000 })

function* inputs() {
  const one = (client: number, i: number) => ({ client: `c${client}`, number: `c${client}.${i % numbers}` })
  for (let i = 0; i < 9 * jobsEach * (clients - 1); i++) yield one(0, i % 2 === 0 ? 0 : i)
  for (let client = 1; client < clients; client++) for (let i = 0; i < jobsEach; i++) yield one(client, i)
}

test('the vendor sees all three limits kept, and the others are served in their turns', async () => {
  const log = { algorithm: 'sliding log' }
  const vendor = await vendorOf([
    { ...log, name: 'total, safe rate', limit: 3_000, windowMs: 60_000 },
    { ...log, name: 'client, safe rate', limit: 1_000, windowMs: 60_000, key: 'header:x-client' },
    { ...log, name: 'number, safe rate', limit: 6, windowMs: 1_000, key: 'header:x-number' },
  ])
  const { url: store } = await freshDatabase()
  const sluice = await Sluice.open({ store })
  await sluice.sendMany(message, inputs())
  const options = { store, vendor: vendor.url, concurrency }
  const fleet = await Promise.all([0, 1].map(async () => (await start(memberFile, options)).child))

  const seen = async () => {
    const arrivals = await vendor.arrivals()
    const large = arrivals.filter(({ keys }) => keys[1] === 'c0').length
    return { others: arrivals.length - large, large }
  }
  const isOver = async () => {
    const { others, large } = await seen()
    return others >= jobsEach * (clients - 1) && large >= largeGoal
  }
  await until(isOver, 'all others served, and more of the large one than goes at once', 600_000)
  await end(fleet)

  const arrivals = await vendor.arrivals()
  const report = await vendor.report()
  expect(report).toMatchObject({ vendor429: 0, duplicates: 0 })
  expect(report.rules.map(({ name, exceeded }) => `${name}: ${exceeded} exceeded`)).toEqual([
    'total, safe rate: 0 exceeded',
    'client, safe rate: 0 exceeded',
    'number, safe rate: 0 exceeded',
  ])
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [], missing: [] })
  // A client's k-th message is among the first k + 1 rounds of turns, but for what workers have in hand: that arrives in any
  // order. On a busy machine a grant may grow old before its call, which costs its client a turn or two.
  const turns = new Map<string, number>()
  for (const [i, { keys }] of arrivals.entries()) {
    const client = String(keys[1])
    const k = (turns.get(client) ?? 0) + 1
    turns.set(client, k)
    if (client !== 'c0') expect(i).toBeLessThan((k + 3) * clients + 8 * concurrency)
  }
  expect(turns.size).toBe(clients)
  const lastOther = arrivals.findLastIndex(({ keys }) => keys[1] !== 'c0')
  expect(arrivals.slice(0, lastOther).filter(({ keys }) => keys[1] === 'c0').length).toBeLessThanOrEqual(4 * jobsEach)
  const span = (Number(arrivals.at(lastOther)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
  console.log(
    `${lastOther + 1} messages until all others were served, in ${span.toFixed(1)} s; ${arrivals.length} in all`,
  )
  await sluice.close()
})
