/** What becomes of deliveries that wait when a service's handlers change: names, groups, and who has got them. */
import pg from 'pg'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { event, type EventHandler, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'

const paid = event('orders.order.paid')
let url: string
let opened: Sluice[]
let got: string[]

const open = async () => {
  const sluice = await Sluice.open({ store: url, service: 'a' })
  opened.push(sluice)
  return sluice
}
const handler = (name: string, more = {}): EventHandler =>
  paid.on((payload) => void got.push(`${name} ${String(payload)}`), { name, ...more })
/** Subscribes the first handlers, emits an event, and starts another process with the others until nothing runs. */
async function change(before: EventHandler[], after: EventHandler[]) {
  const first = await open()
  await first.dispatchOnce(before)
  await first.events.emit(paid, 1)
  await first.close()
  const next = await open()
  for (let i = 0; i < 3; i++) {
    await next.dispatchOnce(after)
    await next.db.query(`update sluice.job set due_at = sluice.now() where due_at is not null`)
  }
}

beforeEach(async () => {
  ;({ url } = await freshDatabase())
  ;[opened, got] = [[], []]
})
afterEach(async () => {
  for (const sluice of opened) await sluice.close()
})

it('a service runs what waits for a handler that has got a group of its own', async () => {
  await change([handler('x')], [handler('x', { concurrency: 1 })])
  expect(got).toEqual(['x 1'])
})

it('a service runs what waits for a handler that has left its group, while others stay', async () => {
  await change([handler('x'), handler('y')], [handler('x', { concurrency: 1 }), handler('y')])
  expect(got.sort()).toEqual(['x 1', 'y 1'])
})

it('a service runs what waits for a handler with a group of its own under its former name', async () => {
  await change([handler('old', { concurrency: 1 })], [handler('new', { concurrency: 1, formerly: ['old'] })])
  expect(got).toEqual(['new 1'])
})

it('a service runs what waits for a handler that has another group', async () => {
  await change([handler('x', { group: 'one' }), handler('y')], [handler('x', { group: 'two' }), handler('y')])
  expect(got.sort()).toEqual(['x 1', 'y 1'])
})

it('a service does not deliver again under a new name what was delivered under the old one', async () => {
  const first = await open()
  const client = new pg.Client(url)
  await client.connect()
  await client.query('begin')
  await client.query('select pg_current_xact_id()')
  await first.dispatchOnce([handler('old')])
  await first.events.emit(paid, 1)
  await first.dispatchOnce([handler('old')])
  const next = await open()
  const renamed = [handler('new', { formerly: ['old'] })]
  await next.dispatchOnce(renamed)
  await client.query('commit')
  await client.end()
  await next.events.renew()
  await next.dispatchOnce(renamed)
  expect(got).toEqual(['old 1'])
})

it('a service delivers once while an older process has stored the old name again', async () => {
  const [before, after] = [[handler('old')], [handler('new', { formerly: ['old'] })]]
  const [first, next] = [await open(), await open()]
  await first.dispatchOnce(before)
  await next.dispatchOnce(after)
  await first.dispatchOnce(before)
  const id = await first.events.emit(paid, 1)
  await first.dispatchOnce(before)
  await next.dispatchOnce(after)
  expect(got).toEqual(['old 1'])
  expect((await next.events.handlers()).map(({ handler: name }) => name)).toEqual(['new'])
  expect((await next.events.show(id))?.deliveries).toMatchObject([{ handler: 'new', state: 'done' }])
})

it('a service gives a new handler all events, although another one had its name before', async () => {
  await change([handler('old')], [handler('new', { formerly: ['old'] })])
  const next = await open()
  const work = [handler('old'), handler('new')]
  await next.dispatchOnce(work)
  await next.events.emit(paid, 2)
  await next.dispatchOnce(work)
  expect(got.sort()).toEqual(['new 1', 'new 2', 'old 2'])
})
