/** A store with a ledger of one limit, by a clock that the test moves. */
import { afterAll, beforeAll, beforeEach } from 'vitest'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { hash64 } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { empty } from '../claim/engine.ts'
import { second } from '../limits/oracle.ts'
import { setStage } from '../limits/stage.ts'
import { takeIn } from '../takes/engine.ts'
import { addBucket } from '../limits/engine.ts'

/** The time at which a test begins. */
export const startUs = 1_790_000_000 * second

/** For the tests of a block. */
export function ledgerOn(store: () => Promise<string>) {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await store() })
    await setStage(sluice.db)
  })
  afterAll(() => sluice.close())
  beforeEach(async () => {
    await empty(sluice.db)
    await sluice.db.query('truncate sluice.limit_def, sluice.limit_source')
  })

  const query = (sql: string, params: unknown[] = []) => sluice.db.query<Record<string, string>>(sql, params)
  const at = (us: number) => query('update sluice.test_clock set us = $1', [startUs + us])
  const define = async (options: LimitOptions, keys = ['']) => {
    await at(0)
    await defineLimit(sqlOn(sluice.db), limit('crm', options), 'code')
    for (const key of keys) await addBucket(sluice.db, 'crm', key)
  }
  /** Takes units one by one while there is room; resolves to how many. */
  const take = async (most: number, key = ''): Promise<number> => {
    const [row] = await query(
      `select count(*) filter (where t.granted) as n from generate_series(1, $1::integer) g
       cross join lateral ${takeIn('md5(random()::text || g)::uuid', 'array[$2::bigint]')}`,
      [most, hash64(key === '' ? 'crm' : `crm:${key}`)],
    )
    return Number(row?.['n'])
  }

  return {
    query,
    at,
    define,
    take,
    get sluice() {
      return sluice
    },
  }
}
