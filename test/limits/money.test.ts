/** Limits in money: amounts are whole millionths of a currency, and larger than 32 bits where a budget is. */
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { amount, money, unitsOf } from '../../src/core/money.ts'
import { costOf, declaredOf } from '../../src/limits/cost.ts'
import { guaranteeOf } from '../../src/limits/exposure.ts'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { claimAll, type Claimed, done, emptied, mainEngines, ownClock, settle } from '../claim/engine.ts'
import '../property.ts'
import { sumUsage } from './engine.ts'
import { forAll } from '../for-all.ts'

const cost = () => money(0.002)

it('an amount is rounded up to the next millionth, and not by what floating point adds', () => {
  expect([0, 0.002, 1.1, 0.1 + 0.2, 50, 0.000_000_1, 1e9].map(money)).toEqual([
    0, 2_000, 1_100_000, 300_000, 50_000_000, 1, 1e15,
  ])
  for (const bad of [-1, NaN, Infinity, 1e9 + 1, '5'])
    expect(() => money(bad as number)).toThrow('an amount is a number')
  forAll(fc.integer({ min: 0, max: 2 ** 40 }), (micros) => {
    expect(money(micros / 1_000_000)).toBe(micros)
    const [shown = ''] = amount(micros, 'USD').split(' ')
    expect(Math.round(Number(shown) * 1_000_000)).toBe(micros)
    expect(unitsOf(`${shown} USD/day`)).toEqual({ text: `${micros}/day`, currency: 'USD' })
  })
})

it('amounts are shown as people write them', () => {
  expect([0, 2_000, 41_500_000, 50_000_000, 1, -500_000].map((units) => amount(units, 'EUR'))).toEqual([
    '0 EUR',
    '0.002 EUR',
    '41.50 EUR',
    '50 EUR',
    '0.000001 EUR',
    '-0.50 EUR',
  ])
  expect(amount(5, undefined)).toBe('5')
})

it('quotas, windows and rates may be money; what they cannot hold is refused with what to do', () => {
  const [quota] = limit('a', { quota: '50 USD/month', cost }).rules
  expect(quota).toMatchObject({ kind: 'quota', rate: '50 USD/month', units: 50_000_000, capacity: 50_000_000 })
  expect(limit('a', { window: '2.5 EUR/h', cost })).toMatchObject({ currency: 'EUR', rules: [{ units: 2_500_000 }] })
  expect(limit('a', { rate: '1 USD/min', cost }).rules[0]).toMatchObject({ units: 1_000_000, capacity: 100_000 })
  expect(limit('a', { quota: '1000000000 USD/month', cost }).rules[0]).toMatchObject({ capacity: 1e15 })
  const bad = (options: object) => () => limit('a', { cost, ...options } as never)
  expect(bad({ quota: '1000000001 USD/month' })).toThrow('holds at most 1,000,000,000 USD')
  expect(bad({ window: '2148 USD/day' })).toThrow('a window holds at most 2147.483647 USD; use a quota')
  expect(bad({ rate: '50 USD/h' })).toThrow('or a `window`, which counts exactly')
  for (const text of ['$50/month', '50 usd/month', '50USD/month', '0.0000001 USD/day', '50 €/month'])
    expect(bad({ quota: text })).toThrow(`"${text}" is no amount of money: write for example '50 USD/month'`)
  expect(bad({ quota: ['50 USD/month', '10 EUR/day'] })).toThrow('give all of them in one currency')
  expect(bad({ quota: '50 USD/month', rate: '10/s' })).toThrow('give all of them in one currency')
  expect(bad({ quota: '50 USD/month', cost: undefined })).toThrow('a limit in money needs one, such as money(0.002)')
  expect(bad({ quota: '50 USD/month', concurrency: 3 })).not.toThrow()
})

it('a cost that is no whole number of millionths is refused, with what to write', () => {
  const spend = (of: unknown) => limit('spend', { quota: '50 USD/month', cost: () => of as number })
  expect(() => declaredOf(spend(0.002), {})).toThrow(
    'which gave 0.002; it must be a whole number from 0 to 2147483647, in millionths of USD: `money(0.002)` gives them, up to 2147.483647 USD for one job',
  )
  expect(() => declaredOf(spend(money(3_000)), {})).toThrow('up to 2147.483647 USD for one job')
  expect(() => costOf(spend(money(50.01)), {})).toThrow(
    'the job costs 50.01 USD in limit "spend", whose quota 50 USD/month holds 50 USD at most',
  )
})

it('guarantees are in money, and no vendor counts a budget', () => {
  const { sentence, rules, vendors } = guaranteeOf(limit('a', { quota: '50 USD/month', cost }))
  expect(rules[0]?.text).toMatch(/^50 USD\/month: at most 50 USD in any month of UTC, .* up to 100 USD in a span/)
  expect(sentence).toMatch(
    /^the vendor sees at most 50 USD in each period of quota 50 USD\/month \(100 USD in a span as long that reaches into two\)/,
  )
  expect(vendors).toEqual([])
})

describe.each(mainEngines)('a budget beyond 32 bits, on $name', (engine) => {
  const at = emptied(engine)
  const startMs = Date.parse('2026-11-10T00:00:00Z')
  let clock: { set(ms: number): Promise<void> }
  beforeEach(async () => {
    clock = await ownClock(at.db, startMs)
    await clock.set(startMs)
  })

  it('is granted exactly, settled, explained, and summed by key', async () => {
    const spend = limit('spend', { quota: '10000 USD/month', by: 'tenant', transit: 0, cost: () => money(2_000) })
    const input = z.object({ tenant: z.string() })
    const buy = task('buy', { input, limits: [spend], run: () => undefined })
    await at.sluice.sendMany(
      buy,
      Array.from({ length: 14 }, (_, i) => ({ tenant: i % 2 === 0 ? 'a' : 'b' })),
    )
    const claim = () => claimAll(at.db, at.worker, ['buy'], 20)
    const jobs = await claim()
    const of = (all: Claimed[], tenant: string) =>
      all.filter((job) => (job.input as { tenant: string }).tenant === tenant)
    expect([of(jobs, 'a').length, of(jobs, 'b').length]).toEqual([5, 5])
    expect(await claim()).toEqual([])
    const [waiting] = await at.sluice.jobs.list({ state: 'waiting' })
    const why = await at.sluice.why(waiting?.id ?? '')
    expect(why?.reasons.find(({ kind }) => kind === 'limit')?.text).toMatch(
      /^spend \(10000 USD\/month for [ab]\) has 0 USD free, and the job needs 2000 USD/,
    )
    // Tenant a used a half of each: there is room for two and a half more.
    for (const job of of(jobs, 'a'))
      await settle(at.db, job, 'spend', money(1_000), { units: money(2_000), isFull: true })
    await done(at.db, jobs)
    const more = await claim()
    expect([of(more, 'a').length, of(more, 'b').length]).toEqual([2, 0])
    await sumUsage(at.db)
    const since = new Date(startMs)
    expect(await at.sluice.limits.usage({ limit: 'spend', by: 'month', since })).toEqual([
      { limit: 'spend', key: 'b', period: '2026-11', units: 10_000_000_000, refunded: 0, currency: 'USD' },
      { limit: 'spend', key: 'a', period: '2026-11', units: 9_000_000_000, refunded: 5_000_000_000, currency: 'USD' },
    ])
    expect((await at.sluice.verify({ limit: 'spend' })).isProved).toBe(true)
    // An operator changes the amount, but not what it counts.
    const set = (quota: '12000 USD/month' | '12000/month' | '12000 EUR/month') =>
      at.sluice.limits.set('spend', { quota }, { reason: 'more' })
    await expect(set('12000/month')).rejects.toThrow('its costs are in USD, so its numbers must be, too')
    await expect(set('12000 EUR/month')).rejects.toThrow('its costs are in USD')
    expect(await set('12000 USD/month')).toMatchObject({ currency: 'USD', numbers: { quota: '12000 USD/month' } })
    const last = await claim()
    expect([of(last, 'a').length, of(last, 'b').length]).toEqual([0, 1])
  })
})
