/** Which waiting take of a process is woken when units are given back. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { hash64 } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { Waiters } from '../../src/takes/waiters.ts'
import { freshSluice } from '../servers/sluice.ts'
import { later, until } from '../until.ts'
import { takersInLine } from './engine.ts'

const hour = 3_600_000
const turn = () => new Promise((resolve) => setImmediate(resolve))

/** `isReady`: there is a connection already, which listens to other channels. */
function stage(isReady = false) {
  let notify = (_bucket: string) => {}
  const listen: Db['listen'] = async (_channel, onNotice) => {
    notify = onNotice
    return async () => {}
  }
  const waiters = new Waiters({ listen, listening: () => isReady } as Db, 'take', systemClock)
  const woken: string[] = []
  const waits = (who: string, place: number) =>
    void waiters.wait({ who, buckets: ['b'], sentMs: Infinity, place }, hour).then(() => woken.push(who))
  return { waiters, waits, woken, notify: () => notify('b'), callBack: (what: string) => notify(`!${what}`) }
}

it('the take that was woken wakes the next one when it has its grant, also if others have begun to wait meanwhile', async () => {
  const { waiters, waits, woken, notify } = stage()
  waits('first', 1)
  waits('second', 2)
  notify()
  // Two places were given back; both notifications reach the first.
  notify()
  await turn()
  expect(woken).toEqual(['first'])
  waits('third', 3)
  waiters.next(['b'])
  await turn()
  expect(woken).toEqual(['first', 'second'])
  // It is denied, and waits again: nobody is woken for the grant of another take.
  waits('second', 2)
  waiters.next(['b'])
  await turn()
  expect(woken).toEqual(['first', 'second'])
  await waiters.close()
})

it('the first one in the line is woken, whichever began to wait before it, and one without a place last', async () => {
  const { waiters, waits, woken, notify } = stage()
  for (const [who, place] of [
    ['none', Infinity],
    ['third', 30],
    ['first', 7],
    ['second', 8],
  ] as const)
    waits(who, place)
  for (let i = 0; i < 4; i++) {
    notify()
    await turn()
  }
  expect(woken).toEqual(['first', 'second', 'third', 'none'])
  await waiters.close()
})

it('the first that waits looks once more when its notifications begin to arrive', async () => {
  const { waiters, waits, woken } = stage(true)
  waits('first', 1)
  await turn()
  expect(woken).toEqual(['first'])
  waits('first', 1)
  await turn()
  expect(woken).toEqual(['first'])
  await waiters.close()
})

it('a place that is given back goes to the first in the line at once, though it has retried after the others', async () => {
  /** Ends each wait of a take, in their order; without that, and without a wake-up, they last for ever. */
  const naps: (() => void)[] = []
  const { sleep: sleepReally } = systemClock
  const sleep: typeof sleepReally = (ms, signal, ref) => {
    if (ref === false || ms < 1_000) return sleepReally(ms, signal, ref)
    return new Promise((resolve) => {
      naps.push(resolve)
      signal?.addEventListener('abort', () => resolve(), { once: true })
    })
  }
  const { takes, db } = await freshSluice({ clock: { ...systemClock, sleep } })
  const [seat, table] = [limit('seat', { concurrency: 1 }), limit('table', { concurrency: 9 })]
  const held = await takes.take(seat)
  const first = later(takes.take(seat))
  await until(() => db.listening() && naps.length === 2, 'the first waits, and has looked again since it is notified')
  const second = later(takes.take([seat, table]))
  await until(() => naps.length === 3, 'the second waits')
  naps[1]?.()
  await until(() => naps.length === 4, 'the first has retried, and waits again')
  await held.release()
  const place = await first
  expect(naps, 'nobody else was woken').toHaveLength(4)
  await place.release()
  await (await second).release()
  expect(await takersInLine(db)).toBe(0)
})

it('a grant ahead of time is called back by the name of its limit, by its bucket, and with everything; others stay', async () => {
  const { waiters, callBack } = stage()
  const atMs = systemClock.monotonicMs() + hour
  const told: [string, boolean][] = []
  const waits = (bucket: string, requestedMs: number) =>
    void waiters.waitForInstant({ buckets: [bucket], requestedMs, atMs }).then((is) => told.push([bucket, is]))
  for (const bucket of ['a', 'b:x', 'c:x', 'd']) waits(bucket, -Infinity)
  callBack('b')
  callBack(hash64('c:x'))
  await until(() => told.length === 2, 'both are called back')
  expect(told).toEqual([
    ['b:x', false],
    ['c:x', false],
  ])
  // Its answer came later than the notification, but it may have been decided before.
  waits('b:y', -Infinity)
  waits('b:z', Infinity)
  await until(() => told.length === 3, 'that one is called back, too')
  expect(told[2]).toEqual(['b:y', false])
  callBack('')
  await until(() => told.length === 6, 'all are called back')
  expect(told.slice(3).every(([, is]) => !is)).toBe(true)
  await waiters.close()
})

it('a grant ahead of time ends with its signal, with its process, and at its instant', async () => {
  const { waiters } = stage()
  const at = (ms: number) => ({ buckets: ['a'], requestedMs: 0, atMs: systemClock.monotonicMs() + ms })
  const over = new AbortController()
  const aborted = waiters.waitForInstant(at(hour), over.signal)
  over.abort()
  expect(await aborted).toBe(false)
  const soon = at(5)
  expect(await waiters.waitForInstant(soon)).toBe(true)
  expect(systemClock.monotonicMs()).toBeGreaterThanOrEqual(soon.atMs)
  const closed = waiters.waitForInstant(at(hour))
  await waiters.close()
  expect(await closed).toBe(false)
})
