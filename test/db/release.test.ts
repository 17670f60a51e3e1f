/** The functions of replaced releases: they stay for a rollback, and for workers that still call them. */
import { beforeAll, expect, it } from 'vitest'
import { version } from '../../src/core/version.ts'
import type { Db } from '../../src/db/db.ts'
import { migrate } from '../../src/db/migrate.ts'
import { Sluice } from '../../src/sluice.ts'
import { engines, openOn, quietTask } from '../claim/engine.ts'

let sluice: Sluice
let db: Db
beforeAll(async () => {
  sluice = await openOn(engines[0])
  db = sluice.db
  return () => sluice.close()
})

/** As if a release had been installed this number of days ago. */
const installed = async (release: string, days: number) => {
  await db.script(`create schema if not exists "sluice_${release.replaceAll(/\W/g, '_')}"`)
  await db.query(
    `insert into sluice.migration values ($1, clock_timestamp() - make_interval(days => $2))
     on conflict (name) do update set applied_at = excluded.applied_at`,
    [`functions-${release}-0123456789abcdef`, days],
  )
}
/** Installs this release, as if now, and resolves to the schemas of other releases that are left. */
const left = async () => {
  await db.query(`delete from sluice.migration where name like 'functions-' || $1 || '-%'`, [version])
  await migrate(db)
  const rows = await db.query<{ nspname: string }>(
    `select nspname from pg_namespace where nspname like 'sluice\\_%' and nspname <> $1 order by nspname`,
    [`sluice_${version.replaceAll('.', '_')}`],
  )
  return rows.map(({ nspname }) => nspname)
}
const enter = (release: string) =>
  db.query(
    `insert into sluice.worker (host, pid, version, tasks, slots, started_at) values ('test', 1, $1, '{}', 1, sluice.now())`,
    [release],
  )

it('functions of a release are dropped 90 days after another release replaced it, unless one of its workers lives', async () => {
  await installed('0.0.1', 300)
  await installed('0.0.2', 200)
  await installed('0.0.3', 100)
  await installed('0.0.4', 80)
  await enter('0.0.2')
  // 0.0.3 was replaced 80 days ago, 0.0.4 is just being replaced.
  expect(await left()).toEqual(['sluice_0_0_2', 'sluice_0_0_3', 'sluice_0_0_4'])
  await db.query('delete from sluice.worker')
  expect(await left()).toEqual(['sluice_0_0_3', 'sluice_0_0_4'])
  await db.query(
    `update sluice.migration set applied_at = applied_at - interval '20 days' where name like 'functions-0.0%'`,
  )
  expect(await left()).toEqual(['sluice_0_0_4'])
})

it('a dropped release candidate does not take its release with it', async () => {
  await installed('0.0.5-rc.1', 200)
  await installed('0.0.6', 100)
  await installed('0.0.5', 1)
  expect(await left()).toEqual(expect.arrayContaining(['sluice_0_0_5', 'sluice_0_0_6']))
  expect(await left()).not.toContain('sluice_0_0_5_rc_1')
})

it('a process that only sends installs its functions again when another release has dropped them', async () => {
  const drop = async () => {
    await db.script(`drop schema "sluice_${version.replaceAll(/\W/g, '_')}" cascade`)
    await db.query(`delete from sluice.migration where name like 'functions-' || $1 || '-%'`, [version])
  }
  const ids = []
  for (let i = 0; i < 2; i++) {
    await drop()
    ids.push(...(await Promise.all([1, 2].map(() => sluice.send(quietTask('kept'), {})))))
  }
  await drop()
  expect((await sluice.list({ state: 'waiting' })).map(({ id }) => id).sort()).toEqual(ids.sort())
  const reader = await Sluice.open({ store: String(sluice.url), migrate: false })
  await drop()
  await expect(reader.send(quietTask('kept'), {})).rejects.toMatchObject({ code: '3F000' })
  await reader.close()
  await migrate(db)
})

it('a migration that deadlocks with a live process is repeated, and another error ends it', async () => {
  const failing = (code: string, times: number) => {
    let left = times
    const transaction: Db['transaction'] = async (body) => {
      if (left-- <= 0) return db.transaction(body)
      throw Object.assign(new Error('the transaction was ended'), { code })
    }
    const query: Db['query'] = (sql, params) => db.query(sql, params)
    return { query, transaction } as Db
  }
  const forget = () => db.query(`delete from sluice.migration where name like 'functions-%'`)
  await forget()
  expect(await migrate(failing('40P01', 2))).toHaveLength(1)
  expect(await migrate(failing('40P01', 2))).toEqual([])
  await forget()
  await expect(migrate(failing('40P01', 100))).rejects.toMatchObject({ code: '40P01' })
  await expect(migrate(failing('57014', 1))).rejects.toMatchObject({ code: '57014' })
  expect(await migrate(db)).toHaveLength(1)
})
