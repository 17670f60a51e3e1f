/** Connections that are lost while they are being prepared: what waits goes on over the next one. */
import { EventEmitter } from 'node:events'
import type { Duplex } from 'node:stream'
import { expect, it, onTestFinished } from 'vitest'
import { addressOf } from '../../src/amqp/address.ts'
import { noTraffic } from '../../src/amqp/traffic.ts'
import { Publisher } from '../../src/amqp/publisher.ts'
import { openSession, type Session } from '../../src/amqp/session.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later } from '../until.ts'
import { open as connected } from './stage.ts'

const cause = new Error('it was lost')
const never = new Promise<never>(() => {})

/** A session with this channel. `lost`: when it is lost. */
const sessionWith = (channel: Promise<object>, lost: Promise<Error>) =>
  ({
    model: Object.assign(new EventEmitter(), { createChannel: () => channel, createConfirmChannel: () => channel }),
    lost,
    drop() {},
  }) as unknown as Session

/** A channel that confirms each message, and the queues of those. */
function confirming() {
  const published: string[] = []
  const channel = Object.assign(new EventEmitter(), {
    publish(_: string, key: string, __: Buffer, ___: object, confirmed: (error: null) => void) {
      published.push(key)
      confirmed(null)
      return true
    },
  })
  return { published, channel: Promise.resolve(channel) }
}

const message = { routingKey: 'queue', body: Buffer.from('x') }

it('a message is published again if its connection was lost just when it could be used', async () => {
  const closed = Object.assign(new EventEmitter(), {
    publish() {
      throw Object.assign(new Error('Channel closed'), { name: 'IllegalOperationError' })
    },
  })
  const { published, channel } = confirming()
  const publisher = new Publisher('test', noTraffic())
  const done = publisher.publish(message)
  await publisher.useConnection(sessionWith(Promise.resolve(closed), Promise.resolve(cause)))
  await publisher.useConnection(sessionWith(channel, never))
  await done
  expect(published).toEqual(['queue'])
})

it('the only message under way when a part of the server failed is published again, and is in doubt if that fails again', async () => {
  const silent = () => Promise.resolve(Object.assign(new EventEmitter(), { publish: () => true }))
  const failed = Promise.resolve(Object.assign(new Error('INTERNAL_ERROR'), { code: 541 }))
  const { published, channel } = confirming()
  const publisher = new Publisher('test', noTraffic())
  const done = later(publisher.publish(message))
  await publisher.useConnection(sessionWith(silent(), failed))
  await publisher.useConnection(sessionWith(channel, never))
  await done
  expect(published).toEqual(['queue'])
  const other = new Publisher('test', noTraffic())
  const doubtful = later(other.publish(message))
  for (const _ of [1, 2]) await other.useConnection(sessionWith(silent(), failed))
  await expect(doubtful).rejects.toMatchObject({ code: 'SLUICE_BROKER_SILENT' })
})

it('a command whose channel cannot be opened any more has the error of a broker that is away', async () => {
  const { url } = await freshBroker()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  const broker = await connected(proxy.url(url))
  proxy.strand()
  const used = broker.use((channel) => channel.checkQueue('none'))
  proxy.reset()
  await expect(used).rejects.toMatchObject({ name: 'StoreError', code: 'SLUICE_BROKER_UNREACHABLE' })
})

it('nobody waits for heartbeats over a socket that was closed without an error', async () => {
  const { url } = await freshBroker()
  const session = await openSession(addressOf(`${url}?heartbeat=60`), 'test', 0)
  const channel = await session.model.createChannel()
  const answers = [session.model.createChannel(), channel.checkQueue('none'), channel.prefetch(1)].map((answer) =>
    answer.then(
      () => 'answered',
      () => 'over',
    ),
  )
  const { stream } = session.model.connection as unknown as { stream: Duplex }
  stream.destroy()
  expect(await Promise.all(answers)).toEqual(['over', 'over', 'over'])
  expect(await session.lost).toBeInstanceOf(Error)
})
