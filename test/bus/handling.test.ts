/** Attempts: their slots, and their ends when RabbitMQ does not take what becomes of their events. */
import { expect, it } from 'vitest'
import { Handling } from '../../src/bus/handling.ts'
import { MessagesInHand } from '../../src/bus/messages-in-hand.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { sourcesOf } from '../../src/bus/source.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { logTo, silent } from '../../src/core/log.ts'
import { groupsOf } from '../../src/events/groups.ts'
import { event } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, stranger } from './stage.ts'

const clock = { ...systemClock, sleep: () => new Promise<void>((resolve) => setImmediate(resolve)) }

it('an outage is reported once at its begin and once at its end, however many messages fail in it', async () => {
  const lines: unknown[] = []
  const log = logTo((level, text, details) => lines.push([level, text, details]))
  const inHand = new MessagesInHand({ clock, log })
  const { signal } = new AbortController()
  const outage = async (messages: number) => {
    let [isAway, tries] = [true, 0]
    const act = async () => {
      tries++
      if (isAway) throw new Error('away')
    }
    const all = Array.from({ length: messages }, () => inHand.insist(() => true, act, new Error('lost'), signal))
    await until(() => tries > 5 * messages)
    isAway = false
    return Promise.all(all)
  }
  expect(await outage(3)).toEqual([true, true, true])
  expect(await outage(1)).toEqual([true])
  const begun = ['warn', expect.stringContaining('tried again each second'), { err: new Error('lost') }]
  const over = (failed: number) => ['info', expect.stringContaining('published or stored again'), { failed }]
  expect(lines).toEqual([begun, over(3), begun, over(1)])
})

it('ends of attempts are reported once, however often RabbitMQ refuses to take the retry', async () => {
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const [source] = sourcesOf(groupsOf([event('orders.paid').on(() => undefined)], 'a'), names)
  if (source === undefined) throw new Error('there is a group')
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
    listener: { begun() {}, wants: () => true, ended: (_, { kind }) => void reported.push(kind) },
    inHand: new MessagesInHand({ clock, log: silent }),
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

it('a worker with as many stuck handlers as slots handles what it has in hand as soon as one of them ends', async () => {
  const { url } = await freshBroker()
  let end = () => {}
  const deaf = event('deaf').on(() => new Promise<void>((resolve) => (end = resolve)), {
    timeout: 100,
    retry: { attempts: 1 },
  })
  const got: unknown[] = []
  const next = event('next').on((n) => void got.push(n))
  // The grace of a handler that ignores its signal is 5 s.
  const hasty = {
    ...systemClock,
    after: (ms: number, then: () => void) => systemClock.after(ms > 1_000 ? 20 : ms, then),
  }
  const a = await program(url, { service: 'a', clock: hasty }, [deaf, next], 1)
  await a.events.emit(event('deaf'), 0)
  await until(() => a.lines.some((line) => line.startsWith('as many handlers are stuck')))
  await a.events.emit(event('next'), 1)
  const other = await stranger(url)
  const ready = async () => (await other.findQueue('sluice.events:a:main'))?.messageCount
  await until(async () => (await ready()) === 0, 'the worker has it in hand')
  expect(got).toEqual([])
  end()
  await until(() => got.length === 1)
})
