/** Messages through a real RabbitMQ: confirmed, routed, refused, received. */
import { type AddressInfo, connect, createServer } from 'node:net'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { isLong } from '../long.ts'
import type { Incoming } from '../../src/amqp/broker.ts'
import { type Broker as Host, freshBroker } from '../servers/rabbitmq.ts'
import { startProxy } from '../servers/proxy.ts'
import { later, until } from '../until.ts'
import { collect, open, to } from './stage.ts'

let host: Host
beforeAll(async () => void (host = await freshBroker()))

async function throughProxy() {
  const proxy = await startProxy({ port: Number(new URL(host.url).port) })
  onTestFinished(() => proxy.close())
  return { proxy, url: proxy.url(host.url) }
}

describe('a broker', () => {
  it('carries messages with their properties, on the exchanges and queues that were declared', async () => {
    const broker = await open(host.url)
    await broker.declare({
      exchanges: [{ name: 'events', type: 'topic' }],
      queues: [{ name: 'mail' }],
      bindings: [{ exchange: 'events', to: { queue: 'mail' }, routingKey: 'order.#' }],
    })
    const got: unknown[] = []
    await broker.consume('mail', { prefetch: 10 }, (one) => {
      const { headers, correlationId, priority } = one.properties
      got.push({ text: one.body.toString(), headers, correlationId, priority, key: one.routingKey, from: one.exchange })
      one.ack()
    })
    const headers = { retries: 200, big: 2n ** 40n, ratio: 0.5, name: 'é', tags: [1, null], nested: { on: true } }
    await broker.publish({
      exchange: 'events',
      routingKey: 'order.paid',
      body: Buffer.from('1'),
      properties: { headers, correlationId: 'c', priority: 3 },
    })
    await until(() => got.length === 1)
    expect(got).toEqual([
      {
        text: '1',
        headers: { ...headers, big: 2 ** 40 },
        correlationId: 'c',
        priority: 3,
        key: 'order.paid',
        from: 'events',
      },
    ])
    expect(broker.isUp).toBe(true)
  })

  it('rejects a message that no queue takes, unless it may be dropped', async () => {
    const broker = await open(host.url)
    await expect(broker.publish(to('nobody', '1'))).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNROUTED' })
    await broker.publish(to('nobody', '1', { mandatory: false }))
  })

  it('rejects a message that a full queue does not take', async () => {
    const broker = await open(host.url)
    const full = { 'x-max-length': 1, 'x-overflow': 'reject-publish' }
    await broker.declare({ queues: [{ name: 'narrow', arguments: full }] })
    await broker.publish(to('narrow', '1'))
    await expect(broker.publish(to('narrow', '2'))).rejects.toMatchObject({ code: 'SLUICE_BROKER_NACK' })
  })

  it('finds the one message that the server refuses among many, and delivers the others', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'mixed' }] })
    const { texts } = await collect(broker, 'mixed')
    const sent = Array.from({ length: 30 }, (_, i) =>
      later(broker.publish({ ...to('mixed', String(i)), ...(i === 7 ? { exchange: 'missing' } : {}) })),
    )
    await expect(sent[7]).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
    await Promise.all(sent.filter((_, i) => i !== 7))
    await until(() => new Set(texts).size === 29)
    await broker.publish(to('mixed', 'after'))
    const once = { ...to('mixed', 'once'), exchange: 'missing', isOnce: true }
    await expect(broker.publish(once)).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
  })

  it('rejects what it cannot send in time, and says whether it may have arrived', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    await broker.declare({ queues: [{ name: 'slow' }] })
    proxy.strand()
    const sent = later(broker.publish(to('slow', '1', { withinMs: 200 })))
    await expect(sent).rejects.toMatchObject({ code: 'SLUICE_BROKER_SILENT' })
    await proxy.refuse()
    proxy.reset()
    await until(() => !broker.isUp)
    const unsent = broker.publish(to('slow', '2', { withinMs: 200 }))
    await expect(unsent).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
  })

  it('says that a message may have arrived, when it finds no queue only after its connection was lost', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    const other = await open(host.url)
    await other.declare({ queues: [{ name: 'brief', autoDelete: true }] })
    const { texts, consumer } = await collect(other, 'brief')
    const swallowed = proxy.swallow({ when: 'the only one' })
    const sent = later(broker.publish(to('brief', 'the only one')))
    await swallowed
    await until(() => texts.length === 1)
    await consumer.cancel()
    proxy.reset()
    await expect(sent).rejects.toMatchObject({ code: 'SLUICE_BROKER_SILENT' })
  })

  it('takes a bounded number of messages while there is no connection, and sends those when it is back', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    await broker.declare({ queues: [{ name: 'bounded' }] })
    await proxy.refuse()
    proxy.reset()
    await until(() => !broker.isUp)
    const sent = Array.from({ length: 5_000 }, (_, i) => later(broker.publish(to('bounded', String(i)))))
    await expect(broker.publish(to('bounded', 'more'))).rejects.toMatchObject({ code: 'SLUICE_BROKER_FULL' })
    await proxy.pass()
    await Promise.all(sent)
    const { texts } = await collect(broker, 'bounded', 1_000)
    await until(() => texts.length === 5_000)
    expect(texts).toEqual(Array.from({ length: 5_000 }, (_, i) => String(i)))
    expect(broker.lines.filter((line) => line.startsWith('warn'))).toHaveLength(1)
  })

  it('loses nothing when its connections break again and again', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    await broker.declare({ queues: [{ name: 'cut' }] })
    const { texts } = await collect(broker, 'cut', 50)
    for (let round = 0; round < 4; round++) {
      const cut = proxy.cutAfter(20_000 + 7_000 * round, round % 2 === 0 ? 'client' : 'server')
      await Promise.all(Array.from({ length: 1_000 }, (_, i) => broker.publish(to('cut', `${round}-${i}`))))
      await cut
    }
    await until(() => new Set(texts).size === 4_000)
  })
})

it('a broker opens a connection although the server sends a heartbeat before its answer', async ({
  onTestFinished,
}) => {
  const [answer, heartbeat] = [Buffer.from([0, 10, 0, 41]), Buffer.from([8, 0, 0, 0, 0, 0, 0, 0xce])]
  let heartbeats = 0
  const slow = createServer((client) => {
    const server = connect(Number(new URL(host.url).port))
    server.on('data', (bytes) => {
      if (heartbeats === 0 && bytes.includes(answer)) client.write(heartbeat, () => heartbeats++)
      client.write(bytes)
    })
    client.pipe(server).on('error', () => {})
    client.on('error', () => {}).on('close', () => server.destroy())
  })
  await new Promise<void>((done) => slow.listen(0, '127.0.0.1', done))
  onTestFinished(() => void slow.close())
  const url = new URL(host.url)
  url.port = String((slow.address() as AddressInfo).port)
  expect((await open(url.href)).isUp).toBe(true)
  expect(heartbeats).toBe(1)
})

describe('the end', () => {
  it('of a broker and of a consumer comes although the server does not answer', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    await broker.declare({ queues: [{ name: 'silent' }] })
    const { consumer } = await collect(broker, 'silent')
    proxy.strand()
    const drained = consumer.drain()
    await broker.close()
    await drained
    await expect(broker.publish(to('silent', '1'))).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  })

  it('of a broker is the end of a consumer that is just beginning', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'ending' }] })
    await collect(broker, 'ending')
    const begun = later(broker.consume('ending', { prefetch: 1 }, () => {}))
    await broker.close()
    await expect(begun).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  })
})

describe('declarations', () => {
  it('are refused one by one', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'plain' }] })
    const other = { queues: [{ name: 'plain', arguments: { 'x-max-length': 5 } }] }
    await expect(broker.declare(other)).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
    expect(await broker.findQueue('missing')).toBeUndefined()
    // The server ends the connection, which comes back.
    const unknown = { exchanges: [{ name: 'odd', type: 'x-none' as 'topic' }] }
    await expect(broker.declare(unknown)).rejects.toThrow(/the exchange "odd".*503/)
    await broker.declare({ queues: [{ name: 'plain' }] })
    await broker.publish(to('plain', '1'))
    // The bindings around a refused one are there; each is tried by itself then.
    const bind = (queue: string, routingKey: string) => ({ exchange: 'amq.topic', to: { queue }, routingKey })
    const some = { bindings: [bind('plain', 'a'), bind('nowhere', 'b'), bind('plain', 'c')] }
    await expect(broker.declare(some)).rejects.toThrow(/queue "nowhere" to the exchange "amq.topic" by "b".*404/)
    const relay = { exchange: 'amq.topic', to: { exchange: 'amq.fanout' }, routingKey: 'd' }
    await broker.declare({ bindings: [relay, { exchange: 'amq.fanout', to: { queue: 'plain' } }, bind('plain', 'e')] })
    for (const routingKey of ['a', 'd', 'e'])
      await broker.publish({ exchange: 'amq.topic', routingKey, body: Buffer.from('1') })
  })

  it('with a name that AMQP cannot carry are refused at once', async () => {
    const broker = await open(host.url)
    const name = 'x'.repeat(256)
    const refused = { code: 'SLUICE_BROKER_REFUSED' }
    await expect(broker.declare({ queues: [{ name }] })).rejects.toMatchObject(refused)
    const binding = { exchange: 'amq.topic', to: { exchange: 'amq.fanout' }, routingKey: name }
    await expect(broker.declare({ bindings: [binding] })).rejects.toMatchObject(refused)
    await expect(broker.consume(name, { prefetch: 1 }, () => {})).rejects.toMatchObject(refused)
    expect(await broker.findQueue(name)).toBeUndefined()
  })

  it('fail where no channel is left, and work when one is', async () => {
    const broker = await open(host.url)
    await broker.use(async ({ connection }) => {
      const limited = connection as unknown as { channelMax: number }
      const { channelMax } = limited
      limited.channelMax = 2
      const topology = { queues: [{ name: 'late' }] }
      await expect(broker.declare(topology)).rejects.toThrow(/No channels left/)
      await expect(broker.declare(topology)).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
      limited.channelMax = channelMax
      await broker.declare(topology)
    })
  })

  it('are repeated on each connection, those that are refused by now left out', async () => {
    const { proxy, url } = await throughProxy()
    const broker = await open(url)
    await broker.declare({
      queues: [{ name: 'changed' }, { name: 'brief', durable: false }, { name: 'own', exclusive: true }],
      exchanges: [{ name: 'brief', type: 'fanout', durable: false }],
      bindings: [
        { exchange: 'brief', to: { queue: 'brief' } },
        { exchange: 'brief', to: { queue: 'own' } },
      ],
    })
    const { texts, consumer } = await collect(broker, 'own')
    await broker.publish({ exchange: 'brief', routingKey: '', body: Buffer.from('1') })
    await until(() => texts.length === 1)
    const admin = await open(host.url)
    await proxy.refuse()
    proxy.reset()
    await until(async () => {
      const left = await host.evaluate(
        `length([Q || Q <- rabbit_amqqueue:list(<<"${host.name}">>), element(4, element(2, Q)) =:= <<"own">>])`,
      )
      return left === '0'
    })
    for (const name of ['changed', 'brief']) await deleteQueue(name)
    await admin.declare({ queues: [{ name: 'changed', arguments: { 'x-max-length': 5 } }] })
    await proxy.pass()
    await until(() => broker.isUp && consumer.isAttached)
    await broker.publish({ exchange: 'brief', routingKey: '', body: Buffer.from('2') })
    await until(() => texts.length === 2)
    expect(await broker.findQueue('brief')).toBeDefined()
    expect(broker.lines.filter((line) => /^error .*"changed".*406/.test(line)).length).toBeGreaterThan(0)
  })
})

describe('a consumer', () => {
  it('is refused if there is no such queue, and needs a prefetch', async () => {
    const broker = await open(host.url)
    const refused = broker.consume('nowhere', { prefetch: 1 }, () => {})
    await expect(refused).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
    const unbounded = broker.consume('nowhere', { prefetch: 0 }, () => {})
    await expect(unbounded).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('has at most its prefetch in hand, which can change', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'ahead' }] })
    await Promise.all(Array.from({ length: 20 }, (_, i) => broker.publish(to('ahead', String(i)))))
    const held: { ack(): boolean }[] = []
    const consumer = await broker.consume('ahead', { prefetch: 2 }, (one) => held.push(one))
    await until(() => consumer.inHand === 2)
    await consumer.setPrefetch(5)
    await until(() => consumer.inHand === 7)
    expect(held.splice(0).map((one) => one.ack())).toEqual(Array(7).fill(true))
    await until(() => consumer.inHand === 5)
    const drained = consumer.drain()
    expect(held[0]?.ack()).toBe(true)
    expect(held[0]?.ack()).toBe(false)
    for (const one of held.slice(1)) one.ack()
    await drained
    expect(consumer.inHand).toBe(0)
    expect(held).toHaveLength(5)
  })

  it('acknowledges messages of one time together, and none that it did not acknowledge', async () => {
    const { proxy, url } = await throughProxy()
    const [broker, other] = [await open(url), await open(host.url)]
    await broker.declare({ queues: [{ name: 'together' }] })
    for (let i = 0; i < 8; i++) await other.publish(to('together', String(i)))
    const held: Incoming[] = []
    const consumer = await broker.consume('together', { prefetch: 8 }, (one) => held.push(one))
    await until(() => held.length === 8)
    for (const i of [5, 0, 1, 3]) expect(held[i]?.ack()).toBe(true)
    await consumer.flushAcks()
    held[2]?.reject({ requeue: true })
    await until(() => held.length === 9)
    expect(held[6]?.ack()).toBe(true)
    await consumer.flushAcks()
    proxy.reset()
    await until(() => held.length === 12)
    const again = held.slice(8).map((one) => `${one.body.toString()} ${one.isRedelivered}`)
    expect([again[0], again.slice(1).toSorted()]).toEqual(['2 true', ['2 true', '4 true', '7 true']])
  })

  // Points of test/celery's list of conformance (scripts/conformance.mjs) begin with their number.
  it('44: subscribes again when its queue was deleted', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'deleted' }] })
    const { texts, consumer } = await collect(broker, 'deleted')
    await deleteQueue('deleted')
    await until(() => !consumer.isAttached)
    await until(() => consumer.isAttached)
    await broker.publish(to('deleted', '1'))
    await until(() => texts.length === 1)
  })

  it('gives a refused message to the dead-letter exchange, or back to the queue', async () => {
    const broker = await open(host.url)
    const dead = { 'x-dead-letter-exchange': '', 'x-dead-letter-routing-key': 'dead' }
    await broker.declare({ queues: [{ name: 'alive', arguments: dead }, { name: 'dead' }] })
    const { texts } = await collect(broker, 'dead')
    const seen: boolean[] = []
    await broker.consume('alive', { prefetch: 1 }, (one) => {
      seen.push(one.isRedelivered)
      one.reject({ requeue: !one.isRedelivered })
    })
    await broker.publish(to('alive', '1'))
    await until(() => texts.length === 1)
    expect(seen).toEqual([false, true])
  })

  it('gives a message back whose handler throws, and goes on', async () => {
    const broker = await open(host.url)
    await broker.declare({ queues: [{ name: 'thrown' }] })
    const seen: string[] = []
    await broker.consume('thrown', { prefetch: 2 }, async (one) => {
      seen.push(one.body.toString())
      if (one.body.toString() === 'bad' && !one.isRedelivered) throw new Error('not this one')
      one.ack()
    })
    await broker.publish(to('thrown', 'bad'))
    await broker.publish(to('thrown', 'good'))
    await until(() => seen.length === 3)
    expect(broker.lines.filter((line) => line.startsWith('error'))).toHaveLength(1)
  })

  it('is found to be half-open by both sides within 10 s, and nothing is lost', async () => {
    const { proxy, url } = await throughProxy()
    const [broker, other] = [await open(url), await open(host.url)]
    await broker.declare({ queues: [{ name: 'half' }] })
    const held: unknown[] = []
    await broker.consume('half', { prefetch: 1 }, (one) => held.push(one))
    await other.publish(to('half', '1'))
    await until(() => held.length === 1)
    const startMs = systemClock.monotonicMs()
    proxy.strand()
    const sent = later(broker.publish(to('half', '2')))
    const { texts } = await collect(other, 'half')
    await sent
    await until(() => texts.length + held.length >= 3)
    if (isLong) expect(systemClock.monotonicMs() - startMs).toBeLessThan(10_000)
  })
})

async function deleteQueue(name: string): Promise<void> {
  const found = `{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"${host.name}">>, queue, <<"${name}">>))`
  await host.evaluate(`${found}, rabbit_amqqueue:delete(Q, false, false, <<"test">>), ok`)
}
