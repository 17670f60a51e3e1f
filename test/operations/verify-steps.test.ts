/** The proof from the ledger after steps of the store's clock. */
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import type { Db } from '../../src/db/db.ts'
import { empty, mainEngines } from '../claim/engine.ts'
import { second } from '../limits/oracle.ts'
import { forAllInTime } from '../for-all.ts'
import { isLong } from '../long.ts'
import { checkClock, deleteLedger, forgetSteps, refundEach, undoClockStep, watchClock } from '../limits/engine.ts'
import { ledgerOn, startUs } from './ledger-stage.ts'

describe.each(mainEngines)('a step of the store clock, on $name,', ({ store }) => {
  const ledger = ledgerOn(store)
  const { query, at, define, take } = ledger
  const hour = 3_600 * second
  const watch = async <T>(act: (db: Db) => Promise<T>) => {
    await watchClock(ledger.sluice.db)
    const result = await act(ledger.sluice.db)
    await watchClock(ledger.sluice.db, false)
    return result
  }
  afterEach(async () => {
    await forgetSteps(ledger.sluice.db)
    await watchClock(ledger.sluice.db, false)
  })
  const forward = (us: number) => watch((db) => undoClockStep(db, us))
  const back = (leastUs: number) => watch((db) => checkClock(db, startUs + leastUs))

  it('forward and back again judges quotas by the clock\'s periods, and reads "30m ago" by the limiter\'s clock', async () => {
    await define({ quota: '10/h' })
    expect(await take(5)).toBe(5)
    await at(hour + second)
    expect(await forward(hour)).toBe('moved')
    await at(hour + 10 * second)
    // The next period has begun, 10 s after the grants of the one before.
    expect(await take(20)).toBe(10)
    const rules = [{ guarantee: 'quota', worst: 10, exceeded: 0 }]
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 15, rules })
    expect(await ledger.sluice.verify({ since: '5s' })).toMatchObject({ isProved: true, grants: 15, rules })
    await query('update sluice.ledger set units = 2 where n = 15')
    const periodMs = Math.floor((startUs + hour) / hour) * (hour / 1_000)
    const { exceeded } = await ledger.sluice.verify()
    expect(exceeded).toMatchObject([
      { units: 11, most: 10, from: new Date(periodMs), to: new Date(periodMs + hour / 1_000) },
    ])
    expect(exceeded[0]?.grants).toHaveLength(10)
  })

  it("back judges quotas by the clock's periods", async () => {
    await define({ quota: '10/h' })
    expect(await take(5)).toBe(5)
    await at(second - hour)
    await back(second)
    expect(await query('select clock_offset_us / 1000000 as ahead from sluice.epoch')).toMatchObject([
      { ahead: '3600' },
    ])
    const granted = await take(20)
    await at(2 * second)
    expect(5 + (await take(20))).toBe(10)
    await at(hour)
    expect(await take(20)).toBe(10)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 20 + granted, rules: [{ worst: 10 }] })
  })

  it('back by many periods finds each within its limit, also those that had begun before', async () => {
    await define({ quota: '10/min' })
    expect(await take(7)).toBe(7)
    const minutes = 5
    await at(second - minutes * 60 * second)
    await back(second)
    const got: number[] = []
    for (let seconds = 1; seconds < (minutes + 2) * 60; seconds += 20) {
      await at((seconds - minutes * 60) * second)
      got.push((await take(20)) + (await take(20)))
    }
    expect(got.filter((units) => units > 0)).toEqual([...Array<number>(minutes).fill(10), 3, 10, 10])
    const rules = [{ worst: 10, exceeded: 0 }]
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 80, rules })
  })

  it('to and fro counts each grant in the period that the clock showed', async () => {
    await define({ quota: '10/h' })
    expect(await take(20)).toBe(10)
    await at(hour + second)
    await forward(hour)
    await at(hour + 10 * second)
    expect(await take(20)).toBe(10)
    await at(20 * second)
    await back(20 * second)
    await at(30 * second)
    expect(await take(20)).toBe(0)
    await at(hour)
    expect(await take(20)).toBe(0)
    await at(2 * hour)
    expect(await take(20)).toBe(10)
    const rules = [{ worst: 10, exceeded: 0 }]
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 30, rules })
    // Steps are kept for longer than the ledger reaches back, because retention goes by them.
    await deleteLedger(ledger.sluice.db, 1)
    await deleteLedger(ledger.sluice.db, 1)
    expect(await query('select count(*)::integer as n from sluice.step')).toEqual([{ n: 2 }])
  })

  it('back over a period that is not used again still counts its grants where it ends', async () => {
    await define({ quota: '10/min' })
    await at(68 * second)
    expect(await take(1)).toBe(1)
    await at(-185 * second)
    await back(69 * second)
    await at(-26 * second)
    expect(await take(1)).toBe(1)
    // The end of the minute in which the first unit was granted: a call now may count there.
    await at(100 * second)
    await take(10)
    await at(101 * second)
    await take(10)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, rules: [{ worst: 10, exceeded: 0 }] })
  })

  it('finds no room in the next period from refunds of the period that the step ended', async () => {
    await define({ quota: '10/h' })
    expect(await take(5)).toBe(5)
    await at(hour + second)
    await forward(hour)
    await at(hour + 10 * second)
    expect(await take(20)).toBe(10)
    await query(refundEach('(select * from sluice.ledger order by n limit 5) l'))
    expect(await take(20)).toBe(0)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, rules: [{ worst: 10 }] })
  })

  it('proves every decision, whatever the steps are', async () => {
    const anyAct = fc.oneof(
      { weight: 3, arbitrary: fc.record({ passS: fc.integer({ min: 1, max: 80 }) }) },
      { weight: 4, arbitrary: fc.record({ want: fc.integer({ min: 1, max: 12 }) }) },
      { weight: 1, arbitrary: fc.record({ refund: fc.integer({ min: 1, max: 9 }) }) },
      { weight: 1, arbitrary: fc.record({ stepS: fc.integer({ min: -400, max: 400 }) }) },
    )
    await forAllInTime(isLong ? 400 : 12, fc.array(anyAct, { minLength: 20, maxLength: 50 }), async (acts) => {
      await empty(ledger.sluice.db)
      await query('truncate sluice.limit_def, sluice.limit_source')
      await forgetSteps(ledger.sluice.db)
      await define({ quota: ['10/min', '60/h'] })
      let [trueS, offS] = [0, 0]
      for (const act of acts) {
        if ('passS' in act) await at(((trueS += act.passS) + offS) * second)
        else if ('want' in act) await take(act.want)
        else if ('refund' in act)
          await query(
            refundEach(`(select * from sluice.ledger l where units > 0 and not exists (
                select 1 from sluice.ledger where claim = l.claim and units < 0) order by at desc, n desc offset $1 limit 1) l`),
            [act.refund],
          )
        else if (Math.abs(act.stepS) > 3) {
          await at((++trueS + (offS += act.stepS)) * second)
          if (act.stepS < 0) await back(trueS * second)
          else await forward(act.stepS * second)
        }
      }
      expect(await ledger.sluice.verify()).toMatchObject({ isProved: true })
    })
  })
})
