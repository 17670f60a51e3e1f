/** The archive of a service as a queue that others change, and whose messages may come from anywhere. */
import { beforeEach, expect, it } from 'vitest'
import { QueueArchive, receivedOf } from '../../src/bus/archive.ts'
import { keyOf, progressOf } from '../../src/bus/message.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { readQueues } from '../../src/bus/queue-watch.ts'
import { Republisher } from '../../src/bus/republisher.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { event, fail } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
const queue = 'sluice.archive:a'
let host: Broker
beforeEach(async () => {
  host = await freshBroker()
})

/** An archive as a program of another host sees it, whose clock is ahead by so many ms. */
async function archiveOf(url: string, aheadMs = 0, keptMs = 600_000) {
  const broker = await stranger(url)
  const clock = { ...systemClock, wallMs: () => systemClock.wallMs() + aheadMs }
  return new QueueArchive({ broker: async () => broker, queue, clock, keptMs })
}

it('an archive has what no service got, and publishes it once more when there are handlers', async () => {
  const got: unknown[] = []
  const emitter = await program(host.url, { service: 'b' })
  await emitter.events.emitMany(paid, [1, 2])
  await emitter.events.emit(event('nobody.gets.it'), 3)
  const lost = emitter.events.archive('sluice.unrouted')
  await until(async () => (await lost.count()) === 3)
  expect(await lost.list({ event: 'orders.paid' })).toMatchObject(
    [1, 2].map((data) => ({ reason: 'unrouted', event: { data } })),
  )
  await program(host.url, { service: 'a' }, [paid.on((n, { redelivered }) => void got.push([n, redelivered]))])
  expect(await lost.replay({})).toBe(3)
  await until(() => got.length === 2)
  expect(got.toSorted((a, b) => String(a).localeCompare(String(b)))).toEqual([
    [1, false],
    [2, false],
  ])
  await until(async () => (await lost.count()) === 1)
  expect(await lost.discard({ event: 'nobody.gets.it' })).toBe(1)
})

it('an archive is as full as its number of messages says, where the oldest has no time', async () => {
  const broker = await stranger(host.url)
  const names = new ServiceNames('a', { isQuorum: false, isCelery: false, archive: { keepMs: 60_000, most: 100 } })
  await broker.declare({ queues: [{ name: queue }] })
  await broker.publish({ routingKey: queue, body: Buffer.from('{}') })
  const store = { clock: systemClock, log: silent }
  const republisher = new Republisher({ broker, names, ...store })
  const values = new Map<string, number>()
  const evaluate = (alarm: string, _: string, value: number) => void values.set(alarm, value)
  await readQueues({ store, broker, names, republisher, alarms: { evaluate }, look() {} })
  expect(values.get('archive')).toBe(1)
})

it('an archive deletes the events that it has waited for, though their messages were given back meanwhile', async () => {
  const failing = paid.on((n) => Promise.reject(fail(`no ${String(n)}`)))
  const a = await program(host.url, { service: 'a' }, [failing])
  await a.events.emitMany(paid, [1, 2, 3])
  await until(async () => (await queuesOf(host)).get(queue) === 3)
  await a.worker?.stop()
  const archive = await archiveOf(host.url, 0, 20)
  expect(await archive.discard({}, { rate: '10/s' })).toBe(3)
  expect((await queuesOf(host)).get(queue)).toBe(0)
})

it('an archive replays each event once, though the clocks of its workers are an hour behind', async () => {
  const attempts: number[] = []
  const failing = paid.on((_, { attempt }) => {
    attempts.push(attempt)
    throw fail('never')
  })
  const a = await program(host.url, { service: 'a' }, [failing])
  await a.events.emitMany(paid, [1, 2, 3])
  await until(async () => (await queuesOf(host)).get(queue) === 3)
  const archive = await archiveOf(host.url, 3_600_000)
  const stop = new AbortController()
  const onProgress = ({ done }: { done: number }) => void (done > 3 && stop.abort())
  let replayed = 0
  // The worker's own look at the archive hides what it has in hand.
  await until(async () => {
    replayed = await archive.replay({}, { signal: stop.signal, onProgress, rate: '5/s' })
    return replayed >= 3
  })
  expect(replayed).toBe(3)
  await until(() => attempts.length >= 6)
})

it('an archive shows what stands behind an event of a worker whose clock is ahead, and what another program wrote there', async () => {
  const a = await program(host.url, { service: 'a' }, [paid.on(() => undefined)])
  await a.worker?.stop()
  const other = await stranger(host.url)
  const inMs = (ms: number) => new Date(Date.now() + ms).toISOString()
  const kept = { reason: 'exhausted', error: { message: 'no' }, queue: 'q' }
  const failures: unknown[] = [
    { ...kept, at: inMs(3_600_000) },
    { ...kept, at: inMs(-1_000) },
    { ...kept, at: 'yesterday' },
    { ...kept, at: inMs(-1_000), reason: 7 },
    null,
    'not ours',
  ]
  for (const [n, failure] of failures.entries()) {
    const headers = { 'sluice-failure': typeof failure === 'string' ? failure : JSON.stringify(failure) }
    const properties = { contentType: 'application/json', messageId: String(n), headers }
    await other.publish({ routingKey: queue, body: Buffer.from(String(n)), properties })
  }
  const archive = await archiveOf(host.url)
  const found = await archive.list()
  expect(found.map(({ id, reason }) => [id, reason])).toEqual([
    ['0', 'exhausted'],
    ['1', 'exhausted'],
    ...['2', '3', '4', '5'].map((id) => [id, 'refused']),
  ])
  expect(found.every(({ at }) => Number.isFinite(at.getTime()))).toBe(true)
  expect(await archive.discard({})).toBe(6)
  expect(await archive.count()).toBe(0)
})

it('an archive has the events of other programs by their own ids, also those whose time is none, and refuses such a time in a filter', async () => {
  const { events } = await program(host.url)
  const lost = events.archive('sluice.unrouted')
  expect(await lost.count()).toBe(0)
  const other = await stranger(host.url)
  for (const time of ['yesterday', null, {}]) {
    const envelope = { specversion: '1.0', id: 'x', source: '/other', type: 'nobody.gets.it', time, data: 1 }
    const properties = { contentType: 'application/cloudevents+json', messageId: 'x' }
    const body = Buffer.from(JSON.stringify(envelope))
    await other.publish({ exchange: 'sluice.events', routingKey: 'nobody.gets.it', body, properties })
  }
  const envelope = { specversion: '1.0', id: 'of the event', source: '/other', type: 'nobody.gets.it', data: 1 }
  const properties = { contentType: 'application/cloudevents+json', messageId: 'of the message' }
  const body = Buffer.from(JSON.stringify(envelope))
  await other.publish({ exchange: 'sluice.events', routingKey: 'nobody.gets.it', body, properties })
  expect(await lost.list({ id: envelope.id })).toHaveLength(1)
  expect(await lost.discard({ id: envelope.id })).toBe(1)
  const at = new Date(0)
  expect(await lost.list()).toMatchObject([{ at }, { at }, { at }])
  expect(await events.show('x')).toMatchObject({ at })
  const since = new Date(Number.NaN)
  await expect(lost.discard({ since })).rejects.toMatchObject({ code: 'SLUICE_BAD_FILTER' })
  expect(await lost.discard({})).toBe(3)
})

it('an archive replays what a worker in Python has given up so that no replay is taken for an earlier one', async () => {
  const broker = await stranger(host.url)
  const recovery = 'a:recover'
  await broker.declare({
    exchanges: [{ name: recovery, type: 'topic' }],
    queues: [{ name: queue }, { name: 'again' }],
    bindings: [{ exchange: recovery, to: { queue: 'again' }, routingKey: '#' }],
  })
  let nowMs = systemClock.wallMs()
  const clock = { ...systemClock, wallMs: () => nowMs++ }
  const archive = new QueueArchive({ broker: async () => broker, queue, recovery, clock })
  // Celery has dropped what was known of it.
  const properties = { contentType: 'application/json', headers: { task: 'orders.paid', id: 'i', retries: 2 } }
  const keys = new Set<string | undefined>()
  for (let times = 0; times < 2; times++) {
    await broker.publish({ routingKey: queue, body: Buffer.from('[[], {}, {}]'), properties })
    expect(await archive.replay({})).toBe(1)
    const message = await broker.use((channel) => channel.get('again', { noAck: true }))
    if (message === false) throw new Error('it was not replayed')
    keys.add(keyOf('q', receivedOf(message) as never, progressOf(receivedOf(message))))
  }
  expect([keys.size, keys.has(undefined)]).toEqual([2, false])
})
