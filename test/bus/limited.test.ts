/** Events of handlers with limits, which wait in the service's own store. */
import { beforeEach, expect, it } from 'vitest'
import { ServiceConsumer } from '../../src/bus/consumer.ts'
import type { Incoming } from '../../src/amqp/broker.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { sourcesOf } from '../../src/bus/source.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import { groupsOf } from '../../src/events/groups.ts'
import { event, type EventHandler } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
beforeEach(async () => {
  host = await freshBroker()
})
const isEmpty = async () => [...(await queuesOf(host)).values()].every((count) => count === 0)

it('events are all handled, though another program gives all of its messages one id, or a second source has the ids of a first', async () => {
  const got: unknown[] = []
  await program(host.url, { service: 'a' }, [
    paid.on((n, { event: { id, source } }) => void got.push([n, id, source]), { concurrency: 5 }),
  ])
  const other = await stranger(host.url)
  const send = (body: unknown, properties: object) =>
    other.publish({
      exchange: 'sluice.events',
      routingKey: 'orders.paid',
      body: Buffer.from(JSON.stringify(body)),
      properties,
    })
  for (const n of [1, 2]) await send(n, { contentType: 'application/json', messageId: 'same' })
  for (const source of ['/x', '/y']) {
    const envelope = { specversion: '1.0', id: '1', source, type: 'orders.paid', data: 3 }
    await send(envelope, { contentType: 'application/cloudevents+json', messageId: `1${source}` })
  }
  await until(isEmpty, 'all are taken')
  await until(() => got.length === 4, 'all are handled')
  expect(got).toEqual(
    expect.arrayContaining([
      [1, 'same', '/plain'],
      [2, 'same', '/plain'],
      [3, '1', '/x'],
      [3, '1', '/y'],
    ]),
  )
})

it('events are flagged if their worker may have had them, and nothing shows whether it had', async () => {
  const got: unknown[] = []
  const handler = paid.on((n, { redelivered }) => void got.push([n, redelivered]), { concurrency: 5, group: 'main' })
  const a = await program(host.url, { service: 'a' }, [handler])
  await a.worker?.stop()
  const other = await stranger(host.url)
  for (const n of [1, 2])
    await other.publish({ exchange: 'sluice.events', routingKey: 'orders.paid', body: Buffer.from(String(n)) })
  const dying = await stranger(host.url)
  let isTaken = false
  await dying.consume('sluice.events:a:main', { prefetch: 1 }, () => void (isTaken = true))
  await until(() => isTaken, 'a worker has the first')
  await dying.close()
  await program(host.url, { service: 'a' }, [handler])
  await until(() => got.length === 2)
  expect(got).toEqual(
    expect.arrayContaining([
      [1, true],
      [2, false],
    ]),
  )
})

/** A consumer of a service with this handler, whose store is away for the first `failures` sends; messages that it is given. */
async function consumerOf(handler: EventHandler, failures: number, beforeConsuming?: () => Promise<void>) {
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const sources = sourcesOf(groupsOf([handler], 'a'), names)
  const clock = { ...systemClock, sleep: () => new Promise<void>((resolve) => setImmediate(resolve)) }
  const sent: unknown[] = []
  const settled: string[] = []
  let take: (incoming: Incoming) => unknown = () => undefined
  const broker = {
    consume: async (_: string, __: object, onMessage: typeof take) => {
      take = onMessage
      await beforeConsuming?.()
      return { cancel: async () => {}, flushAcks: async () => {} }
    },
    use: async () => undefined,
  }
  const outlet = { slots: 1, kinds: [], free: () => 1, start: () => void settled.push('begun'), abort() {} }
  const consumer = new ServiceConsumer({
    store: { clock, log: silent } as never,
    broker: broker as never,
    service: 'a',
    sources,
    republisher: { names } as never,
    takesPlain: true,
    concurrency: 10,
    outlet: () => outlet,
    lost: () => ({ kind: 'unused' }),
    listener: { begun() {}, ended() {}, wants: () => false },
    sender: {
      send: async (_: unknown, { event: { data } }: { event: { data: unknown } }) => {
        await new Promise((resolve) => setImmediate(resolve))
        if (failures-- > 0) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'it is away')
        sent.push(data)
        return 'id'
      },
    } as never,
  })
  const opened = consumer.open([])
  if (beforeConsuming === undefined) await opened
  const deliver = (data: unknown) => {
    let isInHand = true
    const settle = (how: string) => {
      settled.push(how)
      isInHand = false
      return true
    }
    const incoming = {
      body: Buffer.from(JSON.stringify(data)),
      properties: { contentType: 'application/json' },
      exchange: '',
      routingKey: 'orders.paid',
      isRedelivered: false,
      get isInHand() {
        return isInHand
      },
      ack: () => settle('ack'),
      reject: () => settle('reject'),
    }
    void Promise.resolve(take(incoming as never)).catch(() => incoming.reject())
  }
  return { consumer, sent, settled, deliver }
}

it('events stay in hand while the store is away, because a quorum queue counts how often a message goes back', async () => {
  const { sent, settled, deliver } = await consumerOf(
    paid.on(() => undefined, { concurrency: 5 }),
    12,
  )
  for (const n of [1, 2, 3]) deliver(n)
  await until(() => settled.length === 3)
  expect(settled).toEqual(['ack', 'ack', 'ack'])
  expect(new Set(sent)).toEqual(new Set([1, 2, 3]))
})

it('events keep their order if their handler has one, though the store is away for some of them', async () => {
  const { sent, settled, deliver } = await consumerOf(
    paid.on(() => undefined, { order: 'account' }),
    5,
  )
  const all = [1, 2, 3, 4].map((n) => ({ n, account: 'x' }))
  for (const data of all) deliver(data)
  await until(() => settled.length === 4)
  expect(sent).toEqual(all)
  expect(settled).toEqual(['ack', 'ack', 'ack', 'ack'])
})

it('events go back when their worker has to end while the store is away', async () => {
  const { consumer, sent, settled, deliver } = await consumerOf(
    paid.on(() => undefined, { order: 'account' }),
    1e9,
  )
  for (const n of [1, 2]) deliver({ n, account: 'x' })
  await consumer.abort(new Error('the worker ends'))
  await consumer.stop()
  await until(() => settled.length === 2)
  expect([sent, settled]).toEqual([[], ['reject', 'reject']])
})

it('events go back if they arrive when their worker has stopped, though it has not begun to consume', async () => {
  const begun = new Promise<void>(() => {})
  const { consumer, settled, deliver } = await consumerOf(
    paid.on(() => undefined),
    0,
    () => begun,
  )
  await consumer.stop()
  deliver(1)
  expect(settled).toEqual(['reject'])
})
