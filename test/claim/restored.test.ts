/** A store that lost acknowledged data: a real server that crashes, fails over to a copy, and is restored to an old copy. */
import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { openPg } from '../../src/db/pg.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { limit, task } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'
import { takeIn } from '../takes/engine.ts'
import { addBucket } from '../limits/engine.ts'
import { count, ownClock, quietTask, tenantInput } from './engine.ts'

const run = promisify(execFile)
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }

/** A copy of a stopped server's data, with its owner. */
async function copyOf(dir: string): Promise<string> {
  const base = mkdtempSync(join(tmpdir(), 'sluice-copy-'))
  onTestFinished(() => rmSync(base, { recursive: true, force: true }))
  const copy = join(base, 'data')
  await run('cp', ['-a', dir, copy])
  await run('chmod', ['755', base])
  return copy
}

it('a store killed with -9 after 100 grants still has them in its ledger, and grants the next one when the window is over', async () => {
  const server = await startPostgres()
  onTestFinished(() => server.close())
  const sluice = await Sluice.open({ store: server.url })
  onTestFinished(() => sluice.close())
  const { db } = sluice
  const startMs = 1_790_000_000_000
  const clock = await ownClock(db, startMs)
  const crm = limit('crm', { window: '100/min', transit: 0 })
  await defineLimit(sqlOn(db), crm)
  const bucket = await addBucket(db, 'crm')
  const take = async () => {
    const [row] = await db.query<{ granted: boolean; soonest_us: string }>(
      `select * from ${takeIn('$1', '$2::bigint[]')}`,
      [randomUUID(), [bucket]],
    )
    return Number(row?.soonest_us)
  }
  for (let n = 0; n < 100; n++) expect(await take()).toBe(0)
  await server.stop('immediate')
  await server.start()
  const isBack = () =>
    clock.set(startMs + 10_000).then(
      () => true,
      () => false,
    )
  await until(isBack, 'the store is back')
  // 60 s and the margin, less the ten seconds of the outage; a full start would have granted 100 more here.
  const waitUs = await take()
  expect(waitUs).toBeGreaterThanOrEqual(50_000_000)
  expect(waitUs).toBeLessThan(51_500_000)
  await clock.set(startMs + 10_000 + waitUs / 1_000 - 1)
  expect(await take()).toBeGreaterThan(0)
  await clock.set(startMs + 10_000 + Math.ceil(waitUs / 1_000))
  expect(await take()).toBe(0)
  expect(await count(db, 'sluice.epoch where n = 1 and closed_us is null')).toBe(1)
})

it('a failover to a standby without the last grants closes limits for a window, and reports that, and then goes on', async () => {
  const primary = await startPostgres()
  onTestFinished(() => primary.close())
  const runs: number[] = []
  const [units, windowMs] = [2, 5_000]
  const call = task('call', {
    input: tenantInput,
    limits: [limit('vendor', { window: `${units}/${windowMs / 1_000}s` as '2/5s' })],
    run: () => void runs.push(systemClock.monotonicMs()),
  })
  const errors: string[] = []
  const sluice = await Sluice.open({
    store: primary.url,
    log: { ...log, error: (message) => void errors.push(message) },
  })
  onTestFinished(() => sluice.close())
  const ids: string[] = []
  for (let n = 0; n < 4; n++) ids.push(await sluice.send(call, {}))
  await primary.stop()
  const copy = await copyOf(primary.dir)
  writeFileSync(join(copy, 'standby.signal'), '')
  await primary.start()
  await sluice.work([call])
  await until(() => runs.length === units, 'the first window is used up')

  await primary.stop('immediate')
  const standby = await startPostgres({ dir: copy, settings: { port: primary.port } })
  onTestFinished(() => standby.close())
  const client = new pg.Client(primary.adminUrl)
  await client.connect()
  await client.query('select pg_promote()')
  await client.end()
  const isNext = () => count(sluice.db, 'sluice.epoch where n = 2').catch(() => 0)
  await until(async () => (await isNext()) === 1, 'the loss is noticed')
  const why = await sluice.why(ids[0] as string)
  if (runs.length === units) expect(why?.reasons.map(({ kind }) => kind)).toContain('restored')
  // The two jobs whose runs were lost run again; no window of the vendor's has more than two.
  await until(() => runs.length === units + 4, 'all of the copy is done')
  for (const at of runs)
    expect(runs.filter((other) => other >= at && other < at + windowMs).length).toBeLessThanOrEqual(units)
  expect(errors.some((message) => message.includes('lacks commits'))).toBe(true)
}, 180_000)

const crm = limit('crm', { window: '100/min' })
/** What a program does first; each resolves to how much it was granted, if it takes. */
const firsts = {
  worker: async (sluice: Sluice) => (await sluice.work([quietTask('quiet', [crm])])).stop(),
  takes: async (sluice: Sluice) => {
    const taken = await Promise.allSettled([1, 2, 3].map(() => sluice.takes.take(crm, { maxWaitMs: 30_000 })))
    return taken.filter(({ status }) => status === 'fulfilled').length
  },
}

it.each(Object.entries(firsts))(
  'a dump that is restored on the same server is noticed by the first %s of a program, which close limits',
  async (_, first) => {
    /** What a program that begins, does that and ends finds in the store. */
    const startOn = async (store: string) => {
      const sluice = await Sluice.open({ store })
      try {
        const granted = await first(sluice)
        const [epoch] = await sluice.db.query(`select n::integer, closed_us is not null as closed from sluice.epoch`)
        return { ...epoch, granted }
      } finally {
        await sluice.close()
      }
    }
    const database = await freshDatabase()
    const open = { n: 1, closed: false, granted: first === firsts.takes ? 3 : undefined }
    expect(await startOn(database.url)).toEqual(open)
    expect(await startOn(database.url)).toEqual(open)
    // As in a database that is made of a dump, the rows are the same, and the tables are others.
    const client = new pg.Client(database.url)
    await client.connect()
    await client.query(`create table sluice.other (like sluice.epoch including all)`)
    await client.query(`insert into sluice.other select * from sluice.epoch`)
    await client.query(`drop table sluice.epoch`)
    await client.query(`alter table sluice.other rename to epoch`)
    await client.end()
    const closed = { n: 2, closed: true, granted: first === firsts.takes ? 0 : undefined }
    expect(await startOn(database.url)).toEqual(closed)
    expect(await startOn(database.url)).toEqual(closed)
  },
)

it('a store that is restored to an older copy of its data is noticed by a running worker', async () => {
  const server = await startPostgres()
  onTestFinished(() => server.close())
  const sluice = await Sluice.open({ store: server.url })
  const worker = await sluice.work([quietTask('quiet')])
  await worker.stop()
  await sluice.close()
  await server.stop()
  const copy = await copyOf(server.dir)
  await server.start()
  const db = openPg({ url: server.url, listenUrl: server.url, clock: systemClock })
  onTestFinished(() => db.close())
  const epoch = new StoreEpoch(storeOn(db, { log }), new StoreClock())
  await epoch.check()
  await db.query(`insert into sluice.setting values ('x', '1', sluice.now())`)
  await epoch.check()
  await server.stop('immediate')
  const older = await startPostgres({ dir: copy, settings: { port: server.port } })
  onTestFinished(() => older.close())
  const isLooking = () =>
    epoch.check().then(
      () => true,
      () => false,
    )
  await until(isLooking, 'the store is back')
  expect(await count(db, 'sluice.epoch where n = 2 and closed_us > 0')).toBe(1)
  // The id of a worker that the copy does not know is not used for another worker.
  const [next] = await db.query<{ id: string }>(`select nextval('sluice.worker_id_seq') as id`)
  expect(Number(next?.id)).toBeGreaterThan(1_000_000)
  await epoch.check()
  expect(await count(db, 'sluice.epoch where n = 2')).toBe(1)
}, 180_000)
