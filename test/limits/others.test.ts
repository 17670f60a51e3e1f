/** What a vendor's counts show of other users of the account, and what a bucket is charged: on a clock that the test moves. */
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { accept, giveBack } from '../takes/engine.ts'
import { addBucket, chargeOthers, grantOf, refuse, roomOf } from './engine.ts'

const startMs = 1_800_000_000_000
let names = 0

describe.each(mainEngines)('the use of others, on $name', (engine) => {
  const at = emptied(engine)
  let nowMs: number
  let clock: { set(ms: number): Promise<void> }
  let name: string
  const pass = async (seconds: number) => clock.set((nowMs += seconds * 1_000))
  const define = async (options: LimitOptions) => {
    await defineLimit(sqlOn(at.db), limit(name, options))
    await addBucket(at.db, name)
  }
  beforeEach(async () => {
    name = `others${names++}`
    nowMs = startMs
    clock = await ownClock(at.db, startMs)
    await clock.set(startMs)
  })

  const room = async () => {
    const [row] = await at.db.query<{ avail: string; debt: string[]; hold_s: number }>(
      `select avail, debt, greatest(0, hold - now_at) / 1000000::float8 as hold_s
       from ${roomOf('array[$1::bigint]')}`,
      [hash64(name)],
    )
    return { avail: Number(row?.avail), holdS: row?.hold_s }
  }
  const grant = (units: number) => grantOf(at.db, name, units)
  /** The vendor has so many units left of 100, in a window that began so long ago and, if known, ends then. */
  const count = async (left: number, sinceS: number, resetS?: number, most = 100) => {
    const resetUs = resetS === undefined ? null : resetS * 1e6
    const { units, heldUs } = await chargeOthers(at.db, name, { most, left, sinceUs: sinceS * 1e6, resetUs })
    return { charged: units, heldS: heldUs / 1e6 }
  }

  it('is charged as far as our own grants do not explain it, and once', async () => {
    await define({ window: '100/min' })
    await grant(20)
    await pass(10)
    expect(await count(50, 30)).toEqual({ charged: 30, heldS: 0 })
    expect((await room()).avail).toBe(50)
    expect(await count(50, 30)).toEqual({ charged: 0, heldS: 0 })
    expect((await count(48, 30)).charged).toBe(2)
    expect((await room()).avail).toBe(48)
  })

  it('is not charged for units under way, nor for what was given back', async () => {
    await define({ window: '100/min' })
    await grant(20)
    const unused = await grant(10)
    // The vendor has seen 5 of our 30.
    expect((await count(95, 30)).charged).toBe(0)
    await giveBack(at.db, name, unused, 10)
    expect((await count(75, 30)).charged).toBe(5)
  })

  it('holds a bucket of which nothing is left, also if the answer that shows it ends what a refusal held', async () => {
    await define({ window: '100/min' })
    await refuse(at.db, [name], { waitUs: 2e6 })
    await pass(3)
    await grant(1)
    expect(await count(0, 10, 30)).toMatchObject({ heldS: 30 })
    await accept(at.db, [name], 100_000)
    expect(await room()).toEqual({ avail: 0, holdS: 30 })
    await pass(30)
    expect((await room()).holdS).toBe(0)
    // An operator ends any hold.
    await refuse(at.db, [name], {})
    await accept(at.db, [name], null)
    expect((await room()).holdS).toBe(0)
  })

  it('counts only what was granted since the window of the vendor began', async () => {
    await define({ window: '100/min' })
    await grant(40)
    await pass(20)
    await grant(10)
    expect((await count(60, 10)).charged).toBe(30)
  })

  it('charges a rate no more than it could grant until the count begins anew', async () => {
    await define({ rate: '100/min' })
    // 10 at once, and 45 in the next 30 s.
    expect((await count(60, 30, 30)).charged).toBe(0)
    expect((await count(35, 30, 30)).charged).toBe(20)
    // In those 30 s it now grants the 35 that are left, spread evenly, and then its full rate again.
    expect((await room()).avail).toBe(0)
    await pass(30)
    expect((await room()).avail).toBe(10)
  })

  it('charges everything where it is not known when the count begins anew', async () => {
    await define({ rate: '100/min' })
    expect((await count(60, 60)).charged).toBe(40)
    expect((await room()).avail).toBe(0)
  })

  it('only tightens: a count with more left, or an older one, changes nothing', async () => {
    await define({ window: '100/min' })
    await grant(50)
    expect((await count(20, 30)).charged).toBe(30)
    expect((await count(100, 30)).charged).toBe(0)
    expect((await count(40, 30)).charged).toBe(0)
    expect((await room()).avail).toBe(20)
  })

  it('holds a bucket of which nothing is left until the count begins anew, and no longer', async () => {
    await define({ window: '100/min' })
    await grant(50)
    expect(await count(0, 30, 12)).toEqual({ charged: 50, heldS: 12 })
    expect((await room()).holdS).toBe(12)
    await pass(5)
    expect(await count(0, 35, 7)).toEqual({ charged: 0, heldS: 0 })
    expect((await room()).holdS).toBe(7)
  })

  it('leaves a window when it leaves the vendor’s', async () => {
    await define({ window: '100/min' })
    expect((await count(20, 30, 30)).charged).toBe(80)
    expect((await room()).avail).toBe(20)
    await pass(32)
    expect((await room()).avail).toBe(100)
  })

  it('writes nothing, and locks nothing, while there is nothing to charge', async () => {
    await define({ window: '100/min' })
    await grant(20)
    const rows = () => at.db.query('select n from sluice.ledger where bucket = $1', [hash64(name)])
    const before = await rows()
    await count(80, 30)
    await count(90, 30, 30)
    expect(await rows()).toEqual(before)
  })

  it('is left out for a bucket that nobody defined', async () => {
    expect(await count(10, 30)).toEqual({ charged: 0, heldS: 0 })
  })
})
