import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { limit, type Limit, type LimitOptions, task } from '../../src/index.ts'
import type { Amount } from '../../src/limits/numbers.ts'
import type { Quota } from '../../src/limits/quota.ts'

// What must not compile is marked; tsc fails when a marked line does compile. The bodies also run.

const input = z.object({
  model: z.string(),
  maxTokens: z.number(),
  usage: z.object({ tokens: z.number() }),
  note: z.string().optional(),
})
const run = (): void => {}
const bad = expect.objectContaining({ code: 'SLUICE_BAD_COST' })

it('a cost is a number, the path of one in the input, or a function of the input', () => {
  const tpm = limit('tpm', { window: '30000/min', by: 'model', cost: 'maxTokens' })
  expectTypeOf(tpm).toEqualTypeOf<Limit<{ model: string | number | boolean } & { maxTokens: number }>>()
  const plain = limit('plain', { window: '30000/min' })
  const one = task('one', {
    input,
    limits: [tpm, { limit: plain, cost: 'usage.tokens' }],
    run,
  })
  expect(one.limits.map(({ cost }) => cost)).toEqual(['maxTokens', 'usage.tokens'])
  task('two', { input, limits: [{ limit: plain, cost: (job) => job.maxTokens * 2 }], run })
  task('three', { input, limits: [{ limit: plain, cost: 5 }], run })
  task('four', {
    input,
    limits: [limit('fn', { rate: '5/s', cost: (job: { maxTokens: number }) => job.maxTokens })],
    run,
  })
  // @ts-expect-error no number there
  task('five', { input, limits: [{ limit: plain, cost: 'model' }], run })
  // @ts-expect-error no such field
  task('six', { input, limits: [{ limit: plain, cost: 'usage.none' }], run })
  // @ts-expect-error the input has a text there
  task('seven', { input, limits: [limit('text', { rate: '5/s', cost: 'model' })], run })
  // @ts-expect-error the limit's key is missing in the input
  task('eight', { input, limits: [{ limit: limit('keyed', { rate: '5/s', by: 'tenant' }), cost: 2 }], run })
})

it('each rule of a limit has its type once, so that an error of the compiler names that type', () => {
  expectTypeOf<LimitOptions['rate']>().toEqualTypeOf<Amount<'100/min'> | readonly Amount<'100/min'>[] | undefined>()
  expectTypeOf<LimitOptions['window']>().toEqualTypeOf<Amount<'100/min'> | readonly Amount<'100/min'>[] | undefined>()
  expectTypeOf<LimitOptions['quota']>().toEqualTypeOf<Quota<'1000/day'> | readonly Quota<'1000/day'>[] | undefined>()
  // @ts-expect-error no number
  expect(() => limit('calls', { rate: 10 })).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_RATE' }))
})

it('an invalid cost is refused where it is defined', () => {
  for (const cost of [-1, 0.5, 2 ** 31, Number.NaN, '']) {
    expect(() => limit('tpm', { rate: '5/s', cost })).toThrow(bad)
  }
  expect(() => limit('seats', { concurrency: 5, cost: 2 })).toThrow(bad)
  const seats = limit('seats', { concurrency: 5 })
  expect(() => task('a', { input, limits: [{ limit: seats, cost: 2 }], run })).toThrow(bad)
  // @ts-expect-error a refund of another kind
  expect(() => limit('tpm', { rate: '5/s', refund: 'half' })).toThrow(
    expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }),
  )
})
