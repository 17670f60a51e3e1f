/** Messages whose worker was lost, on a channel that ends. */
import { EventEmitter } from 'node:events'
import { expect, it } from 'vitest'
import type { Delivery } from '../../src/amqp/broker.ts'
import { silent } from '../../src/core/log.ts'
import { Suspects } from '../../src/bus/suspects.ts'
import { until } from '../until.ts'

it('messages of a lost worker cannot be settled any more when their channel is over, which is no error', async () => {
  const channel = Object.assign(new EventEmitter(), {
    left: 1,
    async get() {
      return this.left-- > 0 ? { content: Buffer.from('{}'), properties: { headers: {} }, fields: {} } : false
    },
    ack() {
      throw new Error('Channel closed')
    },
  })
  const taken: Delivery[] = []
  const suspects = new Suspects({
    broker: { use: (commands: (on: unknown) => Promise<unknown>) => commands(channel) } as never,
    names: { suspects: 'suspects', formerSuspects: undefined } as never,
    log: silent,
    isFree: () => true,
    take: (delivery) => void taken.push(delivery),
    synced: async () => {},
  })
  suspects.look()
  await until(() => taken.length === 1, 'it is taken')
  expect(taken[0]?.ack()).toBe(false)
  expect(taken[0]?.isInHand).toBe(false)
})
