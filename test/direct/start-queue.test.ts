/** The door of a worker without a store, with limits that are made up. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { StartQueue } from '../../src/direct/start-queue.ts'
import type { Entry } from '../../src/direct/intake.ts'
import { until } from '../until.ts'

it('the queue begins nothing that is called off while its grant is requested, and gives that back', async () => {
  const at = { asked: 0, started: [] as Entry[], unused: [] as unknown[], ended: [] as unknown[] }
  let grant = () => {}
  const limiter = {
    async take() {
      at.asked++
      await new Promise<void>((resolve) => (grant = resolve))
      return { id: 'g', requestedAt: {}, got: [{ granted: 1, waitMs: 0, lacking: undefined, lifeMs: 100 }] }
    },
    refund: (...given: unknown[]) => at.unused.push(given),
    freePlaces: (...given: unknown[]) => at.ended.push(given),
  }
  const off = new Set<Entry>()
  const queue = new StartQueue({
    limits: { limiter, bookings: { findBooked: () => undefined } } as never,
    clock: systemClock,
    free: () => 1,
    start: (all) => void at.started.push(...all.map(({ entry }) => entry)),
    onDenied() {},
    onLost() {},
    onAway() {},
    endIfCalledOff: (entry) => off.has(entry),
  })
  const entry = (take: string) => {
    const own = { buckets: [take], holds: [take], units: [1], progress: { denied: 0 }, incoming: { isInHand: true } }
    return own as unknown as Entry
  }
  const [one, other] = [entry('one'), entry('other')]
  queue.add(one)
  await until(() => at.asked === 1, 'its grant is requested')
  expect(queue.remove(() => true)).toEqual([])
  off.add(one)
  queue.add(other)
  grant()
  await until(() => at.asked === 2, 'that of the next one is requested')
  grant()
  await until(() => at.started.length > 0, 'the next one begins')
  expect(at.started).toEqual([other])
  expect(at.unused).toEqual([['g', ['one'], [1]]])
  expect(at.ended).toEqual([['g', ['one']]])
})

it('the queue requests grants of keys with line breaks apart from those of other keys', async () => {
  const asked: number[][] = []
  const queue = new StartQueue({
    limits: {
      limiter: {
        async take(wants: { count: number }[]) {
          asked.push(wants.map(({ count }) => count))
          const got = wants.map(({ count }) => ({ granted: count, waitMs: 0, lacking: undefined, lifeMs: 100 }))
          return { id: 'g', requestedAt: {}, got }
        },
      },
      bookings: { findBooked: () => undefined },
    } as never,
    clock: systemClock,
    free: () => 2,
    start() {},
    onDenied() {},
    onLost() {},
    onAway() {},
    endIfCalledOff: () => false,
  })
  const add = (...holds: string[]) => {
    const own = { buckets: holds, holds, units: [1, 1], progress: { denied: 0 }, incoming: { isInHand: true } }
    queue.add(own as unknown as Entry)
  }
  // After the first one two begin at a time.
  add('a:1', 'b:2')
  add('a:1\nb:2', 'c:3')
  add('a:1', 'b:2\nc:3')
  await until(() => asked.length === 2, 'all were requested')
  expect(asked).toEqual([[1], [1, 1]])
})

it('the queue drops all messages that a lost connection has left, however many', () => {
  let room = 0
  const started: Entry[] = []
  const lost: Entry[] = []
  const queue = new StartQueue({
    limits: undefined,
    clock: systemClock,
    free: () => room,
    start: (all) => void started.push(...all.map(({ entry }) => entry)),
    onDenied() {},
    onLost: (entry) => void lost.push(entry),
    onAway() {},
    endIfCalledOff: () => false,
  })
  const entry = (isInHand: boolean) => ({ buckets: [], incoming: { isInHand } }) as unknown as Entry
  for (let i = 0; i < 20_000; i++) queue.add(entry(false))
  const own = entry(true)
  queue.add(own)
  room = 1
  queue.startWaiting()
  expect(lost).toHaveLength(20_000)
  expect(started).toEqual([own])
})

it.each([
  [100, 5],
  [1_000, 50],
  [60_000, 50],
])('the queue spreads messages that it denies for %i ms over %i ms more', async (waitMs, mostMs) => {
  const delays: number[] = []
  const random = [0, 0.5, 1]
  const queue = new StartQueue({
    limits: {
      limiter: {
        async take() {
          return { id: 'g', requestedAt: {}, got: [{ granted: 0, waitMs, lacking: 'a', lifeMs: 100 }] }
        },
      },
      bookings: { findBooked: () => undefined, book: async (_: string, n: number) => Array(n).fill(waitMs) },
    } as never,
    clock: { ...systemClock, random: () => random.shift() ?? 0 },
    free: () => 1,
    start() {},
    onDenied: (_, delayMs) => void delays.push(delayMs),
    onLost() {},
    onAway() {},
    endIfCalledOff: () => false,
  })
  for (let i = 0; i < 3; i++) {
    const own = { buckets: ['a'], holds: ['a'], units: [1], progress: { denied: 0 }, incoming: { isInHand: true } }
    queue.add(own as unknown as Entry)
  }
  await until(() => delays.length === 3, 'all are denied')
  expect(delays).toEqual([waitMs, waitMs + mostMs / 2, waitMs + mostMs])
})
