/** Replies to takes that come late, twice, not at all, or to a process that was given up meanwhile. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import type { Db } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import { empty } from '../claim/engine.ts'
import { later, until } from '../until.ts'
import { freshSluice } from '../servers/sluice.ts'
import { unitsUsed } from '../limits/engine.ts'
import { giveUpHolders, holderOf, placesTaken, takeCalls } from './engine.ts'

type Run = () => Promise<unknown[]>
/** Stands between the takes and the store. */
type Hook = (name: string, params: readonly unknown[], run: Run) => Promise<unknown[]>

const passing: Hook = (_name, _params, run) => run()
let hook = passing
let skippedMs = 0
/** Renewals come when the test triggers them. */
const renew: (() => void)[] = []
/** Waits of takes that only a notification, or their signal, ends; undefined: the waits end by their time. */
let naps: Set<AbortSignal> | undefined
const { sleep } = systemClock
const clock: Clock = {
  ...systemClock,
  monotonicMs: () => systemClock.monotonicMs() + skippedMs,
  async sleep(ms, signal, ref) {
    if (ref !== false && naps !== undefined && signal !== undefined && ms >= 1_000) {
      const all = naps.add(signal)
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      return void all.delete(signal)
    }
    if (ref !== false) return sleep(ms, signal, ref)
    return new Promise((resolve) => {
      signal?.addEventListener('abort', () => resolve(), { once: true })
      renew.push(resolve)
    })
  },
}

const sluice = await freshSluice({ clock })
beforeAll(async () => {
  const call = sluice.db.call.bind(sluice.db)
  const hooked = (name: string, sql: string, params: readonly unknown[]) =>
    hook(name, params, () => call(name, sql, params))
  sluice.db.call = hooked as Db['call']
})
beforeEach(async () => {
  hook = passing
  await empty(sluice.db)
})
afterAll(async () => {
  hook = passing
})

const units = async () => Object.values(await unitsUsed(sluice.db)).reduce((sum, used) => sum + used, 0)
const unreachable = () => new StoreError('SLUICE_STORE_UNREACHABLE', 'the answer is lost')

/** Keeps back the reply to the next take; resolves, when the store has it, to a function that lets it through. */
function keepBack(): Promise<() => void> {
  return new Promise((kept) => {
    hook = async (name, _params, run) => {
      if (name !== takeCalls.acquire) return run()
      hook = passing
      const rows = await run()
      await new Promise<void>((resolve) => kept(resolve))
      return rows
    }
  })
}

it('a grant whose reply was lost counts its age from the grant, not from the repeated reply', async () => {
  const calls = limit('calls', { rate: '1000/s', burst: 100 })
  const grants: unknown[] = []
  const loseFirst: Hook = async (name, params, run) => {
    if (name !== takeCalls.acquire) return run()
    grants.push(...(JSON.parse(String(params[0])) as { id: string }[]).map(({ id }) => id))
    const rows = await run()
    if (grants.length > 1) return rows
    skippedMs += 5_000
    throw unreachable()
  }
  hook = loseFirst
  const lease = await sluice.takes.take(calls)
  expect(grants[1]).toBe(grants[0])
  expect(lease.id).not.toBe(grants[0])
  expect(await units()).toBe(1)
  await lease.giveBack()
  grants.length = 0
  hook = loseFirst
  expect(await sluice.takes.tryTake(calls)).toMatchObject({ granted: false })
  expect(grants).toHaveLength(2)
  expect(await units()).toBe(0)
})

it('a place that is granted while others are renewed stays held', async () => {
  const seats = limit('seats', { concurrency: 2 })
  const first = await sluice.takes.take(seats)
  await until(() => renew.length > 0, 'it waits for the next renewal')
  let second: Awaited<typeof first> | undefined
  hook = async (name, _params, run) => {
    if (name === takeCalls.renew) second = await sluice.takes.take(seats)
    return run()
  }
  renew.splice(0).forEach((go) => go())
  await until(() => renew.length > 0, 'the renewal is over')
  expect(await holderOf(sluice.db, second?.id ?? '')).toBeDefined()
  expect(await placesTaken(sluice.db)).toBe(2)
  expect(await sluice.takes.tryTake(seats)).toMatchObject({ granted: false })
  await Promise.all([first.release(), second?.release()])
})

it('all places stay held if they are renewed before a take whose reply was lost is repeated', async () => {
  const seats = limit('seats', { concurrency: 2 })
  const first = await sluice.takes.take(seats)
  const { signal } = first
  await until(() => renew.length > 0, 'it waits for the next renewal')
  let renewal: Promise<void> | undefined
  const renewOnce = async () => {
    renew.splice(0).forEach((go) => go())
    await until(() => renew.length > 0, 'the renewal is over')
  }
  /** The repeated take first looks at the store, and finds the places renewed. */
  const renewFirst: Hook = async (name, _params, run) => {
    if (name !== takeCalls.renew && name !== takeCalls.end) await (renewal ??= renewOnce())
    return run()
  }
  hook = async (name, _params, run) => {
    if (name !== takeCalls.acquire) return run()
    await run()
    skippedMs += 5_000
    hook = renewFirst
    throw unreachable()
  }
  const second = await sluice.takes.take(seats)
  expect(renewal).toBeDefined()
  expect(signal.reason).toBe(undefined)
  expect(await placesTaken(sluice.db)).toBe(2)
  await Promise.all([first.release(), second.release()])
})

it('a place goes to the next take in line if the one that it woke gives up before its request', async () => {
  const seat = limit('seat', { concurrency: 1 })
  const waiting = (naps = new Set())
  onTestFinished(() => void (naps = undefined))
  const place = await sluice.takes.take(seat)
  const enough = new AbortController()
  const first = later(sluice.takes.take(seat, { signal: enough.signal }))
  await until(() => waiting.size === 1 && sluice.db.listening(), 'the first waits')
  const second = later(sluice.takes.take(seat))
  await until(() => waiting.size === 2, 'the second waits')
  const kept: (() => void)[] = []
  hook = async (name, params, run) => {
    if (name === takeCalls.acquire && (params[1] as string[])[0]?.startsWith('other') === true)
      await new Promise<void>((resolve) => kept.push(resolve))
    return run()
  }
  const others = [1, 2, 3, 4].map((n) => later(sluice.takes.take(limit(`other${n}`, { rate: '1000/s', burst: 100 }))))
  await until(() => kept.length === 4, 'the requests under way let no other one pass')
  await place.release()
  await until(() => waiting.size === 1, 'the first is woken')
  enough.abort(new Error('enough'))
  await expect(first).rejects.toThrow('enough')
  hook = passing
  kept.forEach((goOn) => goOn())
  await Promise.all(others)
  await (await second).release()
})

it('a take is granted what is given back while the reply that denies it is under way', async () => {
  const seat = limit('seat', { concurrency: 1 })
  naps = new Set()
  onTestFinished(() => void (naps = undefined))
  const notices: string[] = []
  const stop = await sluice.db.listen('sluice.take', (bucket) => notices.push(bucket))
  onTestFinished(stop)
  const place = await sluice.takes.take(seat)
  const other = later(sluice.takes.take(seat))
  await until(() => naps?.size === 1 && sluice.db.listening(), 'the other waits, so that notifications are heard')
  const denied = keepBack()
  const waiting = later(sluice.takes.take(seat))
  const goOn = await denied
  await place.release()
  await (await other).release()
  await until(() => notices.length > 1, 'both notifications are here')
  goOn()
  await (await waiting).release()
})

it('a fetch goes on if its unused place has gone back before the reply that says so', async () => {
  const both = limit('both', { rate: '1000/s', burst: 100, concurrency: 5 })
  const server = createServer((_request, response) => response.end('here'))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  let goOn: (() => void) | undefined
  let renewals = 0
  hook = async (name, params, run) => {
    const rows = await run()
    if (name === takeCalls.renew) renewals++
    if (name !== takeCalls.acquire) return rows
    // The first grant is fresh when it arrives, and old when the connection is open.
    if (!String(params[0]).includes('back')) setImmediate(() => (skippedMs += 5_000))
    // On a busy machine the grant of a reply that was kept back is too old, so that there is a third take.
    else if (goOn === undefined) await new Promise<void>((resolve) => (goOn = resolve))
    return rows
  }
  const fetching = later(sluice.takes.fetch(both, `http://127.0.0.1:${(server.address() as AddressInfo).port}/`))
  await until(() => goOn !== undefined && renew.length > 0, 'the reply to its second take is kept back')
  renew.splice(0).forEach((go) => go())
  await until(() => renewals > 0, 'the renewal is over')
  goOn?.()
  expect(await (await fetching).text()).toBe('here')
  await until(async () => (await placesTaken(sluice.db)) === 0, 'its places are free')
  server.close()
})

it('a late reply to a holder that was given up neither adds nor removes places of the present holder', async () => {
  const [rooms, halls] = [limit('rooms', { concurrency: 5 }), limit('halls', { concurrency: 5 })]
  const first = await sluice.takes.take(rooms)
  const old = await holderOf(sluice.db, first.id)
  const kept = keepBack()
  const granted = later(sluice.takes.take(rooms))
  const goOn = await kept
  await giveUpHolders(sluice.db)
  const lostOne = keepBack()
  const denied = later(sluice.takes.take(halls))
  const goOnDenied = await lostOne
  // The first take that notices it begins anew.
  const present = await sluice.takes.take(halls)
  expect(first.signal.aborted).toBe(true)
  expect(await holderOf(sluice.db, present.id)).not.toBe(old)
  goOnDenied()
  goOn()
  for (const lease of [await granted, await denied])
    expect(await holderOf(sluice.db, lease.id)).toBe(await holderOf(sluice.db, present.id))
  expect(present.signal.aborted).toBe(false)
  // Beside the lost place, which is freed when it is needed.
  await until(async () => (await placesTaken(sluice.db, old)) === 1, 'the old place is given back')
})

it('a take waits for a busy store as long as it may wait at all', async () => {
  const calls = limit('busy', { rate: '1000/s', burst: 100 })
  let left = 4
  hook = async (name, _params, run) => {
    if (name !== takeCalls.acquire || left-- <= 0) return run()
    skippedMs += 1_500
    throw Object.assign(new Error('canceling statement due to lock timeout'), { code: '55P03' })
  }
  expect(await sluice.takes.take(calls)).toMatchObject({ isUncharged: false })
  left = Infinity
  const never = sluice.takes.take(calls, { maxWaitMs: 3_000 })
  await expect(never).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
})

it('a take ends by its signal also while it waits in line for a silent store', async () => {
  const calls = limit('line', { rate: '1000/s', burst: 100 })
  let goOn = () => {}
  const silent = new Promise<void>((resolve) => (goOn = resolve))
  let asked = 0
  hook = async (name, _params, run) => {
    if (name === takeCalls.acquire) {
      asked++
      await silent
    }
    return run()
  }
  const passing = Array.from({ length: 2 }, () => later(sluice.takes.take(calls)))
  await until(() => asked === 2, 'as many as pass at a time wait for the store')
  const controller = new AbortController()
  const waiting = later(sluice.takes.take(calls, { signal: controller.signal }))
  controller.abort(new Error('enough'))
  await expect(waiting).rejects.toThrow('enough')
  goOn()
  await Promise.all(passing)
})

it('a take that does not wait is answered while others stand in line for a slow store', async () => {
  const calls = limit('slow', { rate: '1000/s', burst: 100 })
  const kept: (() => void)[] = []
  hook = async (name, _params, run) => {
    if (name === takeCalls.acquire) await new Promise<void>((resolve) => kept.push(resolve))
    return run()
  }
  const others = Array.from({ length: 5 }, () => later(sluice.takes.take(calls)))
  await until(() => kept.length === 2, 'as many as pass at a time wait for the store')
  hook = passing
  await sluice.takes.tryTake(calls)
  expect(kept).toHaveLength(2)
  kept.forEach((goOn) => goOn())
  await Promise.all(others)
})

it('a take ends by its signal at once while the store is silent, and a grant that comes later goes back', async () => {
  const calls = limit('silent', { rate: '1000/s', burst: 100 })
  const kept = keepBack()
  const controller = new AbortController()
  const waiting = later(sluice.takes.take(calls, { signal: controller.signal }))
  const goOn = await kept
  controller.abort(new Error('enough'))
  await expect(waiting).rejects.toThrow('enough')
  expect(await units()).toBe(1)
  goOn()
  await until(async () => (await units()) === 0, 'its unit is given back')
})

it('a settlement that the store did not get may be made again, and counts once', async () => {
  const calls = limit('settled', { rate: '1000/s', burst: 100 })
  const lease = await sluice.takes.take(calls, { cost: 10 })
  hook = async (name, _params, run) => {
    if (name !== takeCalls.settle) return run()
    skippedMs += 5_000
    throw unreachable()
  }
  await expect(lease.settle(30)).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE' })
  hook = passing
  await lease.settle(30)
  expect(await units()).toBe(30)
  await lease.settle(50)
  expect(await units()).toBe(30)
})
