/** The ends of attempts, when RabbitMQ does not take what becomes of their events. */
import { expect, it } from 'vitest'
import { Handling } from '../../src/bus/handling.ts'
import { HeldMessages } from '../../src/bus/held.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { sourcesOf } from '../../src/bus/source.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import { groupsOf } from '../../src/events/groups.ts'
import { event } from '../../src/index.ts'
import { until } from '../until.ts'

it('ends of attempts are reported once, however often RabbitMQ refuses to take the retry', async () => {
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const [source] = sourcesOf(groupsOf([event('orders.paid').on(() => undefined)], 'a'), names)
  if (source === undefined) throw new Error('there is a group')
  const clock = { ...systemClock, sleep: () => new Promise<void>((resolve) => setImmediate(resolve)) }
  const reported: string[] = []
  let [failures, isAcknowledged] = [3, false]
  const handling = new Handling({
    store: { clock, log: silent } as never,
    republisher: {
      async returnLater() {
        if (failures-- > 0) throw new StoreError('SLUICE_BROKER_NACK', 'its queue is full')
      },
    } as never,
    service: 'a',
    outlet: (ended) => ({
      slots: 1,
      kinds: [],
      free: () => 1,
      abort() {},
      start: ([job]: readonly ClaimedJob[]) =>
        void setImmediate(() => ended(job as ClaimedJob, { kind: 'retry', error: '{}', delayMs: 5, tookMs: 1 })),
    }),
    watch: { begun() {}, wants: () => true, ended: (_, { kind }) => void reported.push(kind) },
    held: new HeldMessages(),
    freed() {},
    settled() {},
  })
  const delivery = { isInHand: true, ack: () => (isAcknowledged = true) }
  const progress = {
    type: 'orders.paid',
    attempt: 0,
    failed: 0,
    throttled: 0,
    crashes: 0,
    strays: 0,
    isDoubtful: false,
  }
  const envelope = { id: '1', source: '/s', type: 'orders.paid', time: '', data: 1 }
  handling.handle(
    { key: 'k', source, queue: source.queue, progress, event: envelope, delivery, open: 0 } as never,
    ['orders.paid'],
    true,
  )
  await until(() => isAcknowledged)
  expect(reported).toEqual(['retry'])
})
