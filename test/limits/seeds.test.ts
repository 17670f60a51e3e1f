/** What an epoch in Redis begins with: the usage that the ledger shows. */
import { describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { claimAll, emptied, mainEngines, quietTask } from '../claim/engine.ts'
import { fn } from '../servers/fn.ts'

describe.each(mainEngines)('the seeds of limits in Redis, on $name', (engine) => {
  const at = emptied(engine)

  it('have the debt of a rate and the counted parts of a window, each in the place of its rule', async () => {
    const mixed = quietTask('mixed', [limit('mixed', { rate: '10/h', burst: 10, window: '20/h' })])
    await at.sluice.sendMany(mixed, [{}, {}, {}])
    expect(await claimAll(at.db, at.worker, ['mixed'], 3)).toHaveLength(3)
    const [seed, ...others] = await storeOn(at.db).run<{ take: string; debt: number[]; slots: number[][] }>(
      'limits/ledger/read_redis_seeds',
      [null],
    )
    expect(others).toEqual([])
    expect(seed?.take).toBe('mixed')
    expect(seed?.slots.map((parts) => parts.reduce((sum, units) => sum + units, 0))).toEqual([0, 3])
    expect(seed?.debt[0]).toBeGreaterThan(0)
  })

  it('of quotas count no less than nothing, whatever is refunded', async () => {
    const [row] = await at.db.query<{ quota: string[][] }>(
      `select ${fn}.count_in_quotas('{{0, 1000, 2000, 3, 0, 0}}', '{quota}', '{0}', 500, -5) as quota`,
    )
    expect(row?.quota.map((period) => period.map(Number))).toEqual([[0, 1_000, 2_000, 0, 0, 0]])
  })
})
