/** What workers, connections and copies do to an event: nothing is lost, counted twice, or repeated without a flag. */
import { beforeEach, expect, it, onTestFinished } from 'vitest'
import type { Headers } from '../../src/amqp/headers.ts'
import { event, type EventHandler, newId, type SluiceOptions, snooze } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { startProxy } from '../servers/proxy.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const slow = event('slow')
let host: Broker
let url: string
beforeEach(async () => {
  host = await freshBroker()
  ;({ url } = host)
})
const isEmpty = async () => [...(await queuesOf(host)).values()].every((count) => count === 0)
const queue = 'sluice.events:a:main'

/** Declares the queue of a service, without anybody who handles its events. */
async function declared(handler: EventHandler, events: SluiceOptions['events'] = 'rabbitmq') {
  const a = await program(url, { service: 'a', events }, [handler])
  await a.worker?.stop()
  return a
}

/** Returns a function that publishes the event `slow`, with a number as its payload, and in its id. */
async function sender() {
  const other = await stranger(url)
  return (n: number, headers: Headers = {}, to: { exchange?: string; routingKey: string } = fresh) => {
    const id = `00000000-0000-4000-8000-00000000000${n}`
    const body = Buffer.from(JSON.stringify({ specversion: '1.0', id, source: '/s', type: 'slow', data: n }))
    const properties = { contentType: 'application/cloudevents+json', messageId: id, headers }
    return other.publish({ ...to, body, properties })
  }
}
const fresh = { exchange: 'sluice.events', routingKey: 'slow' }
const again = { 'sluice-again': true } as const
/** The header of an event that was tried once. */
const triedOnce = (more: object) => {
  const counts = { attempt: 1, failed: 1, throttled: 0, crashes: 0, strays: 0, isDoubtful: false }
  return { 'sluice-history': JSON.stringify({ ...counts, type: 'slow', ...more }) }
}

/** Takes so many messages of a queue, as a worker that has begun none; `die` loses it. */
async function taken(count: number, from = queue) {
  const dying = await stranger(url)
  let seen = 0
  await dying.consume(from, { prefetch: count }, () => void seen++)
  await until(() => seen === count, 'a worker has them')
  return { die: () => dying.close() }
}

it('a service handles one of two copies of an event, when one comes back while the other one is in hand', async () => {
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const got: unknown[] = []
  const handler = slow.on(async (_, { redelivered }) => {
    got.push(redelivered)
    await done
  })
  const a = await declared(handler)
  const id = newId()
  for (const _ of [1, 2]) await a.events.emit(slow, 1, { id })
  const other = await taken(1)
  await program(url, { service: 'a' }, [handler])
  await until(() => got.length === 1)
  await other.die()
  const observer = await stranger(url)
  await until(async () => (await observer.findQueue(queue))?.messageCount === 0, 'the other one is here, too')
  finish()
  await until(isEmpty, 'each is acknowledged')
  expect(got).toEqual([false])
})

it('a service does not handle again what it has handled, when its acknowledgement was lost', async () => {
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  const got: unknown[] = []
  const a = await program(proxy.url(url), { service: 'a' }, [
    slow.on(async (n) => {
      got.push(n)
      if (n === 1) proxy.strand()
    }),
  ])
  const emitter = await program(url)
  await emitter.events.emit(slow, 1)
  await until(() => got.length === 1)
  await until(() => a.worker !== undefined && got.length === 1)
  await new Promise((resolve) => setImmediate(resolve))
  proxy.reset()
  await until(isEmpty, 'it is acknowledged')
  await emitter.events.emit(slow, 2)
  await until(() => got.includes(2))
  expect(got).toEqual([1, 2])
})

it('a service does not handle again what a replica has handled, when RabbitMQ brings it to another one', async () => {
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const got: unknown[] = []
  const handler = slow.on(async (n) => {
    got.push(n)
    if (n === 'long') await done
  })
  const first = await program(url, { service: 'a' }, [handler], 1)
  const id = newId()
  await first.events.emit(slow, 'short', { id })
  await until(() => got.length === 1)
  await first.events.emit(slow, 'long')
  await until(() => got.length === 2, 'the first one takes nothing more')
  // A RabbitMQ that was killed has forgotten an acknowledgement.
  await first.events.emit(slow, 'short', { id })
  const other = await taken(1)
  await program(url, { service: 'a' }, [handler], 1)
  await other.die()
  const waiting = async () => (await queuesOf(host)).get(queue)
  await until(async () => (await waiting()) === 1, 'the second one has acknowledged it')
  finish()
  await until(isEmpty)
  expect(got).toEqual(['short', 'long'])
})

it('an event that a replica has in hand is left to it, when another replica that waits for it stops', async () => {
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const got: unknown[] = []
  const handler = slow.on(async (n) => {
    got.push(n)
    await done
  })
  const first = await program(url, { service: 'a' }, [handler], 1)
  const id = newId()
  await first.events.emit(slow, 'long', { id })
  await until(() => got.length === 1, 'the first one takes nothing more')
  // A copy stands for the event that RabbitMQ brings again.
  await first.events.emit(slow, 'long', { id })
  const other = await taken(1)
  const second = await program(url, { service: 'a' }, [handler], 1)
  await other.die()
  const observer = await stranger(url)
  const isTaken = async () => (await observer.findQueue(queue))?.messageCount === 0
  await until(isTaken, 'the second one waits')
  await second.worker?.stop()
  await program(url, { service: 'a' }, [handler], 1)
  await until(isTaken, 'the third one has it')
  finish()
  await until(isEmpty)
  expect(got).toEqual(['long'])
})

it('a process does not handle again what it has handled, when the emitter missed the confirmation and sent it again', async () => {
  const got: unknown[] = []
  await program(url, { service: 'a' }, [slow.on((n, { redelivered }) => void got.push([n, redelivered]))])
  const send = await sender()
  await send(1)
  await until(() => got.length === 1)
  await send(1, again)
  // Its first copy has arrived nowhere, or at another process.
  await send(2, again)
  await until(() => got.length === 2)
  await until(isEmpty, 'each copy is acknowledged')
  expect(got).toEqual([
    [1, false],
    [2, true],
  ])
})

it('a replica does not handle what another one has handled, when the emitter missed the confirmation and sent it again', async () => {
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const got: unknown[] = []
  const handler = slow.on(async (n) => {
    got.push(n)
    if (n === 2) await done
  })
  const send = await sender()
  await program(url, { service: 'a' }, [handler], 1)
  await send(1)
  await until(() => got.length === 1)
  await send(2)
  await until(() => got.length === 2, 'the first one takes nothing more')
  await program(url, { service: 'a' }, [handler], 1)
  await send(1, again)
  await until(async () => (await queuesOf(host)).get(queue) === 1, 'the second one has acknowledged it')
  finish()
  await until(isEmpty)
  expect(got).toEqual([1, 2])
})

it('a service does not handle again what a replica had handled that is gone', async () => {
  const got: number[] = []
  const programs: { close(): Promise<unknown> }[] = []
  for (const at of [0, 1]) programs.push(await program(url, { service: 'a' }, [slow.on(() => void got.push(at))]))
  const other = await stranger(url)
  const reported: string[] = []
  const binding = { exchange: 'sluice.replicas', to: { queue: 'notes' }, routingKey: 'a' }
  await other.declare({ queues: [{ name: 'notes' }], bindings: [binding] })
  await other.consume('notes', { prefetch: 10, noAck: true }, ({ body }) => {
    const { handled = [] } = JSON.parse(body.toString()) as { handled?: string[] }
    reported.push(...handled)
  })
  const send = await sender()
  await send(1)
  await until(() => reported.length === 1, 'the other one knows it')
  await programs[got[0] ?? 0]?.close()
  await send(1, again)
  await send(2)
  await until(() => got.length === 2, 'the next one is handled')
  await until(isEmpty, 'each copy is acknowledged')
  expect(got).toHaveLength(2)
})

it('a service does not handle what was put aside, or tried later, when a copy from before comes again', async () => {
  const got: unknown[] = []
  await program(url, { service: 'a' }, [slow.on((n) => void got.push(n))])
  const send = await sender()
  await send(1, triedOnce({}), { routingKey: queue })
  await until(() => got.length === 1)
  await send(1, again)
  await send(2)
  await until(() => got.length === 2)
  await until(isEmpty, 'each copy is acknowledged')
  expect(got).toEqual([1, 2])
})

it('a service counts no attempt of what a lost worker had received and not begun, however often', async () => {
  const got: unknown[] = []
  const handler = slow.on((n, { attempt, redelivered }) => void got.push([n, attempt, redelivered]), {
    retry: { attempts: 1 },
    group: 'main',
  })
  const a = await declared(handler)
  await a.events.emitMany(slow, [1, 2, 3])
  for (const _ of [1, 2, 3]) await (await taken(3)).die()
  await program(url, { service: 'a' }, [handler])
  await until(() => got.length === 3)
  await until(isEmpty)
  expect(got).toEqual(expect.arrayContaining([1, 2, 3].map((n) => [n, 1, true])))
})

it('a service handles an event that was put off twice, though a worker that had only received it then was lost', async () => {
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const got: unknown[] = []
  const handler = slow.on(async (n, { ambiguous }) => {
    got.push([n, ambiguous])
    if (n === 2) return done
    // The next event takes the only slot while this one waits.
    if (got.length === 2) await a.events.emit(slow, 2)
    if (got.length < 3) throw snooze(50)
  })
  const a = await program(url, { service: 'a' }, [handler], 1)
  await a.events.emit(slow, 1)
  await until(() => got.length === 3, 'the next event is being handled')
  await (await taken(1)).die()
  finish()
  await until(isEmpty, 'nothing is left over')
  expect(got).toEqual([
    [1, false],
    [1, false],
    [2, false],
    [1, true],
  ])
})

it('a service takes an event that is put off again and again for no repetition', async () => {
  const got: unknown[] = []
  const handler = slow.on((_, { ambiguous, redelivered }) => {
    got.push([ambiguous, redelivered])
    if (got.length < 4) throw snooze(50)
  })
  const a = await program(url, { service: 'a' }, [handler])
  await a.events.emit(slow, 1)
  await until(() => got.length === 4)
  expect(got).toEqual(Array.from({ length: 4 }, () => [false, false]))
})

it('a service flags what a relay publishes again', async () => {
  const got: unknown[] = []
  const a = await program(url, { service: 'a' }, [slow.on(() => undefined)])
  const other = await stranger(url)
  const binding = { exchange: 'sluice.events', to: { queue: 'copies' }, routingKey: '#' }
  await other.declare({ queues: [{ name: 'copies' }], bindings: [binding] })
  await other.consume('copies', { prefetch: 10 }, ({ properties }) => void got.push(properties.headers))
  // The task that publishes what was emitted in a transaction, as a worker calls it for the second time.
  const relay = a.events.tasksOf([]).find(({ name }) => name === 'events:relay')
  const text = JSON.stringify({ specversion: '1.0', id: newId(), source: '/s', type: 'slow', data: 7 })
  const row = { id: newId(), type: 'slow', text }
  await relay?.run?.(row, { attempt: 1, ambiguous: false } as never)
  await relay?.run?.(row, { attempt: 2, ambiguous: false } as never)
  await until(() => got.length === 2)
  expect(got).toEqual([{}, { 'sluice-again': true }])
})

it('a service records an event for one handler once in the store, though its message comes again, and once more for a replay', async () => {
  const got: unknown[] = []
  const a = await declared(slow.on((n) => void got.push(n), { name: 'one', group: 'main', concurrency: 5 }))
  const sendAny = await sender()
  const send = (n: number, routingKey: string, more: Headers = {}) =>
    sendAny(n, { ...triedOnce({ handler: 'one' }), ...more }, { routingKey })
  // A worker that is killed before it has acknowledged a message gets it again, here with all that it knew forgotten.
  for (const n of [1, 1, 2, 2]) await send(n, queue)
  await program(url, { service: 'a' }, [
    slow.on((n) => void got.push(n), { name: 'one', group: 'main', concurrency: 5 }),
  ])
  await until(() => got.includes(1) && got.includes(2))
  await until(isEmpty)
  const kept = { reason: 'exhausted', error: { message: 'no' }, at: new Date().toISOString(), queue }
  // As if a replay had been killed before it had taken the message away.
  for (const n of [1, 1]) await send(n, 'sluice.archive:a', { 'sluice-failure': JSON.stringify(kept) })
  expect(await a.events.archive().replay({})).toBe(2)
  await send(3, queue)
  await until(() => got.includes(3))
  await until(isEmpty)
  await until(async () => (await a.jobs.count({ state: ['waiting', 'running'] })).count === 0)
  expect(got.map(String).toSorted()).toEqual(['1', '1', '2', '3'])
})
