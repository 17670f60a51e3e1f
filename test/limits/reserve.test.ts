import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { inWords } from '../../src/limits/description.ts'
import { limit } from '../../src/limits/limit.ts'
import { withPaces } from '../../src/limits/rule.ts'
import { label } from '../../src/limits/pool.ts'
import { unreserved } from '../../src/limits/share.ts'
import { bound } from './oracle.ts'
import { cases } from '../long.ts'

const shares = { interactive: 0.3 }
const input = z.object({})
const run = () => undefined

describe('the share of a limit', () => {
  it('leaves the rest of every rule to others, exactly', () => {
    const made = limit('crm', { rate: '1000/min', window: '100/h', quota: '11/day', concurrency: 4, shares })
    const left = withPaces(made.rules).map(({ rule }) => unreserved(rule, { mille: 300 }))
    expect(left.map(({ kind, capacity }) => [kind, capacity])).toEqual([
      ['rate', 70],
      ['window', 70],
      ['quota', 8],
      ['concurrency', 3],
    ])
  })

  it('leaves others their part of the drain of a rate, and never a unit of the share in any window', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 5_000 }), fc.integer({ min: 1, max: 999 }), (units, mille) => {
        const [rule] = limit('crm', { rate: `${units}/min` }).rules
        if (rule === undefined) throw new Error('no rule')
        const left = unreserved(rule, { mille })
        // Windows as a vendor sees them, and the margin: 200 ms.
        expect(bound(left, 60_200_000)).toBeLessThanOrEqual(units - Math.floor((units * mille) / 1_000))
        const part = (left.drain * rule.weight * 1_000) / (rule.drain * left.weight * (1_000 - mille))
        expect(part).toBeLessThanOrEqual(1 + 1e-9)
        // In a window others lose less than one unit of their part of the drain.
        expect((1 - part) * (units - rule.capacity + 1) * (1 - mille / 1_000)).toBeLessThanOrEqual(1 + 1e-9)
        expect(Number.isSafeInteger(left.capacity * left.weight)).toBe(true)
        expect(left.spanUs).toBeGreaterThanOrEqual((left.capacity * left.weight) / left.drain)
      }),
      {
        numRuns: cases(2_000),
        examples: [
          [3_334, 3],
          [1_154, 52],
        ],
      },
    )
  })

  it('leaves others exactly their part of the drain of a classic bucket', () => {
    const [rule] = limit('crm', { rate: '35/min', burst: 20 }).rules
    if (rule === undefined) throw new Error('no rule')
    const left = unreserved(rule, { mille: 333 })
    expect(left.capacity).toBe(14)
    expect(left.drain * rule.weight * 1_000).toBe(rule.drain * left.weight * 667)
  })

  it('is lent after the longest window, but at most an hour, and places are lent after a minute', () => {
    const after = (options: object) => limit('crm', { shares, ...options } as never).share?.lendUs
    expect(after({ window: ['100/s', '1000/min'] })).toBe(60_000_000)
    expect(after({ quota: '100/day' })).toBe(3_600_000_000)
    expect(after({ concurrency: 10 })).toBe(60_000_000)
    expect(after({ window: '100/100ms' })).toBe(1_000_000)
    expect(after({ window: '100/h', lendAfter: '5s' })).toBe(5_000_000)
  })

  it('is part of the definition', () => {
    const words = (options: object) => inWords(limit('crm', { window: '100/h', ...options } as never))
    expect(words({ shares })).not.toBe(words({}))
    expect(words({ shares })).not.toBe(words({ shares, lendAfter: '5s' }))
  })

  it.each([
    { shares: {} },
    { shares: { a: 0.3, b: 0.3 } },
    { shares: { a: 0 } },
    { shares: { a: 1 } },
    { shares: { a: '0.3' } },
    { shares: { a: 0.3333 } },
    { shares: { A: 0.3 } },
    { shares: { 'a/b': 0.3 } },
    { shares: 0.3 },
    { shares: null },
    { shares: { a: 0.001 } },
    { shares, concurrency: 3 },
    { shares: { a: 0.333 }, rate: '999983/day', burst: 1_000 },
    { shares, lendAfter: '2h' },
    { shares, lendAfter: '10ms' },
    { lendAfter: '5s' },
    { shares, by: label('host') },
    { shares, pool: ['a'] },
  ])('refuses %j', (options) => {
    const made = () => limit('crm', { window: '100/h', ...options } as never)
    expect(made).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  })

  it('is known to the tasks that name it', () => {
    const crm = limit('crm', { window: '100/h', shares })
    expect(task('a', { input, limits: [crm], share: 'interactive', run }).share).toBe('interactive')
    const made = () => task('a', { input, limits: [crm], share: 'other', run })
    expect(made).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_TASK' }))
  })
})
