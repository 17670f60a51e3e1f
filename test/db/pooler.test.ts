import pg from 'pg'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import { checks } from '../../src/cli/checks.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { count } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Pgbouncer, startPgbouncer } from '../servers/pgbouncer.ts'
import { until } from '../until.ts'

let url: string
let bouncer: Pgbouncer
let direct: Sluice
const open: Sluice[] = []

beforeAll(async () => {
  url = (await freshDatabase()).url
  bouncer = await startPgbouncer(url)
  direct = await Sluice.open({ store: url })
})
afterAll(async () => {
  await Promise.all(open.map((sluice) => sluice.close()))
  await direct.close()
  await bouncer.close()
})

/** A Sluice through pgbouncer in transaction mode, with a direct connection for LISTEN. */
async function through(): Promise<Sluice> {
  const sluice = await Sluice.open({ store: bouncer.url, listenUrl: url })
  open.push(sluice)
  return sluice
}

it('migrations, sends, work, limits and notifications function through pgbouncer in transaction mode', async () => {
  const { url: fresh } = await freshDatabase()
  const own = await startPgbouncer(fresh, 2)
  const sluice = await Sluice.open({ store: own.url, listenUrl: fresh })
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
  await sluice.sendMany(
    work,
    Array.from({ length: n }, (_, i) => ({ n: i })),
  )
  await until(async () => (await count(sluice.db, `sluice.done where state = 'done'`)) === 2 * n, 'all are done')
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
  expect(await count(sluice.db, 'sluice.worker')).toBe(0)
  await sluice.close()
  await own.close()
})

it('an idle worker behind pgbouncer is woken by NOTIFY, and sends heartbeats', async () => {
  const sluice = await through()
  const quiet = task('pooled.woken', { input: z.object({}), run: () => undefined })
  const worker = await sluice.work([quiet])
  await until(async () => (await count(direct.db, 'sluice.idle')) === 1, 'it is idle')
  expect(sluice.db.listening()).toBe(true)
  const id = await direct.send(quiet, {})
  expect(await direct.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done', attempt: 1 })
  const beats = async () => Number((await direct.db.query<{ beat: string }>('select beat from sluice.worker'))[0]?.beat)
  await until(async () => (await beats()) >= 3, 'it beats')
  await worker.stop()
})

it('a worker that listens only through pgbouncer knows that it gets no notifications, and polls', async () => {
  const sluice = await Sluice.open({ store: bouncer.url })
  open.push(sluice)
  const unheard = task('pooled.unheard', { input: z.object({}), run: () => undefined })
  const worker = await sluice.work([unheard])
  const beats = async () => Number((await direct.db.query<{ beat: string }>('select beat from sluice.worker'))[0]?.beat)
  await until(async () => (await beats()) >= 2, 'it beats, and listens by now')
  expect(sluice.db.listening()).toBe(false)
  const id = await direct.send(unheard, {})
  expect(await direct.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done' })
  await worker.stop()
})

it('a worker whose pooler has no free connection still sends heartbeats, and is not given up', async () => {
  const { url: fresh } = await freshDatabase()
  const own = await startPgbouncer(fresh, 2)
  const sluice = await Sluice.open({ store: own.url, listenUrl: fresh })
  const beside = await Sluice.open({ store: fresh })
  const worker = await sluice.work([task('pooled.held', { input: z.object({}), run: () => undefined })])
  const beat = async () => Number((await beside.db.query<{ beat: string }>('select beat from sluice.worker'))[0]?.beat)
  await until(async () => (await beat()) > 0, 'it beats')
  const holders = Array.from({ length: 2 }, () => new pg.Client(own.url))
  for (const holder of holders) {
    await holder.connect()
    await holder.query('begin')
  }
  const held = await beat()
  await until(async () => (await beat()) > held + 2, 'it beats all the same')
  for (const holder of holders) await holder.end()
  await worker.stop()
  await Promise.all([sluice.close(), beside.close()])
  await own.close()
})

it('doctor recognises the pooler, warns without a direct URL for LISTEN, and refuses one that leads to a pooler', async () => {
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
