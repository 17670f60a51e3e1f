/**
 * A workload from an issue (graphile/worker#118), at a vendor that has the same limits and counts each exactly:
 * 3,000 messages a minute in all, 1,000 a minute for each client, 6 a second for each sender number. One client came first,
 * with nine tenths of all that waits, half of it from one number. `claim/workload.test.ts` has it on a clock that steps.
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
/** Messages of each client but the first. In all more than a burst of the shared limit, so that turns decide. */
const jobsEach = 20
/** Slots of each of two workers. */
const concurrency = 10
/** Messages of the first client during the test: more than its own limit allows at once, so that this limit decides. */
const largeGoal = isLong ? 400 : 160
vi.setConfig({ testTimeout: 900_000 })

function* inputs() {
  const one = (client: number, i: number) => ({ client: `c${client}`, number: `c${client}.${i % numbers}` })
  for (let i = 0; i < 9 * jobsEach * (clients - 1); i++) yield one(0, i % 2 === 0 ? 0 : i)
  for (let client = 1; client < clients; client++) for (let i = 0; i < jobsEach; i++) yield one(client, i)
}

test('a vendor sees all three limits kept while one client sends most jobs, and the other clients have their turns', async (context) => {
  const log = { algorithm: 'sliding log' }
  const vendor = await vendorOf(context, [
    { ...log, name: 'total, safe rate', limit: 3_000, windowMs: 60_000 },
    { ...log, name: 'client, safe rate', limit: 1_000, windowMs: 60_000, key: 'header:x-client' },
    { ...log, name: 'number, safe rate', limit: 6, windowMs: 1_000, key: 'header:x-number' },
  ])
  const { url: store } = await freshDatabase()
  const sluice = await Sluice.open({ store })
  await sluice.sendMany(message, inputs())
  const options = { store, vendor: vendor.url, concurrency }
  const fleet = await Promise.all([0, 1].map(async () => (await start(context, memberFile, options)).child))

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
  // A client's k-th message is among the first k + 1 rounds of turns, except for the jobs in hand: those arrive in any
  // order. On a busy machine grants grow old before their calls; each costs its client a turn.
  const returned = new Map<string, number>()
  const rows = await sluice.db.query<{ key: string; n: string }>(
    `select b.key, -sum(l.units) as n from sluice.ledger l join sluice.bucket b on b.id = l.bucket
     where b.name = 'client' and l.units < 0 group by 1`,
  )
  for (const { key, n } of rows) returned.set(key, Number(n))
  const turns = new Map<string, number>()
  for (const [i, { keys }] of arrivals.entries()) {
    const client = String(keys[1])
    const k = (turns.get(client) ?? 0) + 1
    turns.set(client, k)
    if (client !== 'c0') expect(i).toBeLessThan((k + 1 + (returned.get(client) ?? 0)) * clients + 8 * concurrency)
  }
  expect(turns.size).toBe(clients)
  const lastOther = arrivals.findLastIndex(({ keys }) => keys[1] !== 'c0')
  expect(arrivals.slice(0, lastOther).filter(({ keys }) => keys[1] === 'c0').length).toBeLessThanOrEqual(4 * jobsEach)
  const span = (Number(arrivals.at(lastOther)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
  console.log(
    `${lastOther + 1} messages until all others were served, in ${span.toFixed(1)} s; ${arrivals.length} in all; ${returned.size} clients had old grants`,
  )
  await sluice.close()
})
