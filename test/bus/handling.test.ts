/** Attempts: their slots, and their ends when RabbitMQ does not take what becomes of their events. */
import { expect, it } from 'vitest'
import { Handling } from '../../src/bus/handling.ts'
import { MessagesInHand } from '../../src/bus/messages-in-hand.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { sourcesOf } from '../../src/bus/source.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Outcome } from '../../src/claim/finish/outcome.ts'
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
  const inHand = new MessagesInHand({ clock, log }, () => {})
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

it('a copy of a message in hand is settled with it, and what it was sent on as by itself', () => {
  const settled: string[] = []
  const incoming = (name: string) => ({
    isInHand: true,
    ack: () => settled.push(`ack ${name}`),
    reject: () => settled.push(`reject ${name}`),
  })
  const progress = { handler: 'h' }
  const message = (place: number, name: string) =>
    ({ key: `${place} queue h id `, progress, incoming: incoming(name), open: 0 }) as never
  const take = (place: number, name: string) => inHand.takeCopy(`${place} queue h id `, incoming(name) as never)
  const reported: string[] = []
  const inHand = new MessagesInHand({ clock, log: silent }, (key) => void reported.push(key))
  const [first, next] = [message(1, 'first'), message(2, 'next')]
  inHand.add(first)
  expect([take(1, 'copy'), take(0, 'earlier copy'), take(2, 'next')]).toEqual([true, true, false])
  inHand.add(next)
  Object.assign(first, { isSentOn: true })
  inHand.acknowledge(first)
  expect(settled.splice(0)).toEqual(['ack first', 'ack copy', 'ack earlier copy'])
  // It is in hand still.
  expect([take(1, 'late'), take(2, 'copy'), inHand.look('2 queue h id ')]).toEqual([true, true, 'in hand'])
  inHand.giveBack(next)
  expect(settled.splice(0)).toEqual(['reject next', 'reject late', 'reject copy'])
  expect([inHand.look('1 queue h id '), inHand.look('2 queue h id ')]).toEqual(['handled', undefined])
  inHand.add(next)
  inHand.acknowledge(next)
  expect(inHand.look('9 queue h id ')).toBe('handled')
  expect(reported).toEqual(['1 queue h id ', 'Infinity queue h id '])
})

/** Attempts of the service `a`, in so many slots. */
function attempts(slots: number, returnLater = async () => {}) {
  const reported: string[] = []
  const running: ClaimedJob[] = []
  let end: (job: ClaimedJob, outcome: Outcome) => void = () => {}
  const inHand = new MessagesInHand({ clock, log: silent }, () => {})
  const handling = new Handling({
    store: { clock, log: silent } as never,
    republisher: { returnLater } as never,
    service: 'a',
    outlet(ended) {
      end = ended
      return {
        slots,
        kinds: [],
        free: () => slots - running.length,
        abort() {},
        start: (jobs) => void running.push(...jobs),
      }
    },
    listener: { begun() {}, wants: () => true, ended: (_, { kind }) => void reported.push(kind) },
    inHand,
    freed() {},
    settled() {},
  })
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const handler = (name: string) => event('orders.paid').on(() => undefined, { name, group: 'main' })
  const [source] = sourcesOf(groupsOf([handler('one'), handler('two')], 'a'), names)
  const counts = { attempt: 0, failed: 0, throttled: 0, crashes: 0, strays: 0 }
  return {
    handling,
    inHand,
    reported,
    /** Begins with a message for these handlers. */
    handle(key: string, handlers: readonly string[]) {
      const ack = () => (incoming.isAcknowledged = true)
      const incoming = { isInHand: true, isAcknowledged: false, ack, reject() {} }
      const message = {
        key: `0 ${key}`,
        source,
        queue: source?.queue,
        progress: { type: 'orders.paid', isDoubtful: false, ...counts },
        event: { id: key, source: '/s', type: 'orders.paid', time: '', data: 1 },
        incoming,
        open: 0,
      }
      handling.handle(message as never, handlers, false)
      return incoming
    },
    /** Ends the attempt that began first. */
    end(outcome: Outcome) {
      const job = running.shift()
      if (job !== undefined) end(job, outcome)
    },
  }
}
const done: Outcome = { kind: 'done', result: null, tookMs: 1 }

it('ends of attempts are reported once, however often RabbitMQ refuses to take the retry', async () => {
  let failures = 3
  const { handle, end, inHand, reported } = attempts(1, async () => {
    if (failures-- > 0) throw new StoreError('SLUICE_BROKER_NACK', 'its queue is full')
  })
  const incoming = handle('queue  type id  ', ['one'])
  end({ kind: 'retry', error: '{}', delayMs: 5, tookMs: 1 })
  await until(() => incoming.isAcknowledged)
  expect(reported).toEqual(['retry'])
  // The overview does not show the handler as one that has had it.
  expect(inHand.find('id').handled).toEqual(['0 queue one type id  ', '0 queue  type id  '])
})

it('what an event for several handlers was sent on as is not taken for handled, if Python sends it on for all of them', async () => {
  const { handle, end, inHand } = attempts(2)
  const [failed, handled] = [handle('queue  type failed  ', ['one', 'two']), handle('queue  type done  ', ['one'])]
  end({ kind: 'retry', error: '{}', delayMs: 5, tookMs: 1 })
  end(done)
  await until(() => failed.isAcknowledged)
  end(done)
  await until(() => handled.isAcknowledged)
  const look = (id: string) => [0, 1].map((place) => inHand.look(`${place} queue  type ${id}  `))
  expect([look('failed'), look('done')]).toEqual([
    ['handled', undefined],
    ['handled', 'handled'],
  ])
  // The overview shows who has had it.
  const known = ['0 queue one type failed  ', '0 queue  type failed  ', 'Infinity queue two type failed  ']
  expect(inHand.find('failed').handled).toEqual(known)
})

it('an event that one handler has begun is handled by the other ones, too, though its connection was lost', async () => {
  const { handle, end, inHand, handling, reported } = attempts(2)
  handle('other', ['one'])
  const deliveries = [handle('begun', ['one', 'two']), handle('waiting', ['one'])]
  for (const incoming of deliveries) incoming.isInHand = false
  end(done)
  // Another replica gets both of them again, and looks among the others.
  expect(['begun', 'waiting'].map((key) => inHand.look(`0 ${key}`))).toEqual(['in hand', undefined])
  end(done)
  end(done)
  await until(() => handling.running === 0)
  expect(['begun', 'waiting'].map((key) => inHand.look(`0 ${key}`))).toEqual(['handled', undefined])
  expect(reported).toEqual(['done', 'done', 'done'])
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
