/**
 * The proof that the sources call for, over a real RabbitMQ: the same rate with 1 worker and with 8, nothing exceeded at the vendor,
 * few deliveries for each task, and never more in the broker than there are free slots.
 */
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { silent } from '../../src/core/log.ts'
import { Sluice } from '../../src/sluice.ts'
import { rule } from '../../src/tasks/rule.ts'
import { isLong } from '../long.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'
import { createFleet, note, ring, ringVendor } from './processes.ts'

let broker: Broker
beforeAll(async () => void (broker = await freshBroker()))

describe('a fleet behind one limit', () => {
  it(
    'calls at the same rate with 1 worker and with 8, and delivers a task once',
    { timeout: isLong ? 900_000 : 300_000 },
    async (context) => {
      const tasks = isLong ? 5_000 : 120
      const fleet = await createFleet(broker.url, context)
      const api = ringVendor()
      const url = await api.listen()
      context.onTestFinished(() => api.close())
      const [warm, rates] = [60, [] as number[]]
      let done = 0
      for (const workers of [1, 8]) {
        const said: string[] = []
        const log = { ...silent, info: (text: string) => void said.push(text) }
        const sluice = await Sluice.open({ store: fleet.url, amqp: broker.url, log })
        context.onTestFinished(() => sluice.close())
        const dispatcher = await sluice.dispatch([ring])
        const process = await fleet.start('execute', 5, broker.url, workers)
        await until(() => dispatcher.slots === 5 * workers, 'all workers are there')
        // On a busy machine the lives of grants have to follow first.
        await fleet.sluice.sendMany(ring, Array(warm).fill({ url }))
        await fleet.areDone((done += warm))
        const before = await fleet.attempts()
        api.wipe()
        await fleet.sluice.sendMany(ring, copies(tasks, { url }))
        done += tasks
        await until(async () => (await fleet.count('done')) === done, 'all are done', isLong ? 400_000 : 180_000)
        const arrivals = api.arrivals()
        const { vendor429, rules, duplicates } = api.report()
        expect({ vendor429, exceeded: rules[0]?.exceeded, duplicates }).toEqual({
          vendor429: 0,
          exceeded: 0,
          duplicates: 0,
        })
        // On a busy machine a worker may be taken for lost: each call is an attempt in the record, nevertheless.
        expect(arrivals.length).toBeGreaterThanOrEqual(tasks)
        expect(arrivals.length).toBeLessThanOrEqual(isLong ? tasks : (await fleet.attempts()) - before)
        // The first ones are the bucket's.
        const early = tasks / 2
        const [first, last] = [arrivals[early], arrivals.at(-1)]
        rates.push(((tasks - early - 1) / ((last?.atNs ?? 0) - (first?.atNs ?? 0))) * 1e9)
        process.kill('SIGTERM')
        await until(() => process.exitCode !== null, 'the workers have left')
        await dispatcher.stop()
        await sluice.close()
        const [, sent, received, delivered] =
          /published (\d+) messages, received (\d+) .* of (\d+) jobs/.exec(said.join()) ?? []
        const each = Number(delivered) / (tasks + warm)
        if (isLong)
          console.log(
            `${workers} workers: ${rates.at(-1)?.toFixed(1)}/s, ${each} deliveries and ` +
              `${((Number(sent) + Number(received)) / (tasks + warm)).toFixed(2)} messages a task`,
          )
        expect(each).toBeGreaterThanOrEqual(1)
        expect(each).toBeLessThanOrEqual(isLong ? 1.2 : 2)
      }
      const [one = 0, eight = 0] = rates
      expect(Math.abs(eight / one - 1)).toBeLessThan(isLong ? 0.05 : 0.4)
      expect((await fleet.sluice.verify()).exceeded).toEqual([])
    },
  )

  it('has no more in the broker than its workers have free slots, with 24 queues, a dozen rules, and spikes', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const rules = Array.from({ length: 12 }, (_, n) =>
      rule<{ key: string }>(`r${n}`, {
        when: ({ input }) => input.key === `k${n}`,
        do: { queue: `q${n}`, priority: n % 3 },
      }),
    )
    const sender = await Sluice.open({ store: fleet.url, rules })
    context.onTestFinished(() => sender.close())
    await fleet.start('dispatch')
    await fleet.start('execute', 10, broker.url, 2)
    const own = await openBroker({ url: broker.url, name: 'test', log: silent })
    context.onTestFinished(() => own.close())
    const [spikes, spikeJobs] = [6, isLong ? 3_500 : 100]
    let [free, isOver] = [20, false]
    const looks: { atMs: number; free: number; depth: number; claimed: string[] }[] = []
    const look = async () => {
      const freeBefore = free
      const rows = await fleet.sluice.db.query<{ queue: string }>(
        `select left(s, -37) as queue from sluice.worker, unnest(stints) s`,
      )
      let depth = 0
      for (const { queue } of rows) depth += (await own.use((channel) => channel.checkQueue(queue))).messageCount
      const claimed = await fleet.sluice.db.query<{ id: string }>('select id from sluice.job where claim is not null')
      const of = { depth, claimed: claimed.map(({ id }) => id) }
      looks.push({ ...of, atMs: Date.now(), free: Math.max(freeBefore, free) })
      return isOver
    }
    // Some jobs go on through the first spikes, and take most of the slots.
    const held = copies(13, { gate: fleet.gate, key: 'k0' })
    await sender.sendMany(note, held, { queue: 'q0' })
    await until(() => fleet.runs.length === held.length, 'they have begun')
    free -= held.length
    const looking = later(vi.waitUntil(look, { timeout: 900_000, interval: 20 }))
    const queue = (input: unknown) => `q${(input as { key: string }).key.slice(1)}`
    const isDone = (n: number) => until(async () => (await fleet.count('done')) >= n, `${n} jobs are done`)
    const spike = Array.from({ length: spikeJobs }, (_, n) => ({ key: `k${n % 24}` }))
    for (let n = 1; n <= spikes; n++) {
      await sender.sendMany(note, spike, { queue })
      await isDone((n - 0.5) * spikeJobs)
      if (n !== spikes / 2) continue
      await isDone(n * spikeJobs)
      free += held.length
      fleet.open()
    }
    await fleet.areDone(spikes * spikeJobs + held.length)
    isOver = true
    await looking
    // A job is claimed before it is in the broker. What has begun has left it; its end may not be recorded yet.
    const begunMs = new Map(fleet.runs.map(({ id, atMs }) => [id, atMs]))
    const found = looks.map((one) => {
      const waiting = one.claimed.filter((id) => (begunMs.get(id) ?? Infinity) > one.atMs).length
      return { depth: one.depth, waiting, free: one.free }
    })
    const least = Math.min(...found.map((one) => one.free))
    if (isLong) console.log({ looks: found.length, least, most: Math.max(...found.map((one) => one.waiting)) })
    expect(found.filter(({ depth, waiting }) => Math.max(depth, waiting) > 0).length).toBeGreaterThan(0)
    expect(found.filter((one) => Math.max(one.depth, one.waiting) > one.free)).toEqual([])
    const queues = await sender.db.query('select distinct queue from sluice.done')
    expect(queues.length).toBe(24)
  })
})
