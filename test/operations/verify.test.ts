/** The proof from the ledger: honest histories are proved, and faults in a ledger are found. */
import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { sqlOn, statementIn } from '../../src/db/store.ts'
import { hash64 } from '../../src/core/hash.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { verify } from '../../src/operations/verify.ts'
import { Sluice } from '../../src/index.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { type TestSluice, testSluice } from '../../src/testing/kit.ts'
import { anyHistory, anyLoad } from '../limits/acts.ts'
import { second } from '../limits/oracle.ts'
import { compare } from '../limits/stage.ts'
import { mainEngines } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { takeIn } from '../takes/engine.ts'
import { deleteLedger, refundEach, unitsUsed } from '../limits/engine.ts'
import { ledgerOn, startUs } from './ledger-stage.ts'

describe.each(mainEngines)('verify on $name', ({ name: engine, store }) => {
  const ledger = ledgerOn(store)
  const { query, at, define, take } = ledger

  it.each([
    ['histories of definitions, grants, refunds, holds, retirement and clocks that go back', anyHistory(40)],
    ['changes of a limit that is used as much as it allows', anyLoad],
  ])('proves random %s', async (_, anyPlayed) => {
    let grants = 0
    await fc.assert(
      fc.asyncProperty(anyPlayed, async (history) => {
        await compare(ledger.sluice.db, history, async () => {
          // The rules of these histories are plain buckets, without a margin.
          await query(`update sluice.limit_def set spec = spec || '{"classic": true, "grantUs": 0, "transitUs": 0}'`)
          const proof = await ledger.sluice.verify()
          grants += proof.grants
          expect(proof).toMatchObject({ exceeded: [], missing: [], isProved: true })
        })
      }),
      // As many as a busy machine reaches in this time.
      { numRuns: engine === 'PGlite' ? 3 : 8 },
    )
    expect(grants).toBeGreaterThan(0)
  })

  it('misses no rows that maintenance deletes while it reads', async () => {
    const [hour, week] = [3_600 * second, 7 * 86_400 * second]
    await define({ rate: '100/min' })
    await take(1)
    // As many as are read at a time.
    await query(
      `insert into sluice.ledger select (jsonb_populate_record(l, jsonb_build_object(
         'n', l.n + i, 'at', l.at + i * 1000, 'units', 0, 'claim', null))).*
       from sluice.ledger l, generate_series(1, 30000) i`,
    )
    await at(week - second)
    await take(1)
    const sql = sqlOn(ledger.sluice.db)
    let reads = 0
    const run: typeof sql.run = async (name, params) => {
      const rows = await sql.run(name, params)
      if (name === 'operations/read_ledger' && ++reads === 1) {
        await at(week + hour)
        // A portion of it at a time.
        for (let n = 0; n < 2; n++) await deleteLedger(ledger.sluice.db, week)
      }
      return rows as never
    }
    const proof = await verify({ query: sql.query.bind(sql), call: sql.call.bind(sql), run })
    expect(proof).toMatchObject({ missing: [], isProved: true, grants: 1, from: new Date((startUs + hour) / 1_000) })
    await query('delete from sluice.ledger where units = 0')
    await take(2)
    await query('delete from sluice.ledger where n = (select max(n) - 1 from sluice.ledger)')
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: false })
  })

  it('states what was proved for each rule, by the name of its guarantee', async () => {
    await define({ rate: '100/min', window: ['60/min', '9/s'], concurrency: 3 }, ['a', 'b', 'c'])
    expect(await take(20, 'a')).toBe(9)
    await at(10 * second)
    expect(await take(2, 'b')).toBe(2)
    const { rules, ...proof } = await ledger.sluice.verify({ limit: 'crm' })
    expect(proof).toMatchObject({ isProved: true, buckets: 3, grants: 11, exceeded: [], missing: [] })
    const of = { limit: 'crm', version: 1, exceeded: 0, keys: 2, worst: 9 }
    expect(rules).toEqual([
      { ...of, guarantee: 'safe rate', rate: '100/min', most: 100, windowMs: 60_200 },
      { ...of, guarantee: 'exact window', rate: '60/min', most: 60, windowMs: 60_200 },
      { ...of, guarantee: 'exact window', rate: '9/s', most: 9, windowMs: 1_200 },
      // Further grants take no place.
      { ...of, guarantee: 'places', rate: '3', most: 3, windowMs: 0, worst: 0, keys: 0 },
    ])
  })

  it('finds an added row, and names the window', async () => {
    await define({ window: '10/min' }, ['a', 'b'])
    expect(await take(20, 'a')).toBe(10)
    const claim = randomUUID()
    await query(
      `insert into sluice.ledger (bucket, n, at, debt, parts, version, units, hold, claim)
       select bucket, n + 1, at + 5000000, debt, parts, version, 1, hold, $1 from sluice.ledger order by n desc limit 1`,
      [claim],
    )
    await at(20 * second)
    const proof = await ledger.sluice.verify()
    expect(proof).toMatchObject({ isProved: false, missing: [] })
    const fromMs = startUs / 1_000
    expect(proof.exceeded).toEqual([
      {
        limit: 'crm',
        key: 'a',
        guarantee: 'exact window',
        rate: '10/min',
        from: new Date(fromMs),
        to: new Date(fromMs + 60_200),
        units: 11,
        most: 10,
        grants: expect.arrayContaining([{ claim, at: new Date(fromMs + 5_000), units: 1, jobs: [] }]),
      },
    ])
    expect(proof.exceeded[0]?.grants).toHaveLength(11)
    // Nothing was wrong before it, nor in another limit.
    expect(await ledger.sluice.verify({ until: new Date(fromMs + 5_000) })).toMatchObject({
      isProved: true,
      grants: 10,
    })
    // A window that a later grant ends reaches back before the period.
    expect(await ledger.sluice.verify({ since: '16s' })).toMatchObject({ isProved: false })
    expect(await ledger.sluice.verify({ since: '14s' })).toMatchObject({ isProved: true })
  })

  it('proves a saturated rate that is changed and changed back', async () => {
    await define({ rate: '100/min' })
    /** Takes each unit about when it is free. */
    const saturate = (fromMs: number, toMs: number): Promise<unknown> =>
      ledger.sluice.db.script(`do $$ declare v_ms bigint; begin
        for v_ms in select generate_series(${fromMs}, ${toMs - 1}, 110) loop
          update sluice.test_clock set us = ${startUs} + v_ms * 1000;
          perform t.granted from ${takeIn('gen_random_uuid()', `array[${hash64('crm')}]`)};
        end loop; end $$`)
    await saturate(0, 100_000)
    await defineLimit(sqlOn(ledger.sluice.db), limit('crm', { rate: '99/min' }), 'code')
    await saturate(100_000, 101_000)
    await defineLimit(sqlOn(ledger.sluice.db), limit('crm', { rate: '100/min' }), 'code')
    await saturate(101_000, 200_000)
    const proof = await ledger.sluice.verify()
    expect(proof).toMatchObject({ exceeded: [], isProved: true })
    // A change costs no more than the units that it takes away.
    expect(proof.rules.map(({ worst }) => worst)).toEqual([100, expect.any(Number), expect.any(Number)])
    expect((await unitsUsed(ledger.sluice.db))['crm']).toBeGreaterThan(300)
  })

  it('finds a row that was moved, and one that is missing', async () => {
    await define({ window: '10/min' })
    expect(await take(20)).toBe(10)
    await at(65 * second)
    expect(await take(20)).toBe(10)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true })
    await query('update sluice.ledger set at = at - 30000000 where n = 15')
    const moved = await ledger.sluice.verify()
    expect(moved.exceeded).toMatchObject([{ units: 11, most: 10 }])
    expect(moved.missing).toHaveLength(3)
    await query('delete from sluice.ledger where n = 15')
    const gone = await ledger.sluice.verify()
    const when = new Date(startUs / 1_000 + 65_000)
    expect(gone).toMatchObject({ isProved: false, exceeded: [], missing: [{ key: '', from: when, to: when }] })
    // Rows that are left of old versions are no gap.
    await query('delete from sluice.ledger where n <= 15')
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, grants: 5 })
  })

  it('finds a refund that was removed', async () => {
    await define({ rate: '100/min' })
    expect(await take(20)).toBe(10)
    await query(refundEach('sluice.ledger order by n limit 4'))
    expect(await take(20)).toBe(4)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, rules: [{ worst: 10 }] })
    await query(`delete from sluice.ledger where units < 0`)
    await query(`update sluice.ledger set n = n - 4 where n > 14`)
    expect(await ledger.sluice.verify()).toMatchObject({
      isProved: false,
      missing: [],
      // 14 at once of a bucket for 10; no minute held more than 100.
      exceeded: [{ guarantee: 'safe rate', units: 14, most: 10 }],
    })
  })

  it('reads a ledger page by page, with many buckets and a long one', async () => {
    await define(
      { window: '1000/s', rate: '50000/min', burst: 50_000 },
      Array.from({ length: 450 }, (_, i) => `k${i}`),
    )
    await query(
      `insert into sluice.ledger (bucket, n, at, debt, version, units, claim)
       select b.id, g, $1::bigint + g * 1300, '{0,0}', 1, 1, gen_random_uuid()
       from sluice.bucket b cross join lateral generate_series(1, case when b.key = 'k7' then 25000 else 3 end) g`,
      [startUs],
    )
    await at(3_600 * second)
    expect(await ledger.sluice.verify()).toMatchObject({ isProved: true, buckets: 450, grants: 449 * 3 + 25_000 })
    await query('update sluice.ledger set units = 200 where n = 24990')
    expect((await ledger.sluice.verify()).exceeded).toMatchObject([{ key: 'k7', units: 1_123, most: 1_000 }])
  })

  it('accepts valid names, times and periods, and names what is wrong with others', async () => {
    await define({ rate: '1/s' })
    const code = (options: object) => ledger.sluice.verify(options).catch((error: { code: string }) => error.code)
    expect(await code({ limit: 'cmr' })).toBe('SLUICE_NO_SUCH_LIMIT')
    expect(await code({ since: new Date(NaN) })).toBe('SLUICE_BAD_OPTION')
    expect(await code({ since: '1h', until: '2h' })).toBe('SLUICE_BAD_OPTION')
    expect(await code({ until: '8d' })).toBe('SLUICE_BAD_OPTION')
    expect(await code({ since: '1 fortnight' })).toBe('SLUICE_BAD_DURATION')
    expect(await code({ from: '1h' })).toBe('SLUICE_BAD_OPTION')
  })
})

describe('the jobs of a limit', () => {
  let t: TestSluice
  const call = task('call', {
    input: z.object({ n: z.number() }),
    limits: [limit('crm', { window: '3/min', concurrency: 2 })],
    run: () => undefined,
  })
  beforeAll(async () => {
    t = await testSluice({ tasks: [call], store: (await freshDatabase()).url })
  })
  afterAll(() => t.close())

  it('are proved to have kept to their limit, places too, and else the jobs in the window are named', async () => {
    const ids: string[] = []
    for (let n = 0; n < 7; n++) ids.push(await call.send({ n }))
    expect(await t.drain()).toBe(3)
    await t.clock.advance('2min')
    expect(await t.drain()).toBe(3)
    expect((await t.sluice.verify()).rules).toMatchObject([
      { guarantee: 'exact window', worst: 3, exceeded: 0 },
      { guarantee: 'places', worst: 2, exceeded: 0 },
    ])
    await t.sluice.db.query(`update sluice.ledger set units = units + 1 where n = 1`)
    const { exceeded, isProved } = await t.sluice.verify()
    expect(isProved).toBe(false)
    const jobs = exceeded.flatMap(({ grants }) => grants.flatMap((grant) => grant.jobs))
    expect(new Set(jobs).size).toBe(3)
    expect(ids).toEqual(expect.arrayContaining(jobs))
    await t.sluice.db.query(`update sluice.ledger set units = units - 1, debt[2] = 3 where n = 1`)
    expect((await t.sluice.verify()).exceeded).toMatchObject([{ guarantee: 'places', units: 3, most: 2 }])
  })
})

it('the proof reads no other rows than those of its buckets, page by page', async () => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  await sluice.db.query(`insert into sluice.ledger (bucket, n, at, debt, version, units)
    select b, i, 1000000 * i + b, '{0}', 1, 1 from generate_series(1, 60) i, generate_series(1, 50) b order by i`)
  await sluice.db.query('analyze sluice.ledger')
  const buckets = Array.from({ length: 50 }, (_, i) => i + 1)
  const [row] = await sluice.db.query<{ 'QUERY PLAN': unknown }>(
    `explain (analyze, format json) ${statementIn('sluice', 'operations/read_ledger')}`,
    [buckets, buckets.map(() => 0), buckets.map(() => 0), 10 ** 12, 100],
  )
  const removed = [...JSON.stringify(row).matchAll(/"Rows Removed by Filter":(\d+)/g)].map(([, n]) => Number(n))
  expect(removed.filter((n) => n > 0)).toEqual([])
})
