/** Usage by key, day and month: exactly what the ledger has granted and not got back, whatever sums and deletes it meanwhile. */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { limit } from '../../src/limits/limit.ts'
import { readUsage } from '../../src/operations/usage.ts'
import { acquire } from '../takes/engine.ts'
import { count, emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { isLong } from '../long.ts'
import '../property.ts'
import {
  addBucket,
  chargeAgain,
  chargeMore,
  chargeOthers,
  checkClock,
  deleteLedger,
  deleteUsage,
  refund,
  sumUsage,
  watchClock,
} from '../limits/engine.ts'
import { retireBuckets } from '../claim/engine-parts.ts'

const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const startMs = Date.parse('2026-10-29T12:00:00Z')
const dayMs = 86_400_000
const keys = ['a', 'b', 'c']
let names = 0

/** What may happen: `of` selects an earlier grant, `afterMs` passes before it. */
type Act = { kind: (typeof kinds)[number]; key: number; units: number; of: number; afterMs: number }
const kinds = [
  'grant',
  'grant',
  'grant',
  'refund',
  'refund',
  'use more',
  'sum',
  'sum, and fail',
  'answer slowly',
  'delete',
  'retire',
] as const
const anyAct: fc.Arbitrary<Act> = fc.record({
  kind: fc.constantFrom(...kinds),
  key: fc.nat(keys.length - 1),
  units: fc.integer({ min: 1, max: 5_000 }),
  of: fc.nat(9),
  afterMs: fc.oneof(fc.nat(2_000), fc.nat(2 * 3_600_000), fc.nat(3 * dayMs)),
})

describe.each(mainEngines)('usage, on $name', (engine) => {
  const at = emptied(engine)
  let clock: { set(ms: number): Promise<void> }
  let nowMs: number
  const pass = async (ms: number) => clock.set((nowMs += ms))
  const define = async (options: Parameters<typeof limit>[1], of: readonly string[] = keys) => {
    const name = `used${++names}`
    await defineLimit(sqlOn(at.db), limit(name, options))
    for (const key of of) await addBucket(at.db, name, key)
    return name
  }
  beforeEach(async () => {
    nowMs = startMs
    clock = await ownClock(at.db, startMs)
    await clock.set(startMs)
    // Every ledger row that was ever written.
    await at.db.query(`create table if not exists sluice.mirror (like sluice.ledger)`)
    await at.db.query('delete from sluice.mirror')
    await at.db.query(`create or replace function sluice.mirror() returns trigger language plpgsql as
      $$ begin insert into sluice.mirror select new.*; return new; end $$`)
    await at.db.query(
      'create or replace trigger mirror after insert on sluice.ledger for each row execute function sluice.mirror()',
    )
  })

  it.each(['UTC', 'America/New_York'])(
    'is what the ledger has granted and not got back, by the days of %s',
    async (zone) => {
      const days = new Intl.DateTimeFormat('en-CA', {
        timeZone: zone,
        year: 'numeric',
        month: '2-digit',
        day: '2-digit',
      })
      const history = fc.array(anyAct, { minLength: 20, maxLength: 60 })
      await fc.assert(
        fc.asyncProperty(history, async (acts) => {
          for (const table of ['ledger', 'usage', 'summed', 'budget', 'bucket', 'mirror'])
            await at.db.query(`delete from sluice.${table}`)
          nowMs = startMs
          await pass(0)
          const name = await define({ quota: '1000000000/day', zone, by: 'key', transit: 0 })
          const grants: { key: string; id: string }[] = []
          for (const act of acts) await play(name, grants, act)
          const expected = new Map<string, { units: number; refunded: number }>()
          const rows = await at.db.query<{ bucket: string; at: string; units: string; claim: string | null }>(
            `select bucket, at, units, claim from sluice.mirror
              where units <> 0 and cause is distinct from 'again' order by bucket, at, n`,
          )
          for (const { bucket, at: us, units, claim } of rows) {
            const key = keys.find((one) => hash64(`${name}:${one}`) === bucket) ?? ''
            const grant = rows.find((one) => one.bucket === bucket && one.claim === claim && Number(one.units) > 0)
            const day = days.format(Number(Number(units) < 0 ? grant?.at : us) / 1_000)
            const sum = expected.get(`${day} ${key}`) ?? { units: 0, refunded: 0 }
            sum.units += Number(units)
            sum.refunded += Math.max(0, -Number(units))
            expected.set(`${day} ${key}`, sum)
          }
          const read = async () => {
            const lines = await at.sluice.limits.usage({ limit: name, since: new Date(startMs - dayMs), max: 10_000 })
            return Object.fromEntries(
              lines.map(({ period, key, units, refunded }) => [`${period} ${key}`, { units, refunded }]),
            )
          }
          expect(await read()).toEqual(Object.fromEntries(expected))
          const [month] = await at.sluice.limits.usage({ by: 'month', since: new Date(startMs - 40 * dayMs) })
          const months = [...expected].filter(([day]) => day.startsWith(month?.period ?? 'none'))
          expect(month?.units ?? 0).toBe(months.reduce((sum, [, { units }]) => sum + units, 0))
          // All of it is in the sums at the end, and reads the same.
          while ((await sumUsage(at.db)).more);
          expect(await read()).toEqual(Object.fromEntries(expected))
        }),
        { numRuns: isLong ? 200 : 12, seed },
      )
    },
  )

  const play = async (name: string, grants: { key: string; id: string }[], { kind, key, units, of, afterMs }: Act) => {
    await pass(afterMs)
    const take = `${name}:${keys[key]}`
    const grant = grants.at(-1 - (of % Math.max(1, grants.length)))
    if (kind === 'grant') {
      const id = newId()
      await addBucket(at.db, name, keys[key])
      if ((await acquire(at.db, take, { grant: id, cost: units })).granted) grants.push({ key: take, id })
    } else if (kind === 'refund' && grant !== undefined) {
      await refund(at.db, grant.key, grant.id, units)
    } else if (kind === 'use more' && grant !== undefined) {
      await chargeMore(at.db, grant.key, grant.id, units, nowMs * 1_000)
    } else if (kind === 'answer slowly' && grant !== undefined) {
      await chargeAgain(at.db, grant.key, units)
    } else if (kind === 'sum') await sumUsage(at.db, of > 4 ? null : 0)
    else if (kind === 'sum, and fail')
      await at.db
        .transaction(async (tx) => {
          await sumUsage(tx)
          throw new Error('a crash')
        })
        .catch(() => undefined)
    else if (kind === 'delete') await deleteLedger(at.db, of * dayMs * 1_000)
    else if (kind === 'retire') await retireBuckets(at.db, dayMs * 1_000)
  }

  it('leaves out what somebody else has used of the account, as `verify` does', async () => {
    const name = await define({ window: '1000/min', by: 'key', transit: 0 })
    await acquire(at.db, `${name}:a`, { cost: 10 })
    const count = { most: 1000, left: 500, sinceUs: 60_000_000, resetUs: null }
    expect(await chargeOthers(at.db, `${name}:a`, count)).toMatchObject({ units: 490 })
    expect(await at.sluice.verify({ limit: name })).toMatchObject({ grants: 1, others: 490 })
    const read = () => at.sluice.limits.usage({ limit: name, since: new Date(startMs) })
    expect(await read()).toMatchObject([{ units: 10, refunded: 0 }])
    await sumUsage(at.db)
    expect(await read()).toMatchObject([{ units: 10, refunded: 0 }])
  })

  it('counts each row once while others are written, and by several processes', async () => {
    const name = await define({ window: '1000000/min', by: 'key', transit: 0 })
    let isOver = false
    const sums = [1, 2, 3].map(async () => {
      while (!isOver) await sumUsage(at.db)
    })
    const takers = keys.map(async (key) => {
      for (let i = 0; i < 150; i++) await acquire(at.db, `${name}:${key}`, { cost: i })
    })
    await Promise.all(takers).finally(() => (isOver = true))
    await Promise.all(sums)
    const lines = await at.sluice.limits.usage({ limit: name, since: new Date(startMs) })
    expect(lines.map(({ key, units }) => [key, units])).toEqual(keys.map((key) => [key, (149 * 150) / 2]))
    expect(await count(at.db, 'sluice.usage')).toBe(3)
  })

  it('is read, and summed, by the rows of each key alone', async () => {
    const many = Array.from({ length: 50 }, (_, i) => `k${i}`)
    const name = await define({ window: '1000/min', by: 'key', transit: 0 }, many)
    const rows = many.length * 60
    // Each tenth row gives a unit of the row before back.
    await at.db.query(
      `insert into sluice.ledger (bucket, n, at, debt, version, units, claim)
       select sluice.hash64($1 || ':' || k), i, 1000000 * i, '{0}', 1, case i % 10 when 0 then -1 else 2 end,
         lpad((i - (i % 10 = 0)::integer)::text, 32, '0')::uuid
       from generate_series(1, 60) i, unnest($2::text[]) k order by i`,
      [name, many],
    )
    await at.db.query('analyze sluice.ledger')
    const readRows = async (read: (tx: Queryable) => Promise<unknown>) =>
      at.db.transaction(async (tx) => {
        // Also counts what earlier transactions of this connection have not reported yet.
        const soFar = async () => {
          const [row] = await tx.query<{ n: number }>(
            `select (seq_tup_read + idx_tup_fetch)::integer as n from pg_stat_xact_user_tables where relname = 'ledger'`,
          )
          return row?.n ?? NaN
        }
        const before = await soFar()
        await read(tx)
        return (await soFar()) - before
      })
    const usage = (tx: Queryable) => readUsage(sqlOn(tx), { limit: name, since: new Date(0) }, nowMs)
    expect(await usage(at.db)).toMatchObject(many.map(() => ({ units: 102, refunded: 6 })))
    expect(await readRows(usage)).toBeLessThan(10 * rows)
    // Deleted rows leave a table that looks large, while this session keeps the plans that it has chosen for a small one.
    await at.db.query(
      `insert into sluice.ledger (bucket, n, at, debt, version, units) select 0, i, i, '{0}', 1, 1 from generate_series(1, 30000) i`,
    )
    await at.db.query('delete from sluice.ledger where bucket = 0')
    await at.db.query('analyze sluice.ledger')
    expect(await readRows(usage)).toBeLessThan(10 * rows)
    expect(await readRows((tx) => sumUsage(tx, 0))).toBeLessThan(10 * rows)
  })

  it('is kept for the retention of usage, and not longer', async () => {
    const name = await define({ window: '1000/min', by: 'key', transit: 0 })
    for (let day = 0; day < 5; day++) {
      await acquire(at.db, `${name}:a`, { cost: 10 + day })
      await pass(dayMs)
    }
    await sumUsage(at.db)
    await deleteLedger(at.db, 0)
    await deleteUsage(at.db, 2 * dayMs)
    const lines = await at.sluice.limits.usage({ limit: name, since: new Date(startMs) })
    expect(lines.map(({ period, units }) => [period, units])).toEqual(
      [
        ['2026-11-02', 14],
        ['2026-11-01', 13],
        ['2026-10-31', 12],
      ].slice(0, lines.length),
    )
    expect(lines.length).toBeGreaterThanOrEqual(2)
  })

  it('is kept for as long, as are budgets, when the clock of the store is set back', async () => {
    const name = await define({ quota: '100/day', alarmAt: [0.1], by: 'key', transit: 0 })
    await watchClock(at.db)
    const use = async (units: number) => {
      expect((await acquire(at.db, `${name}:a`, { cost: units })).granted).toBe(true)
      await pass(1_000)
      await sumUsage(at.db, null)
      await deleteUsage(at.db, 2 * dayMs)
    }
    await use(20)
    await pass(-40 * dayMs)
    await checkClock(at.db, null)
    await use(30)
    const lines = await at.sluice.limits.usage({ limit: name, since: new Date(nowMs) })
    expect(lines.map(({ period, units }) => [period, units])).toEqual([
      ['2026-10-29', 20],
      ['2026-09-19', 30],
    ])
    expect(await count(at.db, `sluice.budget where starts < ${(startMs - dayMs) * 1_000}`)).toBe(1)
  })

  it('rejects options that mean nothing', async () => {
    const usage = (options: object) => at.sluice.limits.usage(options)
    await expect(usage({ key: 'a' })).rejects.toThrow('a key belongs to a limit')
    await expect(usage({ by: 'week' })).rejects.toThrow(`by is "week"; it must be 'day' or 'month'`)
    await expect(usage({ max: 0 })).rejects.toThrow('max is 0; it must be a whole number from 1 to 10000')
    await expect(usage({ limit: 'nosuch' })).rejects.toThrow('no limit "nosuch"')
  })
})
