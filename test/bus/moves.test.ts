/** Handlers that are in another group than in the release before. */
import { beforeEach, expect, it } from 'vitest'
import { event } from '../../src/index.ts'
import { movesOf } from '../../src/bus/moves.ts'
import type { Source } from '../../src/bus/source.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf } from './stage.ts'

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
const start = (...handlers: ReturnType<typeof book>[]) => program(host.url, { service: 'a' }, handlers)

it('get what waited for them and what comes, once, and their former queue nothing more', async () => {
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

it('get what was retried for a group that is gone', async () => {
  const before = await start(book('a'))
  await before.events.emit(paid, 'again')
  await until(async () => (await queuesOf(host)).get('sluice.retry:a:500') === 1, 'it waits')
  await before.worker?.stop()
  await start(book('b'))
  await until(() => got.length === 1, 'it is handled')
  expect(got).toEqual(['book again again'])
})

it('get each event while processes of both releases run, and once where only the new one starts', async () => {
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

it('keep bindings that other handlers, or other programs of the service, need', () => {
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
