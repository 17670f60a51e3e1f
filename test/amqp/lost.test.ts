/** Connections that are lost while they are being prepared: what waits goes on over the next one. */
import { EventEmitter } from 'node:events'
import { expect, it } from 'vitest'
import { Subscription } from '../../src/amqp/consumer.ts'
import { Publisher } from '../../src/amqp/publisher.ts'
import type { Session } from '../../src/amqp/session.ts'
import { silent } from '../../src/core/log.ts'
import { until } from '../until.ts'

const cause = new Error('it was lost')
const never = new Promise<never>(() => {})

/** A session with this channel. `lost`: when it is lost. */
const sessionWith = (channel: Promise<object>, lost: Promise<Error>) =>
  ({
    model: Object.assign(new EventEmitter(), { createChannel: () => channel, createConfirmChannel: () => channel }),
    lost,
    drop() {},
  }) as unknown as Session

it('a message is published again if its connection was lost just when it could be used', async () => {
  const published: string[] = []
  const closed = Object.assign(new EventEmitter(), {
    publish() {
      throw Object.assign(new Error('Channel closed'), { name: 'IllegalOperationError' })
    },
  })
  const open = Object.assign(new EventEmitter(), {
    publish(_: string, key: string, __: Buffer, ___: object, confirmed: (error: null) => void) {
      published.push(key)
      confirmed(null)
      return true
    },
  })
  const publisher = new Publisher('test')
  const done = publisher.publish({ routingKey: 'queue', body: Buffer.from('x') })
  await publisher.up(sessionWith(Promise.resolve(closed), Promise.resolve(cause)))
  await publisher.up(sessionWith(Promise.resolve(open), never))
  await done
  expect(published).toEqual(['queue'])
})

it.each([
  { what: 'does not open a channel', channel: never },
  {
    what: 'does not answer the consumer',
    channel: Promise.resolve(Object.assign(new EventEmitter(), { prefetch: () => never })),
  },
])('a consumer subscribes on the next connection if the one before is lost and $what', async ({ channel }) => {
  const next = Object.assign(new EventEmitter(), {
    prefetch: async () => {},
    consume: async () => ({ consumerTag: 'tag' }),
    cancel: async () => {},
  })
  const sessions = [
    sessionWith(Promise.resolve(next), Promise.resolve(cause)),
    sessionWith(channel, Promise.resolve(cause)),
    sessionWith(Promise.resolve(next), never),
  ]
  const subscription = new Subscription('queue', { prefetch: 1 }, () => {}, {
    log: silent,
    ready: async () => sessions.shift() ?? never,
    redeclare: async () => {},
    cancelled() {},
  })
  await subscription.open(1_000)
  await until(() => sessions.length === 0 && subscription.isAttached, 'it has subscribed again')
  void subscription.cancel()
})
