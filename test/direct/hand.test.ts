/** What a worker without a store does with messages whose connection is lost before it has read them. */
import { expect, it } from 'vitest'
import type { Delivery } from '../../src/amqp/broker.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { Hand } from '../../src/direct/hand.ts'
import { task } from '../../src/index.ts'
import { until } from '../until.ts'

/** A message of a task; `more`: how it comes. */
function delivered(id: string, more: Pick<Delivery, 'isRedelivered' | 'isInHand'>): Delivery {
  const properties = { contentType: 'application/json', headers: { task: 'note', id } }
  const own = { body: Buffer.from('[[],{},{}]'), properties, exchange: '', routingKey: 'celery', ...more }
  return { ...own, ack: () => true, reject: () => true } as unknown as Delivery
}

it('begins them when they come again, as what no worker has begun', async () => {
  const started: ClaimedJob[] = []
  const crashed: string[] = []
  const hand = new Hand({
    clock: systemClock,
    log: silent,
    labels: {},
    tasks: new Map([['note', task('note', { mode: 'at-most-once', run: () => undefined })]]),
    limits: undefined,
    ends: { began() {}, crashed: async ({ message }: { message: { id: string } }) => void crashed.push(message.id) },
    received() {},
    denied() {},
    watch: { begun() {}, wants: () => false, ended() {} },
    outlet: () => ({
      slots: 9,
      kinds: [],
      free: () => 9,
      start: (jobs: ClaimedJob[]) => started.push(...jobs),
      abort() {},
    }),
  } as never)
  hand.take(delivered('unread', { isRedelivered: false, isInHand: false }), 'celery')
  // Another worker had this one before.
  hand.take(delivered('begun', { isRedelivered: true, isInHand: false }), 'celery')
  for (const id of ['unread', 'begun']) hand.take(delivered(id, { isRedelivered: true, isInHand: true }), 'celery')
  await until(() => started.length + crashed.length === 2)
  expect(started.map(({ id, ambiguous }) => [id, ambiguous])).toEqual([['unread', false]])
  expect(crashed).toEqual(['begun'])
})
