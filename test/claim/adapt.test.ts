/** The rate of an adaptive limit finds what a vendor allows, also when that changes: minutes on a clock that the test moves. */
import { beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { adapt } from '../../src/claim/definitions/adapt.ts'
import { defineLimit, Definitions } from '../../src/claim/definitions/define.ts'
import { sqlOn } from '../../src/db/store.ts'
import { money } from '../../src/core/money.ts'
import { limit } from '../../src/limits/limit.ts'
import type { LimitNumbers } from '../../src/limits/numbers.ts'
import { rulesOf } from '../../src/limits/rules.ts'
import { freshSluice } from '../servers/sluice.ts'
import { isLong } from '../long.ts'
import { Account } from '../vendors/account.ts'
import { Minutes, type Window } from '../vendors/minutes.ts'
import { putAdapted } from './engine-parts.ts'

const minute = 60_000

let minutes: Minutes
const sluice = await freshSluice()
beforeAll(async () => {
  minutes = new Minutes(sluice.db)
  await minutes.open()
})

const mean = (windows: readonly Window[]) => windows.reduce((sum, { ours }) => sum + ours, 0) / windows.length

describe('a hidden limit', () => {
  const cases = [
    { way: 'fixed window', start: 20, atLeast: 42.5 },
    { way: 'sliding log', start: 20, atLeast: 42.5 },
    // Its windows after the change have 40, 43, 41 and 45.
    { way: 'bucket', start: 20, atLeast: 42 },
    { way: 'fixed window', start: 600, atLeast: 42.5 },
    { way: 'fixed window', start: 100, atLeast: 42.5 },
  ] as const
  it.each(isLong ? cases : cases.slice(0, 1))(
    'of 100 is found within 10 windows, and a change to 50 within 2: $way, from $start',
    async ({ way, start, atLeast }) => {
      const of = limit(`hidden-${way[0]}-${start}`, { rate: `${start}/min`, adaptive: { floor: 5, ceiling: 1_000 } })
      const account = new Account(way, 100)
      let nowMs = 0
      const clock = { ...systemClock, monotonicMs: () => nowMs }
      const fleet = [0, 1].map(() => new Definitions(sqlOn(sluice.db), clock))
      const change = isLong ? 24 : 12
      const windows = await minutes.play({
        of,
        account,
        untilMs: (change + 6) * minute,
        stepMs: isLong ? 500 : 2_000,
        step: async (ms) => {
          if (account.windowOf(ms) + 1 >= change) account.allow(50)
          nowMs = ms
          // Two processes look at the same time, every 5 s.
          await Promise.all(fleet.map((one) => (ms === 0 ? one.define([of]) : one.renew())))
          return 0
        },
      })
      const history = await sluice.limits.history(of.name, { max: 200 })
      expect(mean(windows.slice(9, change))).toBeGreaterThanOrEqual(85)
      expect(mean(windows.slice(change + 2, change + 6))).toBeGreaterThanOrEqual(atLeast)
      for (const { refused } of windows.slice(change + 2)) expect(refused).toBeLessThanOrEqual(1)
      expect((await sluice.verify({ limit: of.name })).isProved).toBe(true)
      // At most two versions in a window.
      expect(history.length).toBeLessThanOrEqual(2 * windows.length)
    },
  )
})

it('a rate that was found gives way to an operator’s, and to code that no longer wants it', async () => {
  const of = limit('found', { rate: '20/min', adaptive: true })
  const sql = sqlOn(sluice.db)
  const inForce = async () => {
    const { source, numbers, adaptive } = await sluice.limits.show('found')
    return { source, rate: numbers.rate, adaptive }
  }
  const account = new Account('fixed window', 100)
  const step = async () => (await adapt(sql, of), 0)
  await minutes.play({ of, account, untilMs: 100_000, stepMs: 5_000, step })
  const found = { source: 'found', rate: '40/min', adaptive: { floor: 1, ceiling: 2_000 } }
  expect(await inForce()).toEqual(found)
  await sluice.limits.set('found', { rate: '5/min' }, { reason: 'an incident' })
  await adapt(sql, of)
  expect(await inForce()).toMatchObject({ source: 'stored', rate: '5/min' })
  await sluice.limits.unset('found')
  expect(await inForce()).toEqual(found)
  await defineLimit(sql, limit('found', { rate: '30/min' }))
  expect(await inForce()).toMatchObject({ source: 'code', rate: '30/min', adaptive: undefined })
  const { isProved } = await sluice.verify({ limit: 'found' })
  expect(isProved).toBe(true)
})

it('a rate in money is found in money', async () => {
  const sql = sqlOn(sluice.db)
  const upTo = (usd: number) =>
    limit('spend', { rate: '5 USD/min', cost: money(0.01), adaptive: { ceiling: money(usd) } })
  await defineLimit(sql, upTo(20))
  const numbers = limit('spend', { rate: '20 USD/min', cost: 1 })
  await putAdapted(sluice.db, 'spend', { version: 1, numbers, adaptive: { floor: 1, ceiling: money(20) } })
  expect(await sluice.limits.show('spend')).toMatchObject({ source: 'found', numbers: { rate: '20 USD/min' } })
  await adapt(sql, upTo(8.5))
  expect(await sluice.limits.show('spend')).toMatchObject({ numbers: { rate: '8.50 USD/min' }, currency: 'USD' })
})

it('a rate is found although its margin changes, and what the vendor refused before such a change counts', async () => {
  const of = limit('margins', { rate: '20/min', adaptive: true })
  const sql = sqlOn(sluice.db)
  const shown = async () => {
    const { numbers, marginMs } = await sluice.limits.show('margins')
    return { rate: numbers.rate, marginMs }
  }
  /** As `Margins` does it, with lives of this many ms. */
  const widen = async (lifeMs: number) => {
    const [row] = await sluice.db.query<{ version: number; spec: { numbers: LimitNumbers } }>(
      `select version, spec from sluice.limit_def where name = 'margins' order by version desc limit 1`,
    )
    const { version = 0, spec: { numbers } = of } = row ?? {}
    const made = {
      ...rulesOf('margins', numbers, { grantUs: lifeMs * 1_000, transitUs: 100_000 }),
      classic: false,
      numbers,
    }
    await putAdapted(sluice.db, 'margins', { version, numbers: made })
  }
  const account = new Account('fixed window', 50)
  let found: unknown
  const step = async (ms: number) => {
    if (ms === 100_000) [found] = [await shown(), account.allow(15)]
    await widen(ms % 10_000 === 0 ? 50 : 70)
    await adapt(sql, of)
    return 0
  }
  await minutes.play({ of, account, untilMs: 200_000, stepMs: 5_000, step })
  expect(found).toEqual({ rate: '40/min', marginMs: 170 })
  expect(await shown()).toEqual({ rate: '20/min', marginMs: 170 })
})
