/** A RabbitMQ that takes no messages, because it lacks memory, or that lets nobody keep a message for long. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import { QueueArchive } from '../../src/bus/archive.ts'
import { systemClock } from '../../src/core/clock.ts'
import { event, fail, on } from '../../src/index.ts'
import { type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { program, stranger } from './stage.ts'

const paid = event('orders.paid')
// One server for these tests, which run one after the other: to start one takes six seconds of a core.
let server: RabbitServer
let url: string
beforeAll(async () => void (server = await startRabbit()))
afterAll(() => server.close())
beforeEach(async () => void ({ url } = await server.fresh()))
afterEach(async () => {
  await giveMemory()
  await server.evaluate('application:set_env(rabbit, consumer_timeout, 1800000)')
})

const giveMemory = () => server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 4000000000})')

/** Connections that are opened from now on may keep a message for so many ms. */
async function limitPatience(ms: number): Promise<void> {
  await server.evaluate(`application:set_env(rabbit, consumer_timeout, ${ms})`)
  await server.evaluate('application:set_env(rabbit, channel_tick_interval, 100)')
}

/** The archive of the service `a`, which keeps a message for so many ms at most. */
async function archiveOf(keptMs: number) {
  const broker = await stranger(url)
  return new QueueArchive({ broker: async () => broker, queue: 'sluice.archive:a', clock: systemClock, keptMs })
}

it('one that lacks memory does not hold up the start of a service in a process that has emitted, which goes on when it takes messages again', async () => {
  const got: unknown[] = []
  const handler = paid.on((n) => void got.push(n))
  const before = await program(url, { service: 'a' }, [handler])
  await before.worker?.stop()
  const a = await program(url, { service: 'a' })
  await a.events.emit(paid, 0)
  await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000})')
  await until(async () => (await server.evaluate('rabbit_alarm:get_alarms()')).includes('memory'), 'it lacks memory')
  const emitted: Promise<unknown>[] = []
  // The server blocks a connection that publishes.
  await until(async () => {
    const one = later(a.events.emit(paid, 1 + emitted.length))
    emitted.push(one)
    return Promise.race([one.then(() => false), server.evaluate('1').then(() => true)])
  }, 'the server takes nothing more')
  await a.work([handler])
  await giveMemory()
  await Promise.all(emitted)
  await until(() => got.length === emitted.length + 1, 'all is handled')
  expect(new Set(got).size).toBe(got.length)
})

it('an archive is gone through by a visitor who needs longer for one event than RabbitMQ lets anybody keep a message', async () => {
  const failing = paid.on((n) => Promise.reject(fail(`no ${String(n)}`)))
  const a = await program(url, { service: 'a' }, [failing])
  await a.events.emitMany(paid, [1, 2, 3, 4])
  await until(async () => (await a.events.archive().count()) === 4)
  await a.worker?.stop()
  await limitPatience(3_000)
  const other = await stranger(url)
  await other.declare({ queues: [{ name: 'kept' }] })
  await other.publish({ routingKey: 'kept', body: Buffer.from('x') })
  /** Resolves when RabbitMQ has closed a channel whose message was kept for as long. */
  const timeout = () =>
    other
      .use(async (channel) => {
        await channel.get('kept')
        await new Promise(() => {})
      })
      .then(
        () => 'open',
        () => 'closed',
      )
  const archive = await archiveOf(300)
  const seen: unknown[] = []
  const visited = await archive.each({}, async (one) => {
    seen.push(one.event?.data)
    if (seen.length === 2) expect(await timeout()).toBe('closed')
  })
  expect(visited).toBe(4)
  expect(seen).toEqual([1, 2, 3, 4])
  expect(await archive.discard({})).toBe(4)
})

it('an archive is gone through slowly, longer than RabbitMQ lets anybody keep a message', async () => {
  const work = [on('orders.*', (_, { event: { type } }) => Promise.reject(fail(`no ${type}`)), { name: 'book' })]
  const a = await program(url, { service: 'a' }, work)
  for (let n = 0; n < 12; n++) await a.events.emit(event(n % 2 ? 'orders.odd' : 'orders.even'), n)
  await until(async () => (await a.events.archive().count()) === 12)
  await limitPatience(1_000)
  const archive = await archiveOf(200)
  expect(await archive.discard({ event: 'orders.odd' }, { rate: '2/s' })).toBe(6)
  expect((await archive.list()).map((one) => one.event?.data)).toEqual([0, 2, 4, 6, 8, 10])
})
