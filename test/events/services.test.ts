/** Several services and processes: deploys, renames, open transactions, and handlers that a process lacks. */
import pg from 'pg'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { event, type EventHandler, newId, on, Sluice, type SluiceOptions } from '../../src/index.ts'
import { Events } from '../../src/events/events.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

const paid = event('orders.order.paid')
let url: string
let opened: Sluice[]
let got: string[]
let told: string[]

const open = async (service: string | undefined, more: SluiceOptions = {}) => {
  const log = { debug() {}, info() {}, error() {}, warn: (text: string) => void told.push(text) }
  const sluice = await Sluice.open({ store: url, log, ...(service === undefined ? {} : { service }), ...more })
  opened.push(sluice)
  return sluice
}
const handler = (name: string, more = {}): EventHandler =>
  paid.on((payload) => void got.push(`${name} ${String(payload)}`), { name, ...more })

/** Returns an id as if it had been made at this time. */
const idAt = (ms: number) => `${ms.toString(16).padStart(12, '0').replace(/^.{8}/, '$&-')}${newId().slice(13)}`

beforeEach(async () => {
  ;({ url } = await freshDatabase())
  ;[opened, got, told] = [[], [], []]
})
afterEach(async () => {
  for (const sluice of opened) await sluice.close()
})

it('an event goes to each service once, whichever replica runs it', async () => {
  const [a1, a2, b] = await Promise.all([open('a'), open('a'), open('b')])
  const work = [handler('a')]
  await Promise.all([a1.work(work), a2.work(work), b.work([handler('b')])])
  await a1.events.emitMany(
    paid,
    Array.from({ length: 50 }, (_, n) => n),
  )
  await until(() => got.length >= 100, '100 deliveries')
  expect(new Set(got).size).toBe(100)
})

it('a service needs a name, and refuses names that it cannot store', async () => {
  const nobody = await open(undefined)
  await expect(nobody.dispatchOnce([handler('a')])).rejects.toMatchObject({ code: 'SLUICE_NO_SERVICE' })
  await nobody.events.emit(paid, 1)
  await expect(open('No Service')).rejects.toMatchObject({ code: 'SLUICE_BAD_HANDLER' })
  const a = await open('a')
  const bad = { code: 'SLUICE_BAD_HANDLER' }
  await expect(a.dispatchOnce([handler('x'), handler('x')])).rejects.toMatchObject(bad)
  await expect(a.dispatchOnce([handler('x'), handler('y', { formerly: ['x'] })])).rejects.toMatchObject(bad)
  const group = { group: 'g' }
  const two = [handler('x', { ...group, concurrency: 1 }), handler('y', { ...group, concurrency: 2 })]
  await expect(a.dispatchOnce(two)).rejects.toMatchObject(bad)
  for (const more of [
    { order: '' },
    { order: 'a', group: 'g' },
    { since: new Date(NaN) },
    { names: 'x' },
    { group: 'A!' },
  ])
    expect(() => handler('x', more)).toThrow(expect.objectContaining(bad))
  for (const pattern of ['', 'a..b', 'a.#.b', 'a b', "a'", 'a*'])
    expect(() => on(pattern, () => undefined)).toThrow(expect.objectContaining(bad))
  for (const name of ['', 'a..b', 'a.*', 'ä', 'a'.repeat(101)])
    expect(() => event(name)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_EVENT' }))
})

it('a service refuses payloads that JSON or PostgreSQL cannot keep, and keeps what was emitted before them', async () => {
  const a = await open('a')
  const loop: Record<string, unknown> = {}
  loop['self'] = loop
  for (const payload of [1n, '\u0000', loop, NaN, '\ud800', new Map()])
    await expect(a.events.emit(paid, payload)).rejects.toMatchObject({ code: 'SLUICE_BAD_PAYLOAD' })
  await expect(a.events.emit(paid, 'x'.repeat(262_144))).rejects.toMatchObject({ code: 'SLUICE_PAYLOAD_TOO_LARGE' })
  await expect(a.events.emit(paid, 1, { id: 'x' })).rejects.toMatchObject({ code: 'SLUICE_BAD_ID' })
  await expect(a.events.emit(paid, 1, { subject: '' })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  const oneId = { id: newId() } as { tx?: never }
  await expect(a.events.emitMany(paid, [1, 2], oneId)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  await expect(a.events.emitMany(paid, [1, 2n, 3])).rejects.toThrow('payload 1: ')
  const [row] = await a.db.query<{ n: number }>('select count(*)::integer as n from sluice.emitted')
  expect(row?.n).toBe(1)
})

it('a service warns when processes of one name have different handlers', async () => {
  const [one, other] = [await open('a'), await open('a')]
  await one.dispatchOnce([handler('x'), handler('y')])
  await other.dispatchOnce([handler('x')])
  expect(told.join()).toContain('service "a" has handlers that this process has not: y')
})

it('a service does not warn of the handlers of other workers of the same process', async () => {
  const one = await open('a')
  const workers = [await one.work([handler('x')]), await one.work([handler('y')])]
  for (const worker of workers) await worker.stop()
  expect(told.join()).not.toContain('that this process has not')
})

it('a service gives a delivery back, uncalled, in a process that lacks its handler', async () => {
  const [old, next] = [await open('a'), await open('a')]
  await next.dispatchOnce([handler('x'), handler('y')])
  const id = await old.events.emit(paid, 1)
  await old.dispatchOnce([handler('x')])
  expect(got).toEqual(['x 1'])
  const delivery = (await next.events.show(id))?.deliveries[1]
  expect(delivery).toMatchObject({ handler: 'y', state: 'scheduled' })
  await next.db.query(`update sluice.job set due_at = now() - interval '1 s'`)
  await until(async () => (await next.dispatchOnce([handler('x'), handler('y')])) > 0, 'the other replica runs it')
  expect(got).toEqual(['x 1', 'y 1'])
})

it('a service lets only processes that have it run a handler with an order, so that nothing overtakes', async () => {
  const ordered = handler('y', { order: 'key' })
  const [old, next] = [await open('a'), await open('a')]
  await next.dispatchOnce([handler('x'), ordered])
  await old.events.emit(paid, { key: 'k' })
  expect(await old.dispatchOnce([handler('x')])).toBe(1)
  expect(await next.dispatchOnce([handler('x'), ordered])).toBe(1)
})

it('a service goes on under a new name with what the handler had before', async () => {
  const a = await open('a')
  await a.dispatchOnce([handler('old')])
  await a.events.emit(paid, 1)
  const renamed = [handler('new', { formerly: ['old'] })]
  const b = await open('a')
  await b.dispatchOnce(renamed)
  await b.events.emit(paid, 2)
  await b.dispatchOnce(renamed)
  expect(got).toEqual(['new 1', 'new 2'])
  expect((await b.events.handlers()).map(({ handler: name }) => name)).toEqual(['new'])
})

/** Catches up until two events are handled: that waits for older transactions, and other tests have some on the same server. */
const caughtUp = (sluice: Sluice, work: Parameters<Sluice['dispatchOnce']>[0]) =>
  until(async () => {
    await sluice.events.renew()
    await sluice.dispatchOnce(work)
    return got.length >= 2
  }, 'it has caught up')

it('a service gets once what a transaction emits that was open before the subscription, at either level', async () => {
  const a = await open('a')
  const work = [handler('x')]
  const clients = await Promise.all(
    ['read committed', 'repeatable read'].map(async (level) => {
      const client = new pg.Client(url)
      await client.connect()
      await client.query(`begin isolation level ${level}`)
      await client.query('select count(*) from sluice.subscription')
      return client
    }),
  )
  const [committed, repeatable] = clients
  // This one emits before the subscription, but commits after it.
  await committed?.query(`select sluice.emit('orders.order.paid', '"before"')`)
  await a.dispatchOnce([handler('x', { since: '1min' })])
  await repeatable?.query(`select sluice.emit('orders.order.paid', '"old snapshot"')`)
  for (const client of clients) {
    await client.query('commit')
    await client.end()
  }
  await caughtUp(a, work)
  expect(got.sort()).toEqual(['x before', 'x old snapshot'])
})

it('a service gets what a younger transaction emits that does not see the subscription yet', async () => {
  const a = await open('a')
  await a.dispatchOnce([handler('x')])
  const [subscriber, emitter] = [new pg.Client(url), new pg.Client(url)]
  await Promise.all([subscriber.connect(), emitter.connect()])
  await subscriber.query(`begin; insert into sluice.subscription (service, handler, origin, pattern, type, task, queue, buckets, lane, since, created_at, seen_at)
    select service, 'y', 'y', pattern, type, task, queue, buckets, lane, since, created_at, seen_at from sluice.subscription`)
  await emitter.query(`begin; select sluice.emit('orders.order.paid', '1')`)
  await subscriber.query('commit')
  await a.events.renew()
  await emitter.query('commit')
  await caughtUp(a, [handler('x'), handler('y')])
  expect(got.sort()).toEqual(['x 1', 'y 1'])
  await Promise.all([subscriber.end(), emitter.end()])
})

it('processes without handlers emit while the service is down, and nothing is lost', async () => {
  const a = await open('a')
  await a.dispatchOnce([handler('x')])
  await a.close()
  const b = await open('b')
  await Promise.all(Array.from({ length: 20 }, (_, n) => b.events.emit(paid, n)))
  const back = await open('a')
  expect(await back.dispatchOnce([handler('x')])).toBe(20)
})

it('a service ends a subscription on request only', async () => {
  const a = await open('a')
  await a.dispatchOnce([handler('x'), handler('y')])
  expect(await a.events.remove('a', 'x')).toEqual(['x'])
  await a.events.emit(paid, 1)
  expect(await a.dispatchOnce([handler('y')])).toBe(1)
  expect(await a.events.remove('a')).toEqual(['y'])
  expect(await a.events.remove('a')).toEqual([])
})

it('a service deletes events when their time is over', async () => {
  const a = await open('a', { retention: { events: '1h' } })
  await a.dispatchOnce([handler('x')])
  const id = await a.events.emit(paid, 1)
  await a.db.query(`update sluice.emitted set id = overlay(id::text placing '00000000' from 1 for 8)::uuid`)
  const kept = await a.events.emit(paid, 2)
  await a.prune()
  expect(await a.events.show(id)).toBeUndefined()
  expect(await a.events.show(kept)).toBeDefined()
})

it('a service delivers an event once that is emitted again after it was deleted, while its deliveries are kept', async () => {
  const a = await open('a', { retention: { events: '1h' } })
  const work = [handler('x'), handler('y', { concurrency: 2 })]
  await a.dispatchOnce(work)
  const ids = [2, 3].map((hours) => idAt(Date.now() - hours * 3_600_000))
  const emitAll = async () => {
    for (const [n, id] of ids.entries()) await a.events.emit(paid, n, { id })
    await a.transaction(async (tx) => {
      for (const [n, id] of ids.entries()) await a.events.emit(paid, n, { id, tx })
    })
    await a.dispatchOnce(work)
  }
  await emitAll()
  expect(got.toSorted()).toEqual(['x 0', 'x 1', 'y 0', 'y 1'])
  await a.prune()
  expect(await a.events.show(ids[0] ?? '')).toBeUndefined()
  await emitAll()
  expect(got).toHaveLength(4)
  expect((await a.events.show(ids[0] ?? ''))?.deliveries).toMatchObject([{ state: 'done' }, { state: 'done' }])
  expect(await a.jobs.status()).toMatchObject({ waiting: 0, running: 0 })
})

it('a service keeps events for as long as settings allow, which is since before 1970', async () => {
  const a = await open('a', { retention: { events: '36500d' } })
  await a.dispatchOnce([handler('x')])
  const id = await a.events.emit(paid, 1)
  await a.prune()
  expect(await a.events.show(id)).toBeDefined()
})

it('a service catches up for some seconds before its worker begins, and for half a second in each round', async () => {
  // The first call stores the handlers.
  let [nowMs, portions, lacks] = [0, -1, true]
  /** A row where any column is true. */
  const yes = new Proxy({}, { get: () => true })
  const call = async () => {
    await new Promise(setImmediate)
    if (portions++ < 0) return []
    nowMs += 100
    return lacks ? [yes] : []
  }
  const store = { clock: { monotonicMs: () => nowMs }, call, run: async () => [] }
  const events = new Events({ store, service: 'a', enter: () => undefined, routeOf: () => undefined } as never)
  await events.subscribe([handler('a')])
  expect(portions).toBe(50)
  // One at a time: two would skip each other's rows.
  expect(await Promise.all([events.renew(), events.renew()])).toEqual([true, true])
  expect(portions).toBe(55)
  lacks = false
  expect(await events.renew()).toBe(false)
})
