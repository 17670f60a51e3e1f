/**
 * Two releases at once: a rolling deploy, and its rollback, under load. There is only one release yet, so the next is derived
 * from it: its functions have other texts, the one that claims another signature, and a migration adds columns.
 */
import type { ChildProcess } from 'node:child_process'
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { expect, onTestFinished, test, vi } from 'vitest'
import { version } from '../../src/core/version.ts'
import { Sluice } from '../../src/sluice.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { end, start, vendorOf } from './children.ts'
import { jobsLeft } from '../store/engine.ts'

const root = fileURLToPath(new URL('../..', import.meta.url))
const memberFile = fileURLToPath(new URL('./releases.mjs', import.meta.url))
const next = '999.0.0-next.1'
/** Calls that show that a release does its part. */
const part = isLong ? 100 : 40
vi.setConfig({ testTimeout: 300_000 })

/** A built package that differs from this one as a release does; resolves to its main file. */
function makeNext(base: string): string {
  cpSync(join(root, 'dist'), join(base, 'dist'), { recursive: true })
  cpSync(join(root, 'package.json'), join(base, 'package.json'))
  symlinkSync(join(root, 'node_modules'), join(base, 'node_modules'))
  const files = readdirSync(join(base, 'dist'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.js'))
    .map((file) => join(base, 'dist', file))
  /** Changes a text wherever the build has put it. */
  const change = (from: RegExp, to: string) => {
    const having = files.filter((file) => from.test(readFileSync(file, 'utf8')))
    if (having.length === 0) throw new Error(`no file has ${from}`)
    for (const file of having)
      writeFileSync(
        file,
        readFileSync(file, 'utf8').replaceAll(new RegExp(from, 'g'), () => to),
      )
  }
  const columns = ['job', 'done', 'failed', 'ledger', 'claim', 'worker', 'lane', 'bucket', 'limit_def']
  const migration = columns.map((table) => `alter table sluice.${table} add column next_note text default 'next';`)
  change(new RegExp(`(?<=const version = ["'])${version}(?=["'])`), next)
  change(/(?<=call\(["']claim_jobs["'], \[)/, "'next', ")
  change(/(?<=perform engine\.claim_jobs\()/, "'next', ")
  change(/(?<=create or replace function engine\.claim_jobs\()/, 'p_release text, ')
  change(/-- Ends attempts\./, '-- Ends attempts, in the next release.')
  change(/(?<=const migrations = \{)/, `"9999_next": ${JSON.stringify(migration.join('\n'))},`)
  change(/(?<=const migrationNames = \[)/, '"9999_next", ')
  return join(base, 'dist', 'index.js')
}

test('a rolling deploy and a rollback under load run each job once, exceed no limit, and fail no job', async (context) => {
  const base = mkdtempSync(join(tmpdir(), 'sluice-release-'))
  onTestFinished(() => rmSync(base, { recursive: true, force: true }))
  const mainFiles = { old: join(root, 'dist', 'index.js'), new: makeNext(base) }
  const said = join(base, 'said')
  const told = (what: string) =>
    (existsSync(said) ? readFileSync(said, 'utf8') : '')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as { what: string; name: string; text: string })
      .filter((one) => one.what === what)
  const log = { algorithm: 'sliding log', windowMs: 4_000 }
  const vendor = await vendorOf(context, [
    { ...log, name: 'fleet', limit: 400 },
    { ...log, name: 'key', limit: 200, key: 'header:x-key' },
    { ...log, name: 'release', limit: 1_000_000, key: 'header:x-release' },
  ])
  const { url: store } = await freshDatabase()
  const fleet = async (name: 'old' | 'new') => {
    const options = { release: pathToFileURL(mainFiles[name]).href, name, store, vendor: vendor.url, said }
    const all = await Promise.all(
      ['sender', 'worker', 'worker'].map((as) => start(context, memberFile, { ...options, as })),
    )
    return all.map(({ child }) => child)
  }
  const calls = async (name: string) => (await vendor.arrivals()).filter(({ keys }) => keys[2] === name).length
  /** Sends and calls of this release both go on. */
  const goesOn = async (name: string) => {
    const [sent, called] = [told('sent').filter((one) => one.name === name).length, await calls(name)]
    await until(
      async () =>
        told('sent').filter((one) => one.name === name).length >= sent + part && (await calls(name)) >= called + part,
      `${name} goes on`,
    )
  }

  let old: ChildProcess[] = await fleet('old')
  await goesOn('old')
  const young = await fleet('new')
  await Promise.all([goesOn('new'), goesOn('old')])
  await end(old)
  await goesOn('new')
  old = await fleet('old')
  await Promise.all([goesOn('new'), goesOn('old')])
  await end(young)
  await goesOn('old')
  await end(old.slice(0, 1))
  const sluice = await Sluice.open({ store })
  onTestFinished(() => sluice.close())
  await until(async () => (await jobsLeft(sluice.db)) === 0, 'all jobs have ended')
  await end(old.slice(1))

  expect(told('error')).toEqual([])
  expect(told('again')).toEqual([])
  const sent = told('sent').map(({ text }) => text)
  const done = await sluice.db.query<{ id: string }>('select id from sluice.done')
  expect(done.map(({ id }) => id).toSorted()).toEqual(sent.toSorted())
  expect((await sluice.jobs.status()).failed).toBe(0)
  const report = await vendor.report()
  expect(report).toMatchObject({ vendor429: 0, duplicates: 0 })
  expect(report.rules.map(({ name, exceeded }) => `${name}: ${exceeded} exceeded`)).toEqual([
    'fleet: 0 exceeded',
    'key: 0 exceeded',
    'release: 0 exceeded',
  ])
  expect((await vendor.arrivals()).length).toBe(sent.length)
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [], missing: [] })
  // The next release was installed, with its additions; each release has functions of its own.
  const [has] = await sluice.db.query(
    `select count(*)::int as schemas, (select count(*)::int from information_schema.columns where column_name = 'next_note' and table_name = 'job') as columns
     from pg_namespace where nspname like 'sluice\\_%'`,
  )
  expect(has).toEqual({ schemas: 2, columns: 1 })
})
