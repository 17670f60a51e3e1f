import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { placementOf } from '../../src/tasks/placement.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { inWords } from '../../src/limits/description.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'

const input = z.object({ tenant: z.string(), region: z.string() })
const run = () => undefined
const weights = { acme: 3 }
const crm = limit('crm', { rate: '100/min', by: 'tenant', weights })
const region = limit('region', { rate: '1000/min', by: 'region', weights: { acme: 7, eu: 2 } })
const all = limit('all', { rate: '1000/min' })

/** The weight of a job of acme in the eu, of a task with these options. */
const weigh = (
  options: object,
  stored = { tenant: 'acme', region: 'eu' },
  buckets = ['all', 'crm:acme', 'region:eu'],
) => placementOf(task('a', { input, limits: [all, crm, region], run, ...options }) as AnyTask, stored, 'q', 0, buckets)

describe('weights of keys', () => {
  it('hold where turns go by the keys of their limit', () => {
    expect(weigh({}).weight).toBe(3)
    expect(weigh({}, { tenant: 'b', region: 'eu' }, ['all', 'crm:b', 'region:eu']).weight).toBe(1)
    expect(weigh({ limits: [region, crm] }, undefined, ['region:eu', 'crm:acme']).weight).toBe(2)
    expect(weigh({ fair: 'region' }).weight).toBe(2)
    // Turns go by the key that a rule sets.
    expect(weigh({}, { tenant: 'b', region: 'eu' }, ['all', 'crm:acme', 'region:eu']).weight).toBe(3)
  })

  it('do not apply to turns by another key, or of a task with a weight of its own', () => {
    expect(weigh({ weight: 1 }).weight).toBe(1)
    expect(weigh({ weight: () => 5 }).weight).toBe(5)
    const by = limit('crm', { rate: '100/min', by: ({ tenant }: z.infer<typeof input>) => tenant, weights })
    expect(weigh({ limits: [by], fair: 'tenant' }, undefined, ['crm:acme']).weight).toBe(1)
    expect(weigh({ limits: [by] }, undefined, ['crm:acme']).weight).toBe(3)
    expect(weigh({ limits: [all] }, undefined, ['all']).weight).toBe(1)
    const odd = { tenant: 'constructor', region: '__proto__' }
    expect(weigh({}, odd, ['all', 'crm:constructor', 'region:eu']).weight).toBe(1)
  })

  it('give a key a lane of its own, the same as that weight in the task', () => {
    const [own, said] = [weigh({}), weigh({ weight: 3 })]
    expect(own).toEqual(said)
    expect(own.lane).not.toBe(weigh({ weight: 1 }).lane)
    // A key whose last characters look like the weight of another one.
    const odd = { tenant: 'acme\u001e3', region: 'eu' }
    const keys = { limits: [crm], fair: undefined }
    expect(weigh(keys, odd, ['crm:acme\u001e3']).lane).not.toBe(weigh(keys, undefined, ['crm:acme']).lane)
  })

  it('are part of the definition, in any order', () => {
    const words = (given?: Record<string, number>) =>
      inWords(limit('crm', { rate: '1/s', by: 'a', ...(given && { weights: given }) }))
    expect(words({ a: 2, b: 3 })).toBe(words({ b: 3, a: 2 }))
    expect(words({ a: 2 })).not.toBe(words({ a: 3 }))
    expect(words({})).toBe(words())
  })

  it.each([
    { weights: { a: 0 } },
    { weights: { a: 1001 } },
    { weights: { a: 1.5 } },
    { weights: { a: '3' } },
    { weights: [1] },
    { weights: 3 },
    { weights: null },
    { weights, by: undefined },
    { weights, by: label('host') },
    { weights, by: undefined, pool: ['a'] },
  ])('refuses %j', (options) => {
    const made = () => limit('crm', { rate: '1/s', by: 'tenant', ...options } as never)
    expect(made).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  })

  it('refuse texts that cannot be keys', () => {
    const made = () => limit('crm', { rate: '1/s', by: 'tenant', weights: { '': 3 } })
    expect(made).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_KEY' }))
  })
})

describe('a fair key', () => {
  const place = (tenant: string, options: object, buckets: string[]) =>
    weigh(options, { tenant, region: 'eu' }, buckets)

  it('that holds the separator of lanes is refused, because two lanes could be taken for one', () => {
    const fair = { fair: 'tenant' }
    expect(place('a', { ...fair, limits: [all] }, ['all']).lane).not.toBe(
      place('a all', { ...fair, limits: [] }, []).lane,
    )
    expect(() => place('a\u001fall', { ...fair, limits: [] }, [])).toThrow(
      expect.objectContaining({ code: 'SLUICE_BAD_KEY' }),
    )
  })
})
