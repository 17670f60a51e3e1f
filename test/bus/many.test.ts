/** Streams of events to RabbitMQ, which are read no faster than they are confirmed. */
import { expect, it, onTestFinished } from 'vitest'
import { event } from '../../src/index.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { program, stranger } from './stage.ts'

const many = event('many')
const one = event('one')

/** Has RabbitMQ reject what is emitted after the first event. */
async function rejectMany(url: string): Promise<void> {
  const broker = await stranger(url)
  const small = { name: 'small', durable: true, arguments: { 'x-max-length': 1, 'x-overflow': 'reject-publish' } }
  await broker.declare({
    queues: [small],
    bindings: [{ exchange: 'sluice.events', to: { queue: 'small' }, routingKey: 'many' }],
  })
}

it('an emitter emits more than may be unconfirmed at once, in order, and leaves space for others', async () => {
  const { url } = await freshBroker()
  const got: number[] = []
  const handler = many.on((payload) => void got.push((payload as { n: number }).n))
  await program(url, { service: 'a' }, [handler], 1)
  const { events } = await program(url)
  function* payloads() {
    for (let n = 0; n < 300; n++) yield { n, text: 'x'.repeat(100_000) }
  }
  const sent = later(events.emitMany(many, payloads()))
  for (let n = 0; n < 20; n++) await events.emit(one, 'x'.repeat(100_000))
  expect(await sent).toBe(300)
  await until(() => got.length === 300)
  expect(got).toEqual(Array.from({ length: 300 }, (_, n) => n))
})

it('an emitter reads a bounded part of a stream while RabbitMQ is away, and the rest when it is back', async () => {
  const { url } = await freshBroker()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  const got = new Set<unknown>()
  await program(url, { service: 'a' }, [many.on((payload) => void got.add(payload))])
  const emitter = await program(proxy.url(url))
  await emitter.events.emit(many, 'first')
  await proxy.refuse()
  proxy.reset()
  let read = 0
  function* payloads() {
    for (; read < 6_000; read++) yield read
  }
  const sent = later(emitter.events.emitMany(many, payloads()))
  await until(() => read >= 2_500)
  const other = later(emitter.events.emit(many, 'other'))
  expect(read).toBeLessThan(2_750)
  await proxy.pass()
  expect(await sent).toBe(6_000)
  await other
  await until(() => got.size === 6_002)
})

it('an emitter reads no more of a stream of which RabbitMQ does not take an event', async () => {
  const { url } = await freshBroker()
  const emitter = await program(url)
  await emitter.events.emit(one, 1)
  await rejectMany(url)
  let [read, isEnded] = [0, false]
  function* payloads() {
    try {
      for (; read < 20_000; read++) yield read
    } finally {
      isEnded = true
    }
  }
  await expect(emitter.events.emitMany(many, payloads())).rejects.toMatchObject({ code: 'SLUICE_BROKER_NACK' })
  expect(isEnded).toBe(true)
  expect(read).toBeLessThan(20_000)
})

it('an emitter shares the space between many streams of large events', async () => {
  const { url } = await freshBroker()
  const { events } = await program(url, { events: { on: 'rabbitmq', archive: false } })
  await events.emit(many, 'first')
  const text = '€'.repeat(80_000)
  const sent = Array.from({ length: 80 }, () => events.emitMany(many, [text, text]))
  expect(await Promise.all(sent)).toEqual(sent.map(() => 2))
})

it('an emitter names the event that RabbitMQ did not take, and not one after it that is refused', async () => {
  const { url } = await freshBroker()
  const emitter = await program(url)
  await emitter.events.emit(one, 1)
  await rejectMany(url)
  const payloads = [1, 2, 3, 4, 5, 6, 7, 8, 9n]
  await expect(emitter.events.emitMany(many, payloads)).rejects.toMatchObject({ code: 'SLUICE_BROKER_NACK' })
})
