/** Slow answers are charged once more: which, and what the margin is when they cannot be. */
import { describe, expect, it } from 'vitest'
import { Margins } from '../../src/claim/definitions/margins.ts'
import type { LimitOptions } from '../../src/limits/limit.ts'
import type { ChargeAgain } from '../../src/limits/samples.ts'
import { freshSluice } from '../servers/sluice.ts'
import { until } from '../until.ts'
import { addBucket, chargeAgain, roomOf } from '../limits/engine.ts'
import { fleetOn, narrow } from './margin-fleet.ts'
import { definitionCalls } from './engine-parts.ts'

const sluice = await freshSluice()

const recordedIn =
  (charged: string[]): ChargeAgain =>
  async (limits) =>
    void charged.push(...limits)

const fleet = (options?: LimitOptions) => fleetOn(sluice, options)

describe('the margin of a fleet with slow answers', () => {
  it('stays small when few answers are slow, each of which is charged once more', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    const charged: string[] = []
    const charge = recordedIn(charged)
    await pass(100, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
    expect(charged).toEqual([])
    expect(one.measureWay([of]).overdueMs()).toBe(102)
    for (const tookMs of [60, 300, 4]) one.recordAnswer([of], tookMs, charge)
    expect(charged).toEqual([of.name, of.name])
    await new Promise(setImmediate)
    await pass(10, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
  })

  it('is as small for a limit that has a quota too, which does not count what is charged once more', async () => {
    const { of, store, join, pass, inForce } = await fleet({ rate: '200/s', quota: '1000/day' })
    const one = await join()
    const id = await addBucket(sluice.db, of.name)
    const charge = () => chargeAgain(store.db, of.name, 3)
    await charge()
    await pass(100, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
    one.recordAnswer([of], 60, charge)
    const rows = () =>
      sluice.db.query<{ units: string; kinds: string[]; debt: string[]; quota: string[][] }>(
        `select l.units, d.kind as kinds, l.debt, l.quota from sluice.ledger l
         join sluice.limit_def d on d.name = $1 and d.version = l.version where l.bucket = $2 order by l.at, l.n`,
        [of.name, id],
      )
    await until(async () => (await rows()).filter(({ units }) => Number(units) > 0).length === 2, 'it is charged')
    for (const { kinds, debt, quota } of await rows()) {
      expect(Number(debt[0])).toBeGreaterThan(0)
      expect(quota[kinds.indexOf('quota')]?.slice(3).map(Number)).toEqual([0, 0, 0])
    }
    await sluice.limits.set(of.name, { rate: '200/s', quota: '2000/day' }, { reason: 'the vendor allows more' })
    const read = `select r.quota, r.kind as kinds from ${roomOf('array[$1::bigint]', 'null')} r`
    const [anew] = await sluice.db.query<{ quota: string[][]; kinds: string[] }>(read, [id])
    expect(Number(anew?.quota[anew.kinds.indexOf('quota')]?.[4])).toBe(0)
  })

  it('is wide again when a slow answer could not be charged once more', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    await pass(100, [2, 4], [one], async () => {})
    expect(await inForce()).toEqual(narrow)
    one.recordAnswer([of], 60, () => Promise.reject(new Error('the store is away')))
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is wide again when a slow answer was charged so late that its request may have left the window', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    await pass(100, [2, 4], [one], async () => {})
    let recorded = () => {}
    one.recordAnswer([of], 60, () => new Promise((resolve) => (recorded = resolve)))
    await pass(10, [2, 4], [one], async () => {})
    expect(await inForce()).toEqual(narrow)
    recorded()
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is wide again when an answer was noticed so late that its request may have left the window', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    const charge = async () => {}
    await pass(100, [2, 4], [one], charge)
    one.recordAnswer([of], 790, charge)
    await new Promise(setImmediate)
    await pass(10, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
    // Units may have been granted before the charge for 200 ms later, when the request has left the window.
    one.recordAnswer([of], 810, charge)
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is measured by the answer where only another limit of the request takes it for overdue', async () => {
    const quick = await fleet()
    const short = await fleet({ rate: '40/200ms' })
    const one = await quick.join()
    await one.join([short.of])
    const charged: string[] = []
    const charge = recordedIn(charged)
    await quick.pass(100, [2, 4], [one], charge)
    const answers = () =>
      sluice.db.query(`select answers::int as answers, most::int / 1000 as most from sluice.measured where name = $1`, [
        short.of.name,
      ])
    const way = one.measureWay([quick.of, short.of], charge)
    expect(way.overdueMs()).toBe(102)
    way.recordOverdue(102)
    expect([charged, way.overdueMs()]).toEqual([[quick.of.name], undefined])
    way.recordAnswer(400)
    expect(charged).toEqual([quick.of.name])
    await quick.pass(10, [2, 4], [one], charge)
    // Half as much again as its only answer differs from itself, and a millisecond.
    expect(await answers()).toEqual([{ answers: 1, most: 401 }])
  })

  it('widens before slower answers are no longer charged, when many are slow', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    let charged = 0
    const charge = async () => void charged++
    await pass(100, [2, 4], [one], charge)
    await pass(10, [2, 4, 30], [one], charge)
    expect(charged).toBe(20)
    expect(await inForce()).toEqual([10, 30])
    for (let i = 0; i < 2; i++) await pass(10, [2, 4, 30], [one], charge)
    expect(charged).toBe(40)
    // What varies by more than is stated is not charged at all.
    await pass(60, [2, 4, 300], [one], charge)
    expect(await inForce()).toEqual([10, 100])
    expect(one.measureWay([of]).overdueMs()).toBeUndefined()
  })

  it('is measured as ever where short windows, long ones or stated numbers leave nothing to be gained by a charge', async () => {
    for (const options of [{ rate: '20/200ms' }, { rate: '200/s', window: '9000/h' }, { rate: '200/s', transit: 30 }]) {
      const { of, join, pass } = await fleet(options as LimitOptions)
      const one = await join()
      let charged = 0
      await pass(60, [2, 4, 60], [one], async () => void charged++)
      expect([charged, one.measureWay([of]).overdueMs()]).toEqual([0, undefined])
    }
  })

  it('charges every answer of a process that has not reported for half a minute, until its next report but one', async () => {
    const { of, join, pass } = await fleet()
    const one = await join()
    const other = await join()
    let charged = 0
    const charge = async () => void charged++
    await pass(60, [2, 4], [one, other], charge)
    one.recordAnswer([of], 3, charge)
    expect(charged).toBe(0)
    await pass(40, [2, 4], [other], charge)
    one.recordAnswer([of], 3, charge)
    expect(charged).toBe(1)
    await new Promise(setImmediate)
    // Until its next report but one, because another process may act by what it read before.
    for (let i = 0; i < 2; i++) await pass(10, [2, 4], [other, one], charge)
    expect(charged).toBe(121)
    one.recordAnswer([of], 3, charge)
    expect(charged).toBe(121)
  })

  it('charges by the lower bound until a second limiter has the wider margin', async () => {
    const { join, pass, inForce } = await fleet()
    const one = await join()
    one.follow(450, async () => {})
    let charged = 0
    const charge = async () => void charged++
    await pass(200, [2, 4], [one], charge)
    const each = []
    for (let i = 0; i < 5; i++) {
      charged = 0
      await pass(10, [2, 4, 30], [one], charge)
      each.push([charged, ...(await inForce())])
    }
    // In force after the first report, seen at the second, known everywhere twenty seconds later.
    expect(each).toEqual([
      [20, 10, 30],
      [20, 10, 30],
      [20, 10, 30],
      [20, 10, 30],
      [0, 10, 30],
    ])
  })

  it('still charges by the lower bound when another process made the margin smaller by what it had read before', async () => {
    const { of, store, join, pass, inForce } = await fleet()
    let [isOn, isPut, go] = [false, false, () => {}]
    const gate = new Promise<void>((resolve) => (go = resolve))
    const call: typeof store.call = async (name, params) => {
      isPut ||= isOn && name === definitionCalls.adapt
      if (isPut) await gate
      return store.call(name, params)
    }
    const other = new Margins({ clock: store.clock, call, run: store.run.bind(store) } as typeof store)
    const one = await join()
    await other.join([of])
    let charged = 0
    const charge = async () => void charged++
    await pass(50, [2, 4], [other], charge)
    await pass(20, [2, 4], [one, other], charge)
    expect(await inForce()).toEqual([10, 190])
    isOn = true
    const passing = pass(10, [2, 4], [other], charge)
    await until(() => isPut, 'it has read')
    for (let i = 0; i < 60; i++) one.recordAnswer([of], 30, charge)
    await one.renew()
    go()
    await passing
    expect(await inForce()).toEqual(narrow)
    charged = 0
    one.recordAnswer([of], 30, charge)
    expect(charged).toBe(1)
  })

  it('keeps its margin when a process that was frozen for seconds wants to change it by what it had read before', async () => {
    const { of, store, pass, inForce } = await fleet()
    let frozenUs = 0
    const run: typeof store.run = async (name, params) => {
      const rows = await store.run<never>(name, params)
      return name === 'limits/definitions/read_measurements'
        ? rows.map((row: { read: number }) => ({ ...row, read: row.read - frozenUs }) as never)
        : rows
    }
    const frozen = new Margins({ clock: store.clock, call: store.call.bind(store), run } as typeof store)
    await frozen.join([of])
    await pass(40, [2, 4], [frozen])
    expect(await inForce()).toEqual([10, 190])
    frozenUs = 4_000_000
    await pass(60, [2, 4], [frozen])
    expect(await inForce()).toEqual([10, 190])
    frozenUs = 0
    await pass(10, [2, 4], [frozen])
    expect(await inForce()).toEqual(narrow)
  })
})
