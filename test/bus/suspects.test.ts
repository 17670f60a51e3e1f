/** Messages whose worker was lost, on a channel that ends. */
import { EventEmitter } from 'node:events'
import { expect, it } from 'vitest'
import type { Incoming } from '../../src/amqp/broker.ts'
import { silent } from '../../src/core/log.ts'
import { Suspects, type SuspectsOptions } from '../../src/bus/suspects.ts'
import { until } from '../until.ts'

/** Suspects on a simulated channel, which is in use until `closed`. */
function suspectsOn(
  channel: EventEmitter,
  more: Pick<SuspectsOptions, 'take'> & Partial<SuspectsOptions>,
  closed?: Promise<void>,
): Suspects {
  const use = async (commands: (on: unknown) => Promise<unknown>) => {
    await commands(channel)
    await closed
  }
  const names = { suspects: 'suspects', formerSuspects: undefined }
  return new Suspects({
    broker: { use } as never,
    names: names as never,
    log: silent,
    free: () => 1,
    synced: async () => {},
    ...more,
  })
}

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
  const taken: Incoming[] = []
  const suspects = suspectsOn(channel, { take: (incoming) => void taken.push(incoming) })
  suspects.look()
  await until(() => taken.length === 1, 'it is taken')
  expect(taken[0]?.ack()).toBe(false)
  expect(taken[0]?.isInHand).toBe(false)
})

it('a message that is put aside while a look at the others ends is taken at once', async () => {
  let [left, looks] = [0, 0]
  let close = () => {}
  const closed = new Promise<void>((resolve) => (close = resolve))
  const channel = Object.assign(new EventEmitter(), {
    async get() {
      looks++
      return left-- > 0 ? { content: Buffer.from('{}'), properties: { headers: {} }, fields: {} } : false
    },
    ack() {},
  })
  const taken: Incoming[] = []
  const suspects = suspectsOn(channel, { take: (incoming) => void taken.push(incoming) }, closed)
  suspects.look()
  await until(() => looks === 1, 'there was none')
  left = 1
  suspects.look()
  close()
  await until(() => taken.length === 1, 'it is taken')
  taken[0]?.ack()
})

it('messages that wait for an answer of other replicas take slots, so that no more than these are fetched', async () => {
  let [left, tag] = [5, 0]
  const channel = Object.assign(new EventEmitter(), {
    async get() {
      const fields = { deliveryTag: ++tag }
      return left-- > 0 ? { content: Buffer.from('{}'), properties: { headers: {} }, fields } : false
    },
    ack() {},
  })
  const answers: (() => void)[] = []
  const suspects = suspectsOn(channel, {
    free: () => 2,
    async take(incoming) {
      await new Promise<void>((resolve) => answers.push(resolve))
      incoming.ack()
    },
  })
  suspects.look()
  await until(() => answers.length >= 2, 'two are taken')
  // After each one it goes on in the next turn.
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(answers).toHaveLength(2)
  answers[0]?.()
  await until(() => answers.length > 2, 'the next one is taken')
  expect(answers).toHaveLength(3)
  suspects.cancel()
  for (const answer of answers) answer()
})
