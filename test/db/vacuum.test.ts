import { expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import type { Db } from '../../src/db/db.ts'
import { vacuumUntil } from '../../src/db/vacuum.ts'
import { Sluice } from '../../src/sluice.ts'

it('the embedded engine freezes the oldest table before transaction ids run out', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const scripts: string[] = []
  const failed: unknown[] = []
  const log = { ...silent, debug: (_: string, details: unknown) => void failed.push(details) }
  const end = new AbortController()
  let rounds = 0
  const clock = { ...systemClock, sleep: async () => (++rounds === 3 ? end.abort() : undefined) }
  const ages = [2e9, 0]
  const db = {
    // First with the real bound: nothing is that old. Then with a lower bound.
    query: (sql: string, [age]: [number]) => sluice.db.query(sql, [ages.shift() === 0 ? 0 : age]),
    script: (sql: string) => {
      scripts.push(sql)
      return sluice.db.script(sql)
    },
  } as unknown as Db
  await vacuumUntil(end.signal, storeOn(db, { clock, log }), () => true)
  expect(failed).toEqual([])
  expect(scripts.filter((sql) => sql.includes('freeze'))).toEqual([expect.stringMatching(/^vacuum \(freeze\) \S+$/)])
  await sluice.close()
})

it('the embedded engine has no further database, whose rows nothing would freeze', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const databases = await sluice.db.query('select datname as name from pg_database')
  expect(databases).toEqual([{ name: 'postgres' }])
  await sluice.close()
})
