/** What a worker without a store does with messages that it has not begun when their connection is lost, or when it stops. */
import { expect, it } from 'vitest'
import type { Incoming } from '../../src/amqp/broker.ts'
import type { Reports } from '../../src/claim/outlet.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { logTo } from '../../src/core/log.ts'
import { Hand } from '../../src/direct/hand.ts'
import { limit, task } from '../../src/index.ts'
import { until } from '../until.ts'

/** A message of a task; `more`: how it comes. */
function delivered(id: string, more: Pick<Incoming, 'isRedelivered' | 'isInHand'>): Incoming {
  const properties = { contentType: 'application/json', headers: { task: 'note', id } }
  const own = { body: Buffer.from('[[],{},{}]'), properties, exchange: '', routingKey: 'celery', ...more }
  return { ...own, ack: () => true, reject: () => true } as unknown as Incoming
}

/** A worker that notes what it begins, sends again and counts as lost, on a clock that the test moves. `limiter`: of its one limit */
function noting(slots = 9, limiter?: object) {
  const started: ClaimedJob[] = []
  const crashed: string[] = []
  const back: string[] = []
  const running = new Set<ClaimedJob>()
  const later = { ms: 0 }
  const logged: string[] = []
  /** While it is away, what is lost cannot be reported. */
  const server = { isAway: false, tries: 0 }
  const limits = limiter === undefined ? [] : [limit('crm', { rate: '1/s' })]
  const hand = new Hand({
    clock: {
      ...systemClock,
      monotonicMs: () => systemClock.monotonicMs() + later.ms,
      sleep: () => new Promise<void>((resolve) => setImmediate(resolve)),
    },
    log: logTo((level, text) => logged.push(`${level}: ${text}`)),
    labels: {},
    tasks: new Map([['note', task('note', { limits, mode: 'at-most-once', run: () => undefined })]]),
    limits: limiter && { limiter, bookings: { findBooked: () => undefined } },
    ends: {
      reportBegun() {},
      async handleCrash({ message }: { message: { id: string } }) {
        server.tries++
        if (server.isAway) throw new StoreError('SLUICE_BROKER_UNREACHABLE', 'it is away')
        crashed.push(message.id)
      },
      sendLater: async ({ message }: { message: { id: string } }) => void back.push(message.id),
      endAttempt: async () => {},
    },
    onReceived() {},
    onDenied() {},
    listener: { begun() {}, wants: () => false, ended() {} },
    outlet: (reports: Reports) => ({
      slots,
      kinds: [],
      free: () => slots - running.size,
      start(jobs: ClaimedJob[]) {
        started.push(...jobs)
        for (const job of jobs) running.add(job)
      },
      abort(job: ClaimedJob) {
        running.delete(job)
        void reports.ended(job, { kind: 'unused' })
      },
    }),
  } as never)
  const take = (id: string, more: Parameters<typeof delivered>[1]) => hand.take(delivered(id, more), 'celery')
  return { hand, take, started, crashed, back, later, logged, server }
}

it('a worker begins waiting messages when they come again, as what no worker has begun', async () => {
  const { take, started, crashed } = noting()
  take('unread', { isRedelivered: false, isInHand: false })
  // Another worker had this one before.
  take('begun', { isRedelivered: true, isInHand: false })
  for (const id of ['unread', 'begun']) take(id, { isRedelivered: true, isInHand: true })
  await until(() => started.length + crashed.length === 2)
  expect(started.map(({ id, ambiguous }) => [id, ambiguous])).toEqual([['unread', false]])
  expect(crashed).toEqual(['begun'])
})

it('a worker counts a message that comes again long after the connection is back as what a lost worker may have begun', async () => {
  const { hand, take, started, crashed, later } = noting()
  for (const id of ['soon', 'late']) take(id, { isRedelivered: false, isInHand: false })
  await until(() => hand.size === 0, 'they have gone back')
  // While the server was away.
  later.ms = 3_600_000
  take('soon', { isRedelivered: true, isInHand: true })
  await until(() => started.length === 1)
  later.ms += 60_000
  take('late', { isRedelivered: true, isInHand: true })
  await until(() => started.length + crashed.length === 2)
  expect(crashed).toEqual(['late'])
})

it('a worker logs once that what became of its messages cannot be sent, and once that it is', async () => {
  const { hand, take, crashed, logged, server } = noting()
  server.isAway = true
  for (const id of ['a', 'b', 'c']) take(id, { isRedelivered: true, isInHand: true })
  await until(() => server.tries > 9, 'each is tried again')
  expect(logged).toEqual([expect.stringMatching(/^warn: what became of messages/)])
  server.isAway = false
  await until(() => hand.size === 0, 'all are sent')
  expect(crashed.toSorted()).toEqual(['a', 'b', 'c'])
  expect(logged.slice(1)).toEqual([expect.stringMatching(/^info: no end of a message/)])
})

it('a worker begins no messages that wait for a slot when what runs is stopped at once', async () => {
  const { hand, take, started, back } = noting(1)
  for (const id of ['runs', 'waits']) take(id, { isRedelivered: false, isInHand: true })
  await until(() => started.length === 1 && hand.entries('reserved').length === 1, 'one runs, and one waits')
  hand.handBack(new Error('the worker stops'))
  await until(() => hand.size === 0, 'nothing is in hand')
  expect(started.map(({ id }) => id)).toEqual(['runs'])
  expect(back).toEqual(['waits'])
})

it('a worker begins no message that is granted only when it is to stop, and gives the grant back', async () => {
  let grant = () => {}
  const returned: unknown[] = []
  const { hand, take, started, back } = noting(1, {
    take: () =>
      new Promise(
        (resolve) => (grant = () => resolve({ id: 'g', requestedAt: 0, got: [{ granted: 1, lifeMs: 1_000 }] })),
      ),
    refund: (...given: unknown[]) => returned.push(given),
    freePlaces() {},
  })
  const none = grant
  take('late', { isRedelivered: false, isInHand: true })
  await until(() => grant !== none, 'its grant is requested')
  const stopping = hand.stop()
  grant()
  await stopping
  expect(started).toEqual([])
  expect(back).toEqual(['late'])
  expect(returned).toEqual([['g', ['crm'], [1]]])
})
