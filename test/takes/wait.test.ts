/** Takes that wait, end, and are lost; on the machine's clock. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { type Lease, limit } from '../../src/index.ts'
import { useSluice } from '../../src/default-sluice.ts'
import { Sluice } from '../../src/sluice.ts'
import { mainEngines, quietTask } from '../claim/engine.ts'
import { bigintMax } from '../claim/parked-stage.ts'
import { later, until } from '../until.ts'
import {
  acquire,
  addPlace,
  giveUpHolders,
  heldUntilUs,
  holderOf,
  lapseTakers,
  losePlace,
  placesTaken,
  takeCalls,
  takersInLine,
  takersWithTurn,
} from './engine.ts'

const rare = limit('rare', { window: '1/h' })
const one = limit('one', { concurrency: 1 })
const two = limit('two', { concurrency: 2 })
const busy = limit('busy', { concurrency: 1 })
/** Shortens waits that take seconds by design, above all renewals. */
const { sleep } = systemClock
const hasty: typeof systemClock = { ...systemClock, sleep: (ms, signal, ref) => sleep(ms / 20, signal, ref) }

describe.each(mainEngines)('waiting takes on $name', (engine) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await engine.store(), clock: hasty })
    await sluice.define([quietTask('any', [rare, one, two, busy])])
    useSluice(sluice)
  })
  afterAll(async () => {
    useSluice(undefined)
    await sluice.close()
  })
  /** What one test leaves taken for the next one. */
  let kept: Lease | undefined
  const inLine = () => takersInLine(sluice.db)

  it('are granted in the order of their requests', async () => {
    const order: number[] = []
    const waiting: Promise<unknown>[] = []
    const first = await one.take()
    for (let n = 0; n < 5; n++) {
      waiting.push(one.take().then((place) => (order.push(n), place.release())))
      // Requested one after the other, whatever order the connections would give.
      await until(async () => (await inLine()) === n + 1, 'it has asked')
    }
    await first.release()
    await Promise.all(waiting)
    expect(order).toEqual([0, 1, 2, 3, 4])
    expect(await inLine()).toBe(0)
  })

  it('stay in the line of all processes while those before them hold up their requests', async () => {
    const first = await busy.take()
    const waiting = Array.from({ length: 3 }, () => later(busy.take().then((place) => place.release())))
    await until(async () => (await inLine()) === 3, 'all wait')
    const call = sluice.db.call.bind(sluice.db)
    const kept: (() => void)[] = []
    sluice.db.call = async (name, sql, params) => {
      const isKept = name === takeCalls.acquire && String(params[1]) === 'busy'
      if (isKept) await new Promise<void>((resolve) => kept.push(resolve))
      return call(name, sql, params)
    }
    try {
      await until(() => kept.length === 2, 'as many as pass at a time are under way')
      await lapseTakers(sluice.db)
      const isKeptInLine = async () => {
        await one.tryTake().then(({ lease }) => lease?.release())
        return (await takersWithTurn(sluice.db)) === 1
      }
      await until(isKeptInLine, 'the one that waits for its turn to be sent is in line')
      await first.release()
      expect(await acquire(sluice.db, 'busy')).toMatchObject({ granted: false })
    } finally {
      sluice.db.call = call
      for (const goOn of kept) goOn()
    }
    await Promise.all(waiting)
  })

  it('end at once when they cannot be granted in time, and when their time is over', async () => {
    const first = await rare.take()
    expect(first).toMatchObject({ isUncharged: false })
    const late = rare.take({ maxWaitMs: 1_000 })
    await expect(late).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT', retryable: true })
    const error = (await late.catch((e: unknown) => e)) as { retryAfterMs: number }
    expect(error.retryAfterMs).toBeGreaterThan(3_000_000)
    await using place = await one.take()
    await expect(one.take({ maxWaitMs: 40 })).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
    await until(async () => (await inLine()) === 0, 'nobody is in line')
    expect(place.signal.aborted).toBe(false)
    expect(place.freshForMs).toBe(Infinity)
  })

  it('end by an abort signal, and leave the line', async () => {
    await using _place = await one.take()
    const controller = new AbortController()
    const waiting = one.take({ signal: controller.signal })
    waiting.catch(() => {})
    await until(async () => (await inLine()) === 1, 'it waits')
    controller.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    await until(async () => (await inLine()) === 0, 'nobody is in line')
    await expect(one.take({ signal: controller.signal })).rejects.toThrow('enough')
  })

  it('pass a place on from one to the next, and never to two', async () => {
    let now = 0
    let most = 0
    const visit = async () => {
      await using _place = await one.take()
      most = Math.max(most, ++now)
      await new Promise((resolve) => setImmediate(resolve))
      now--
    }
    await Promise.all(Array.from({ length: 12 }, visit))
    expect(most).toBe(1)
    expect(await placesTaken(sluice.db)).toBe(0)
    kept = await one.take()
    expect(await one.tryTake()).toMatchObject({ granted: false, retryAfterMs: 1_000 })
  })

  it('begin anew in a process whose holder was given up, which is reported', async () => {
    expect(await placesTaken(sluice.db)).toBe(1)
    await kept?.release()
    const lease = await one.take()
    await giveUpHolders(sluice.db)
    await until(() => lease.signal.aborted, 'it is told')
    expect(lease.signal.reason).toMatchObject({ code: 'SLUICE_LEASE_LOST' })
    const next = await one.take()
    expect(next.signal.aborted).toBe(false)
    expect([lease.freshForMs, next.freshForMs]).toEqual([0, Infinity])
    await lease.release()
    expect(await one.tryTake()).toMatchObject({ granted: false })
    await next.release()
  })

  it('renew a place for as long as it is held, and give back a place that the process does not know', async () => {
    await using lease = await one.take()
    const first = await heldUntilUs(sluice.db)
    await addPlace(sluice.db, lease.id)
    const isRenewed = async () => (await heldUntilUs(sluice.db)) > first && (await placesTaken(sluice.db)) === 1
    await until(isRenewed, 'it is renewed')
    expect(lease.signal.aborted).toBe(false)
  })

  it('lose a place that the store has lost, and no other', async () => {
    await using lease = await two.take()
    await using kept = await two.take()
    const before = await holderOf(sluice.db, kept.id)
    await losePlace(sluice.db, lease.id)
    await until(() => lease.signal.aborted, 'it is told')
    expect(lease.signal.reason).toMatchObject({ code: 'SLUICE_LEASE_LOST' })
    expect(kept.signal.aborted).toBe(false)
    expect([lease.freshForMs, kept.freshForMs]).toEqual([0, Infinity])
    expect(await holderOf(sluice.db, kept.id)).toBe(before)
  })

  it('free their places even if the data of one bucket cannot be computed with', async () => {
    const [bad, good] = [await one.take(), await two.take()]
    await sluice.db.query(`update sluice.ledger set n = ${bigintMax} where ctid = (
      select ctid from sluice.ledger where bucket = sluice.hash64('one') order by at desc, n desc limit 1)`)
    await Promise.all([bad.release(), good.release()])
    expect(await holderOf(sluice.db, good.id)).toBe(undefined)
    await until(async () => (await placesTaken(sluice.db)) === 0, 'the place of the parked bucket is free, too')
    await sluice.db.query(`update sluice.ledger set n = 1000 where n = ${bigintMax}`)
    expect(await sluice.release('one')).toBe(true)
    await (await one.take()).release()
  })

  it('give back places that the process does not know even if the data of one bucket cannot be computed with', async () => {
    const [bad, good] = [await one.take(), await two.take()]
    for (const { id } of [bad, good]) await addPlace(sluice.db, id)
    await sluice.db.query(`update sluice.ledger set n = ${bigintMax} where ctid = (
      select ctid from sluice.ledger where bucket = sluice.hash64('one') order by at desc, n desc limit 1)`)
    await until(async () => (await placesTaken(sluice.db)) === 2, 'both are given back')
    await sluice.db.query(`update sluice.ledger set n = 2000 where n = ${bigintMax}`)
    expect(await sluice.release('one')).toBe(true)
    await Promise.all([bad.release(), good.release()])
  })

  it('end by close, which gives places back', async () => {
    if (engine.name === 'PGlite') return
    const other = await Sluice.open({ store: sluice.url ?? '' })
    const lease = await other.takes.take(one)
    const waiting = other.takes.take(one)
    waiting.catch(() => {})
    await until(async () => (await inLine()) === 1, 'it waits')
    await other.close()
    await expect(waiting).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(lease.signal.reason).toMatchObject({ code: 'SLUICE_CLOSED' })
    expect(await placesTaken(sluice.db)).toBe(0)
    expect(await inLine()).toBe(0)
  })

  it('end by close at any moment, and leave neither a place nor a taker in line', async () => {
    if (engine.name === 'PGlite') return
    for (let n = 0; n < 10; n++) {
      const other = await Sluice.open({ store: sluice.url ?? '' })
      const taking = Array.from({ length: 6 }, (_, i) => other.takes.take(i % 2 === 0 ? one : two).catch((e) => e))
      for (let turn = 0; turn < n; turn++) await other.db.query('select 1')
      await other.close()
      for (const lease of await Promise.all(taking)) if ('signal' in lease) expect(lease.signal.aborted).toBe(true)
      expect([await placesTaken(sluice.db), await inLine()]).toEqual([0, 0])
    }
  })
})
