/** What an epoch in Redis begins with: the usage that the ledger shows. */
import { describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { claimAll, emptied, mainEngines, perTenant, quietTask } from '../claim/engine.ts'
import { quotaWith } from './engine.ts'

describe.each(mainEngines)('the seeds of limits in Redis, on $name', (engine) => {
  const at = emptied(engine)

  it('have the debt of a rate and the counted parts of a window, each in the place of its rule', async () => {
    const mixed = quietTask('mixed', [limit('mixed', { rate: '10/h', burst: 10, window: '20/h' })])
    await at.sluice.sendMany(mixed, [{}, {}, {}])
    expect(await claimAll(at.db, at.worker, ['mixed'], 3)).toHaveLength(3)
    const [seed, ...others] = await storeOn(at.db).run<{ take: string; debt: number[]; parts: number[][] }>(
      'limits/ledger/read_redis_seeds',
      [null],
    )
    expect(others).toEqual([])
    expect(seed?.take).toBe('mixed')
    expect(seed?.parts.map((parts) => parts.reduce((sum, units) => sum + units, 0))).toEqual([0, 3])
    expect(seed?.debt[0]).toBeGreaterThan(0)
  })

  it('are of all keys, also of one that looks like a pool', async () => {
    const keyed = quietTask('keyed', [perTenant('keyed', '10/h')])
    await at.sluice.sendMany(
      keyed,
      ['a', '*'].map((tenant) => ({ tenant })),
    )
    expect(await claimAll(at.db, at.worker, ['keyed'], 2)).toHaveLength(2)
    const seeds = await storeOn(at.db).run<{ take: string }>('limits/ledger/read_redis_seeds', [null])
    expect(seeds.map(({ take }) => take).toSorted()).toEqual(['keyed:*', 'keyed:a'])
  })

  it('of quotas count no less than nothing, whatever is refunded', async () => {
    expect(await quotaWith(at.db, [0, 1_000, 2_000, 2, 3, 0], 1_500, -5)).toEqual([0, 1_000, 2_000, 2, 0, 0])
  })
})
