/** Handlers that are in another group than in the release before. */
import { beforeEach, expect, it } from 'vitest'
import { event } from '../../src/index.ts'
import { entryOf } from '../../src/bus/entries.ts'
import { movesOf } from '../../src/bus/moves.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import type { Source } from '../../src/bus/source.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
const sent = event('orders.sent')
const [groupA, groupB] = ['sluice.events:a:a', 'sluice.events:a:b']
let host: Broker
let got: string[]
beforeEach(async () => {
  host = await freshBroker()
  got = []
})

/** Handlers whose names are those of what they note; `book` fails at first if the payload wants that. */
const note = (name: string) => (n: unknown, of: { attempt: number; redelivered: boolean }) => {
  if (n === 'again' && of.attempt === 1) throw new Error('not yet')
  got.push(`${name} ${String(n)}${of.redelivered ? ' again' : ''}`)
}
const retry = { base: 500, attempts: 3 }
const book = (group: string) => paid.on(note('book') as never, { name: 'book', group, retry })
const mail = (group: string) => paid.on(note('mail') as never, { name: 'mail', group, retry })
const ship = (group: string) => sent.on(note('ship') as never, { name: 'ship', group, retry })
const isEmpty = async () => [...(await queuesOf(host)).values()].every((count) => count === 0)
const start = (...handlers: ReturnType<typeof book>[]) => program(host.url, { service: 'a' }, handlers)

it('moved handlers get what waited for them and what comes, once, and their former queue nothing more', async () => {
  const before = await start(book('a'), mail('a'), ship('a'))
  await before.worker?.stop()
  await before.events.emit(paid, 1)
  await before.events.emit(sent, 1)
  const after = await start(book('a'), mail('b'), ship('b'))
  await until(() => got.length === 3, 'what waited is handled')
  expect(got.toSorted()).toEqual(['book 1', 'mail 1 again', 'ship 1 again'])
  await after.events.emit(paid, 2)
  await after.events.emit(sent, 2)
  await until(() => got.length === 6)
  expect(got.slice(3).toSorted()).toEqual(['book 2', 'mail 2', 'ship 2'])
  await after.worker?.stop()
  await after.events.emit(sent, 3)
  const queues = await queuesOf(host)
  expect([queues.get(groupA), queues.get(groupB)]).toEqual([0, 1])
})

it('moved handlers get what was retried for a group that is gone', async () => {
  const before = await start(book('a'))
  await before.events.emit(paid, 'again')
  await until(async () => (await queuesOf(host)).get('sluice.retry:a:500') === 1, 'it waits')
  await before.worker?.stop()
  await start(book('b'))
  await until(() => got.length === 1, 'it is handled')
  expect(got).toEqual(['book again again'])
})

it('moved handlers get each event while processes of both releases run, and once where only the new one starts', async () => {
  const old = await start(book('a'))
  await start(book('b'))
  for (const n of [1, 2, 3]) await old.events.emit(paid, n)
  await until(() => got.length === 3)
  expect(got).toEqual(['book 1', 'book 2', 'book 3'])
  // A process of the old release takes no binding from the new one.
  await old.worker?.stop()
  const again = await start(book('a'))
  await again.worker?.stop()
  await old.events.emit(paid, 4)
  await until(() => got.includes('book 4'))
  await start(book('b'))
  await until(() => got.length >= 5, 'what came to the former queue, too, is marked')
  expect(got.slice(3).toSorted()).toEqual(['book 4', 'book 4 again'])
  await old.events.emit(paid, 5)
  await until(() => got.includes('book 5'))
  await until(async () => [...(await queuesOf(host)).values()].every((count) => count === 0))
  expect(got).toHaveLength(6)
})

it('moved handlers get what a lost process of the release before had in hand', async () => {
  const before = await start(book('a'), mail('a'))
  await before.worker?.stop()
  await before.events.emit(paid, 1)
  const lost = await stranger(host.url)
  let seen = 0
  await lost.consume(groupA, { prefetch: 10 }, () => void seen++)
  await until(() => seen === 1, 'it has the event')
  await start(book('a'), mail('b'))
  await lost.close()
  await until(() => got.length >= 2)
  await until(isEmpty)
  expect(got.toSorted()).toEqual(['book 1 again', 'mail 1 again'])
})

it('moved handlers get what waits in a queue of another kind', async () => {
  const before = await start(book('a'), mail('a'))
  await before.worker?.stop()
  await before.events.emit(paid, 1)
  const events = { on: 'rabbitmq', quorum: true } as const
  await program(host.url, { service: 'a', events }, [book('a'), mail('b')])
  await until(() => got.length >= 2)
  await until(isEmpty)
  expect(got.toSorted()).toEqual(['book 1', 'mail 1 again'])
})

it('moved handlers lose nothing to processes of the release before, which have others in their new group, and keep both bindings for an hour', async () => {
  const old = await start(book('a'), mail('b'), ship('b'))
  let [pass, lateMs] = [() => {}, 0]
  const hour = new Promise<void>((resolve) => (pass = resolve))
  const { sleep: pause } = systemClock
  const clock: Clock = {
    ...systemClock,
    wallMs: () => systemClock.wallMs() + lateMs,
    sleep: (ms, ...how) => (ms === 3_600_000 ? hour : pause(ms, ...how)),
  }
  const now = await program(host.url, { service: 'a', clock }, [book('a'), mail('a'), ship('b')])
  for (let n = 1; n <= 6; n++) await old.events.emit(paid, n)
  await until(isEmpty)
  const mails = got.filter((each) => each.startsWith('mail'))
  expect(new Set(mails.map((each) => each.slice(0, 6))).size).toBe(6)
  expect(got.filter((each) => each.startsWith('book'))).toHaveLength(6)
  await old.worker?.stop()
  got = []
  lateMs = 3_600_001
  pass()
  const bound = () =>
    host.evaluate(
      `length([1 || B <- rabbit_binding:list_for_source({resource, <<"${host.name}">>, exchange, <<"sluice.events">>}), element(3, B) =:= <<"orders.paid">>])`,
    )
  await until(async () => (await bound()) === '1', 'the former queue is not bound any more')
  await now.events.emit(paid, 7)
  await now.events.emit(sent, 7)
  await until(() => got.length >= 3)
  await until(isEmpty)
  expect(got.toSorted()).toEqual(['book 7', 'mail 7', 'ship 7'])
})

it('moved handlers keep bindings that other handlers, or other programs of the service, need', () => {
  const source = (queue: string, ...handlers: [name: string, pattern: string, formerly?: string][]) =>
    ({
      queue,
      handlers: handlers.map(([name, pattern, formerly]) => ({ name, pattern, formerly: formerly ? [formerly] : [] })),
    }) as unknown as Source
  const placed = (handler: string, pattern: string, queue: string) => ({ handler, pattern, queue })
  const nowMs = Date.parse('2026-01-01T12:00:00Z')
  const earlier = {
    handlers: [placed('book', 'x', 'a'), placed('mail', 'y', 'a'), placed('ship', 'z', 'a'), placed('old', 'v', 'a')],
    former: [{ ...placed('other', 'y', 'a'), leftAt: '2025-01-01T12:00:00Z' }],
  }
  const sources = [
    source('a', ['pack', 'x']),
    source('b', ['book', 'x'], ['mail', 'y'], ['ship', 'z'], ['new', 'v', 'old']),
  ]
  const { undone, former, moves } = movesOf(earlier, sources, nowMs)
  expect(undone).toMatchObject([placed('ship', 'z', 'a'), placed('old', 'v', 'a')])
  expect(moves.map(({ from, handler, isNew }) => [from.handler, handler, isNew])).toEqual([
    ['book', 'book', true],
    ['mail', 'mail', true],
    ['ship', 'ship', true],
    ['old', 'new', true],
  ])
  expect(former).toHaveLength(5)
  const back = {
    handlers: [placed('book', 'x', 'b')],
    former: [{ ...placed('book', 'x', 'a'), leftAt: '2026-01-01T11:30:00Z' }],
  }
  const held = movesOf(back, [source('a', ['book', 'x'])], nowMs)
  expect(held).toMatchObject({ undone: [], handlers: back.handlers, former: back.former })
  expect(movesOf(back, [source('a', ['book', 'x'])], nowMs + 3_600_000).undone).toMatchObject([
    placed('book', 'x', 'b'),
  ])
})

it('moved handlers are remembered by the thousand places that were left last', () => {
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const left = (n: number) => ({ handler: `h${n}`, pattern: 'x', queue: 'a', leftAt: new Date(n).toISOString() })
  const former = Array.from({ length: 1_001 }, (_, n) => left(n))
  const kept = entryOf(names, [], { handlers: [], former }, systemClock).former
  expect([kept.length, kept[0], kept.at(-1)]).toEqual([1_000, left(1_000), left(1)])
})
