/** What `sluice events list` and `show` know of services on RabbitMQ. */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { directory } from '../../src/bus/entries.ts'
import { listServices } from '../../src/bus/overview.ts'
import { idMs } from '../../src/core/hash.ts'
import { event, fail, newId, on, retryIn } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, stranger } from './stage.ts'
import { brief } from '../v8.ts'

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url))
const paid = event('orders.paid')

it('the overview lists services with handlers, retries by step and archived events, and shows where an event is', async () => {
  const { url } = await freshBroker()
  const failing = paid.on(
    (n) => {
      if (n === 'later') throw new Error('not yet')
      if (n === 'never') throw fail('no such order')
    },
    { name: 'book', retry: { attempts: 3, base: '1h', max: '1h' } },
  )
  const a = await program(url, { service: 'a' }, [failing, on('orders.#', () => undefined, { name: 'audit' })])
  const b = await program(url, { service: 'b' }, [paid.on(() => undefined)])
  // The entry of a process that started earlier makes room.
  await program(url, { service: 'a' }, [failing])
  const [later, never, done] = [
    await a.events.emit(paid, 'later'),
    await a.events.emit(paid, 'never'),
    await a.events.emit(paid, 'done'),
  ]
  await b.worker?.stop()
  const emitter = await program(url)
  const lost = await emitter.events.emit(event('nobody.gets.it'), 1)
  const step = { stepMs: 3_600_000, count: 1 }
  await until(async () => {
    const [first] = await emitter.events.services()
    return first?.archived === 1 && first.retrying.length === 1
  })
  const book = { handler: 'book', pattern: 'orders.paid', queue: 'sluice.events:a:book', waiting: 0, isLive: true }
  expect(await emitter.events.services()).toMatchObject([
    { service: 'a', handlers: [book], retrying: [step], archived: 1 },
    { service: 'b', handlers: [{ handler: 'orders.paid', isLive: false }], retrying: [], archived: 0 },
  ])
  expect(await emitter.events.show(later)).toMatchObject({
    event: { id: later, data: 'later' },
    deliveries: [{ service: 'a', handler: 'book', job: null, state: 'scheduled', reason: 'retry', attempt: 1 }],
  })
  expect(await emitter.events.show(never)).toMatchObject({
    deliveries: [{ service: 'a', state: 'failed', reason: 'refused', error: { message: 'no such order' } }],
  })
  expect(await emitter.events.show(lost)).toMatchObject({ routed: 0, deliveries: [] })
  // The worker that has handled it in `b` has stopped.
  const known = { event: { id: done, type: 'orders.paid' }, at: new Date(idMs(done)), routed: 2 }
  await until(async () => (await emitter.events.show(done)) !== undefined, 'it is handled')
  const named = { service: 'a', handler: 'book', job: null, attempt: null, reason: null, error: null }
  expect(await emitter.events.show(done)).toEqual({ ...known, deliveries: [{ ...named, state: 'done' }] })
  expect(await emitter.events.show(newId())).toBeUndefined()
  const env = { ...process.env, SLUICE_EVENTS: 'rabbitmq', AMQP_URL: url, DATABASE_URL: a.url, NO_COLOR: '1' }
  const { stdout } = await promisify(execFile)(process.execPath, [...brief, main, 'events', 'list'], { env })
  expect(stdout).toMatch(/orders\.paid +a +a, b +- +-\n/)
  expect(stdout).toMatch(/a +book +orders\.paid +0 +1 for 60 min +1 +live/)
})

it('the overview shows what workers know of an event: who handles or has handled it, and not who tries it later', async () => {
  const { url } = await freshBroker()
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const later = () => {
    // No step of the backoff.
    throw retryIn(7_000_000)
  }
  const a = await program(url, { service: 'a' }, [
    paid.on(() => undefined, { name: 'one' }),
    paid.on(later, { name: 'two' }),
    paid.on(() => done, { name: 'three', group: 'slow' }),
  ])
  const id = await a.events.emit(paid, 1)
  const show = async () => {
    const { routed, deliveries = [] } = (await a.events.show(id)) ?? {}
    return [routed, ...deliveries.map(({ handler, state }) => `${handler} ${state}`)]
  }
  await until(async () => String(await show()) === '3,one done,three running')
  const env = { ...process.env, SLUICE_EVENTS: 'rabbitmq', AMQP_URL: url, DATABASE_URL: a.url, NO_COLOR: '1' }
  const { stdout } = await promisify(execFile)(process.execPath, [...brief, main, 'events', 'show', id], { env })
  expect(stdout).toMatch(/data +in no queue of RabbitMQ any more\n/)
  expect(stdout).toMatch(/ {2}a one: done\n {2}a three: running\n {2}1 other handler: still to come, or handled, and/)
  finish()
  await until(async () => String(await show()) === '3,one done,three done')
})

it('the overview reads what it understands of the entries that other programs and other releases have left', async () => {
  const { url } = await freshBroker()
  const other = await stranger(url)
  await (await program(url, { service: 'a' }, [paid.on(() => undefined)])).worker?.stop()
  const known = { handler: 'h', pattern: 'x.*', queue: 'q' }
  const entries = [
    {
      service: 'b',
      at: new Date(0).toISOString(),
      handlers: [null, 1, known],
      former: [null, known],
      steps: [{}, null],
    },
    { service: 'a', at: new Date(0).toISOString(), handlers: [null], former: 'none', steps: [] },
    { service: 'c', handlers: [] },
    'text',
  ]
  for (const entry of entries)
    await other.publish({ routingKey: 'sluice.services', body: Buffer.from(JSON.stringify(entry)) })
  const got: unknown[] = []
  const a = await program(url, { service: 'a' }, [paid.on((n) => void got.push(n))])
  await a.events.emit(paid, 1)
  await until(() => got.length === 1)
  expect(await a.events.services()).toMatchObject([
    { service: 'a', handlers: [{ handler: 'orders.paid' }] },
    { service: 'b', handlers: [known], retrying: [] },
  ])
})

it('the overview looks once at the queue that handlers share', async () => {
  const broker = await stranger((await freshBroker()).url)
  expect(await listServices(broker, 'sluice.events')).toEqual([])
  const handlers = ['a', 'b', 'c'].map((handler) => ({ handler, pattern: `x.${handler}`, queue: 'q' }))
  const entry = { service: 's', at: new Date(0).toISOString(), handlers, steps: [], archive: null }
  await broker.publish({ routingKey: directory, body: Buffer.from(JSON.stringify(entry)) })
  const queues: string[] = []
  broker.findQueue = async (queue) => void queues.push(queue)
  expect(await listServices(broker, 'sluice.events')).toMatchObject([{ service: 's', handlers }])
  expect(queues).toEqual(['q'])
})
