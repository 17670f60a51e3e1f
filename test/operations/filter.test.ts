import { describe, expect, it } from 'vitest'
import type { JobFilter } from '../../src/index.ts'
import { statementIn } from '../../src/db/store.ts'
import { emptied, mainEngines, quietTask } from '../claim/engine.ts'
import { pageQuery } from './engine.ts'

const startMs = Date.parse('2030-01-01T00:00:00Z')
/** When the n-th job was sent, in ms: one each second. */
const atMs = (n: number) => startMs + n * 1_000

for (const engine of mainEngines) {
  describe(`a filter by errors and dispatch on ${engine.name}`, () => {
    const at = emptied(engine)

    /**
     * Inserts n jobs that ended a second after their dispatch: each tenth has failures, and each hundredth of these a
     * code of its own. All failed ones have one failure at least.
     */
    async function insert(table: 'done' | 'failed', n: number): Promise<void> {
      await at.db.query(
        `insert into sluice.${table} (id, state, task, queue, priority, attempt, failed, throttled, crashes, ambiguous,
           created_at, dispatched_at, started_at, finished_at, error)
         select (lpad(to_hex($2::bigint + i * 1000), 12, '0') || '7000' || '8000' || lpad(to_hex(i), 12, '0'))::uuid,
           $1, 'quiet', 'default', 0, 1,
           case when i % 10 = 0 then i / 10 % 24 + 1 when $1 = 'failed' then 1 else 0 end,
           0, 0, false, t, t, t, t + interval '1s',
           case when i % 1000 = 0 then '{"message": "down", "code": "E_RARE"}'::jsonb
                when $1 = 'failed' or i % 10 = 0 then '{"message": "down", "code": "E_COMMON"}' end
         from generate_series(1, $3::integer) i, lateral (select to_timestamp(($2::bigint + i * 1000) / 1000.0)) x (t)`,
        [table, startMs, n],
      )
    }

    const count = async (filter: JobFilter) => (await at.sluice.jobs.count(filter)).count

    it('finds exactly the jobs that it describes', async () => {
      await insert('done', 2_000)
      await insert('failed', 2_000)
      for (const state of ['done', 'failed'] as const) {
        expect(await count({ state, errorCode: 'E_RARE' })).toBe(2)
        expect(await count({ state, failures: 24 })).toBe(8)
        expect(await count({ state, failures: 2 })).toBe(192)
        const dispatched = { dispatchedSince: new Date(atMs(100)), dispatchedUntil: new Date(atMs(150)) }
        expect(await count({ state, ...dispatched })).toBe(50)
        expect(await count({ state, ...dispatched, failures: 1 })).toBe(state === 'done' ? 5 : 50)
        expect(await count({ state, dispatchedSince: new Date(atMs(5_000)) })).toBe(0)
      }
      expect(await count({ errorCode: 'E_RARE' })).toBe(0)
      const page = await at.sluice.list({ state: 'failed', errorCode: 'E_RARE', max: 1 })
      const next = await at.sluice.list({ state: 'failed', errorCode: 'E_RARE', before: page[0]?.id ?? '' })
      expect(next).toHaveLength(1)
      expect(next[0]?.createdAt).toEqual(new Date(atMs(1_000)))
    })

    it('may have each time that JavaScript has', async () => {
      await insert('done', 2)
      const [first, last] = [new Date(-8.64e15), new Date(8.64e15)]
      expect(await count({ state: 'done', since: first, until: last })).toBe(2)
      expect(await count({ state: 'done', dispatchedSince: first, dispatchedUntil: last })).toBe(2)
      expect(await count({ state: 'done', since: last })).toBe(0)
      expect(await count({ state: 'done', until: first })).toBe(0)
      await at.sluice.send(quietTask('quiet'), {})
      for (const since of [first, new Date(0), '36500d'] as const) expect(await count({ since, until: last })).toBe(1)
    })

    it('rejects numbers and codes that cannot match', async () => {
      for (const failures of [0, 1.5, Number.NaN])
        await expect(at.sluice.list({ failures })).rejects.toThrow('needs a whole number from 1')
      await expect(at.sluice.list({ errorCode: '' })).rejects.toThrow('needs a text for "errorCode"')
    })

    it('is served by indexes', async () => {
      await insert('done', 20_000)
      await insert('failed', 20_000)
      await at.db.query('analyze sluice.done, sluice.failed')
      await at.db.query(
        `select brin_summarize_new_values(c.oid) from pg_class c join pg_am a on a.oid = c.relam
         where a.amname = 'brin' and c.relkind = 'i'`,
      )
      /** The plan of a statement. */
      const plan = async (sql: string, settings: readonly string[] = []) =>
        at.db.transaction(async (tx) => {
          for (const each of settings) await tx.query(`set local ${each}`)
          return JSON.stringify(await tx.query(`explain (format json) ${sql}`))
        })
      /** The plan of the page of a filter, with the settings of the function. */
      const pagePlan = async (table: string, filter: object) => {
        const given = JSON.stringify({ states: [table], ...filter })
        const text = await pageQuery(at.db, table, given)
        const sql = text.replaceAll('$1', `'${given}'::jsonb`).replaceAll('$4', '5000')
        return plan(sql, ['enable_seqscan = off', 'enable_bitmapscan = off'])
      }
      expect(await pagePlan('failed', { errorCode: 'E_RARE' })).toMatch(/"Index Name":"failed_late_expr_id_idx"/)
      expect(await pagePlan('failed', { failures: 24 })).toMatch(/"Index Name":"failed_late_failed_id_idx"/)
      expect(await pagePlan('done', { errorCode: 'E_RARE' })).toMatch(/"Index Name":"done_late_id_idx"/)
      expect(await pagePlan('done', { failures: 24 })).toMatch(/"Index Name":"done_late_id_idx"/)
      for (const table of ['done', 'failed'])
        expect(
          await plan(
            statementIn('sluice', 'operations/find_dispatched_ids')
              .replaceAll('$1', `'${table}'`)
              .replaceAll('$2', `'${new Date(atMs(100)).toISOString()}'`)
              .replaceAll('$3', `'${new Date(atMs(150)).toISOString()}'`),
          ),
        ).toContain(`"Index Name":"${table}_late_finished_at_dispatched_at_idx"`)
    })
  })
}
