/** Workers with a store keep a limit over what a Python producer sends; in the long form at the same rate with 1 and with 8. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { openProducer } from '../../src/celery/index.ts'
import { createUnrelated, quantile, startRecorder } from '../direct/fleet.ts'
import { mostIn } from '../direct/stage.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { startProducer } from './stage.ts'
import { member } from '../v8.ts'

const file = fileURLToPath(new URL('caller.mjs', import.meta.url))
const tasks = isLong ? 5_000 : 200
const fleets = isLong ? [1, 8] : [2]
/** So many unrelated tasks of the same queue are sent right behind the others, and as many while those wait. */
const free = isLong ? 200 : 20

/** Has the server count what it delivers on connections from now on; the function resolves to how many messages of `celery` that were. */
async function countDeliveries({ name, evaluate }: Broker) {
  const collect = (what: string) => evaluate(`application:set_env(rabbit, collect_statistics, ${what})`)
  await collect('fine')
  const counts =
    `[element(4, C) + element(5, C) || C <- ets:tab2list(channel_queue_metrics), ` +
    `{resource, <<"${name}">>, queue, <<"celery">>} =:= element(2, element(1, C))]`
  return { read: async () => Number(await evaluate(`lists:sum(${counts})`)), end: () => collect('none') }
}

/** Has a Python producer send tasks under 100/s, and so many workers execute them; returns what the vendor and the store saw. */
async function prove(workers: number) {
  const [broker, { url: store }, vendor] = await Promise.all([freshBroker(), freshDatabase(), startRecorder()])
  const deliveries = await countDeliveries(broker)
  const python = await startProducer(broker.url)
  const node = await openProducer({ broker: broker.url, results: 'none' })
  const unrelated = createUnrelated(node, vendor)
  const sluice = await Sluice.open({ store })
  /** Sends so many unrelated tasks while no others wait; returns how long they wait. */
  const sendAlone = async (count: number) => {
    const some = createUnrelated(node, vendor)
    await some.send(count)
    await until(() => vendor.arrivals.length === count, 'all are called')
    const waits = some.waits()
    vendor.arrivals.length = 0
    return waits
  }
  const children = Array.from({ length: workers }, () =>
    fork(file, [store, broker.url, vendor.url, '10'], { execArgv: member }),
  )
  try {
    await Promise.all(children.map((child) => once(child, 'message')))
    // Twice, because a process that has just started plans and compiles what it does for the first time.
    const alone = [await sendAlone(free), await sendAlone(free)][1] ?? []
    await python.ask('many', { task: 'call', n: tasks })
    await unrelated.send(free)
    await unrelated.send(free, isLong ? 100 : 30)
    await until(async () => (await sluice.jobs.status()).done >= tasks + 4 * free, 'all are done', 180_000)
    const [row] = await sluice.db.query<{ calls: number; attempts: number }>(
      `select (select count(*) from sluice.celery_call)::int as calls,
        (select sum(attempt) from sluice.done)::int as attempts`,
    )
    const { exceeded } = await sluice.verify()
    const called = vendor.arrivals.filter(({ what }) => what === 'call').toSorted((a, b) => a.atMs - b.atMs)
    return {
      ...row,
      exceeded,
      arrivals: called,
      waits: unrelated.waits(),
      alone,
      // Connections that are closed count no more.
      deliveries: await deliveries.read(),
    }
  } finally {
    for (const child of children) child.kill('SIGTERM')
    await Promise.all(children.map(async (child) => child.exitCode ?? (await once(child, 'exit'))))
    python.close()
    vendor.close()
    await Promise.all([node.close(), sluice.close(), deliveries.end()])
  }
}

it(
  `tasks of a Python producer under 100/s are executed once, by ${fleets.join(' and by ')} workers`,
  { timeout: 600_000 },
  async () => {
    const rates: number[] = []
    for (const workers of fleets) {
      const { calls, attempts, exceeded, arrivals, waits, alone, deliveries } = await prove(workers)
      const times = arrivals.map(({ atMs }) => atMs)
      // Each message became one job, and each job began once.
      const all = tasks + 4 * free
      expect({ calls, attempts, waits: waits.length, exceeded }).toEqual({
        calls: all,
        attempts: all,
        waits: 2 * free,
        exceeded: [],
      })
      expect(arrivals.map(({ n }) => n).toSorted((a, b) => a - b)).toEqual(Array.from({ length: tasks }, (_, n) => n))
      const most = mostIn(times, 1_000)
      expect(most).toBeLessThanOrEqual(100)
      expect(deliveries / all).toBeGreaterThanOrEqual(1)
      expect(deliveries / all).toBeLessThanOrEqual(isLong ? 1.2 : 2)
      // The first ones are the bucket's.
      const late = times.slice(tasks / 2)
      rates.push(((late.length - 1) * 1_000) / ((late.at(-1) ?? 0) - (late[0] ?? 0)))
      const groups = [alone, waits.slice(0, free), waits.slice(free)]
      const [base = 0, behind, beside] = groups.map((group) => quantile(group, 0.99))
      if (!isLong) continue
      console.log({ workers, most, perS: rates.at(-1), deliveries: deliveries / all, alone: base, behind, beside })
      // So much later than without the others: what eight workers do at the same time on two cores is no delay by those.
      expect(behind).toBeLessThanOrEqual(base + 250)
      expect(beside).toBeLessThanOrEqual(base + 250)
    }
    const [one = 0, eight = one] = rates
    if (isLong) expect(Math.abs(eight / one - 1)).toBeLessThan(0.05)
  },
)
