import pg from 'pg'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { checks } from '../../src/cli/checks.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import type { SluiceOptions } from '../../src/options.ts'
import { Sluice } from '../../src/sluice.ts'
import type { Owner } from '../fleet/children.ts'
import { emptyDatabase, freshDatabase } from '../servers/database.ts'
import { startPgbouncer } from '../servers/pgbouncer.ts'
import { numbered } from '../rows.ts'
import { until } from '../until.ts'
import { idleWorkers } from '../store/engine.ts'
import { beats } from '../fleet/engine.ts'

/** A database, a pgbouncer in transaction mode before it, and what opens a Sluice, for one test. */
async function stage({ onTestFinished }: Owner, connections?: number, database = freshDatabase) {
  const { url } = await database()
  const bouncer = await startPgbouncer(url, connections)
  onTestFinished(() => bouncer.close())
  const open = async (options: SluiceOptions) => {
    const sluice = await Sluice.open(options)
    onTestFinished(() => sluice.close())
    return sluice
  }
  return {
    url,
    bouncer,
    open,
    direct: () => open({ store: url }),
    /** Through pgbouncer, with a direct connection for LISTEN. */
    through: () => open({ store: bouncer.url, listenUrl: url }),
  }
}

it.concurrent('migrations, sends, work, limits and notifications function through pgbouncer in transaction mode', async (context) => {
  const { through } = await stage(context, 2, emptyDatabase)
  const sluice = await through()
  const runs: number[] = []
  const work = task('pooled', {
    input: z.object({ n: z.number() }),
    limits: [limit('pooled', { rate: '1000000/s', burst: 1_000_000, concurrency: 7 })],
    async run({ n }, { job }) {
      runs.push(n)
      await sluice.transaction(async (tx) => {
        const [row] = await tx.query<{ level: string }>(`select current_setting('transaction_isolation') as level`)
        expect(row?.level).toBe('read committed')
        await sluice.send(child, { parent: job.id }, { tx, idempotencyKey: job.id })
      })
      return n
    },
  })
  const child = task('pooled.child', { input: z.object({ parent: z.string() }), run: () => undefined })
  const worker = await sluice.work([work, child], { concurrency: 8 })
  const n = 60
  await sluice.sendMany(work, numbered(n))
  await until(async () => (await sluice.jobs.status()).done === 2 * n, 'all are done')
  expect(runs.toSorted((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, i) => i))
  expect(await sluice.jobs.status()).toMatchObject({ waiting: 0, running: 0, failed: 0, workers: 1 })
  await sluice.prune()
  // No setting was left on the sessions that all clients share.
  const left = `select (select count(*)::int from pg_prepared_statements) as prepared,
    (select count(*)::int from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks,
    current_setting('lock_timeout') as patience, current_setting('idle_in_transaction_session_timeout') as idle`
  for (let i = 0; i < 4; i++)
    expect(await sluice.db.query(left)).toEqual([{ prepared: 0, locks: 0, patience: '0', idle: '0' }])
  await worker.stop()
  expect((await sluice.jobs.status()).workers).toBe(0)
})

it.concurrent('an idle worker behind pgbouncer is woken by NOTIFY, and sends heartbeats', async (context) => {
  const at = await stage(context)
  const [direct, sluice] = [await at.direct(), await at.through()]
  const quiet = task('pooled.woken', { input: z.object({}), run: () => undefined })
  const worker = await sluice.work([quiet])
  await until(async () => (await idleWorkers(direct.db)).length === 1, 'it is idle')
  expect(sluice.db.listening()).toBe(true)
  const id = await direct.send(quiet, {})
  expect(await direct.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done', attempt: 1 })
  await until(async () => (await beats(direct.db)) >= 3, 'it beats')
  await worker.stop()
})

it.concurrent('a worker that listens only through pgbouncer knows that it gets no notifications, and polls', async (context) => {
  const at = await stage(context)
  const [direct, sluice] = [await at.direct(), await at.open({ store: at.bouncer.url })]
  const unheard = task('pooled.unheard', { input: z.object({}), run: () => undefined })
  const worker = await sluice.work([unheard])
  await until(async () => (await beats(direct.db)) >= 2, 'it beats, and listens by now')
  expect(sluice.db.listening()).toBe(false)
  const id = await direct.send(unheard, {})
  expect(await direct.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done' })
  await worker.stop()
})

it.concurrent('a worker whose pooler has no free connection still sends heartbeats, and is not given up', async (context) => {
  const at = await stage(context, 2)
  const [direct, sluice] = [await at.direct(), await at.through()]
  const worker = await sluice.work([task('pooled.held', { input: z.object({}), run: () => undefined })])
  await until(async () => (await beats(direct.db)) > 0, 'it beats')
  const holders = Array.from({ length: 2 }, () => new pg.Client(at.bouncer.url))
  for (const holder of holders) {
    await holder.connect()
    await holder.query('begin')
  }
  const held = await beats(direct.db)
  await until(async () => (await beats(direct.db)) > held + 2, 'it beats all the same')
  for (const holder of holders) await holder.end()
  await worker.stop()
})

it.concurrent('doctor recognises the pooler, warns without a direct URL for LISTEN, and refuses one that leads to a pooler', async (context) => {
  const { url, bouncer, through } = await stage(context)
  const sluice = await through()
  const place = (from: string, to: string) => ({
    store: { db: sluice.db, url: from, directUrl: to, owner: false, embedded: false },
    schema: 'sluice',
  })
  const check = (from: string, to: string) => checks['pooler']?.(place(from, to))
  expect(await check(bouncer.url, bouncer.url)).toMatchObject({
    status: 'warn',
    text: expect.stringContaining('set SLUICE_LISTEN_URL'),
  })
  const other = `${bouncer.url}?application_name=listen`
  expect(await check(bouncer.url, other)).toMatchObject({
    status: 'warn',
    text: expect.stringContaining('leads to a pooler, too'),
  })
  expect(await check(bouncer.url, url)).toMatchObject({ status: 'ok' })
  expect(await check(url, url)).toMatchObject({ status: 'ok', text: 'connections lead to the server itself' })
  expect(await checks['listen']?.(place(bouncer.url, url))).toMatchObject({ status: 'ok' })
})
