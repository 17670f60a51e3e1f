/** What operators do to a store after an accident, or when another program leaves: each by a command. */
import { randomUUID } from 'node:crypto'
import { Client } from 'pg'
import { expect, it } from 'vitest'
import { limit, Sluice, task } from '../../src/index.ts'
import { shared as checkShared } from '../../src/cli/shared.ts'
import { sqlOn } from '../../src/db/store.ts'
import { slow } from '../redis/peer-stage.ts'
import { count } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { createProject, objects } from './program.ts'

const notConfirmed = { code: 2, err: expect.stringContaining('SLUICE_NOT_CONFIRMED') }

/** A project and a program on one new database. */
async function openProject(onTestFinished: (close: () => Promise<void>) => void) {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  const sluice = await Sluice.open({ store: url, logLevel: 'silent' })
  onTestFinished(() => sluice.close())
  return { project, sluice }
}

it('limits close closes them as a restore that was noticed does', async ({ onTestFinished }) => {
  const { project, sluice } = await openProject(onTestFinished)
  const call = task('call', { limits: [limit('crm', { window: '5/min' })], run: () => undefined })
  const id = await sluice.send(call, {})
  const stopped = async () => (await sluice.why(id))?.reasons.some(({ kind }) => kind === 'restored')

  expect(await project.runWarm(['limits', 'close'])).toMatchObject(notConfirmed)
  expect(await stopped()).toBe(false)
  const closed = await project.runWarm(['limits', 'close', '--yes'])
  expect(closed).toMatchObject({ code: 0, out: expect.stringMatching(/^limits closed until .*: crm\n$/) })
  expect(await stopped()).toBe(true)
  expect(await sluice.dispatchOnce([call])).toBe(0)
})

it('limits redis ends the use of Redis, and has another database begin its state', async ({ onTestFinished }) => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  const [first, second] = [await freshDatabase(), await freshDatabase()]
  const work = async (store: string) => {
    const errors: string[] = []
    const log = {
      debug() {},
      info() {},
      warn() {},
      error: (text: string, about?: object) => void errors.push(text + JSON.stringify(about)),
    }
    const sluice = await Sluice.open({ store, redis: redis.url, log })
    const call = task('call', { limits: [slow(false)], run: () => 'ran' })
    const worker = await sluice.work([call])
    return { sluice, errors, worker, id: await sluice.send(call, {}) }
  }
  const project = createProject({ DATABASE_URL: first.url })
  const other = createProject({ DATABASE_URL: second.url, REDIS_URL: redis.url })
  onTestFinished(async () => void (await Promise.all([project.close(), other.close()])))
  const one = await work(first.url)
  await one.sluice.waitFor(one.id, { timeout: '1min' })
  await one.sluice.close()

  expect(await project.runWarm(['limits', 'redis', '--stores', '0'])).toMatchObject(notConfirmed)
  const asked = await project.runWarm(['limits', 'redis', '--stores', '1'])
  expect(asked).toMatchObject({ ...notConfirmed, err: expect.stringMatching(/`published` close .*stop the workers/) })
  expect(await project.runWarm(['limits', 'redis', '--stores', '1', '--yes'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('REDIS_URL'),
  })
  expect(await project.runWarm(['limits', 'redis', '--stores', '0', '--yes'])).toMatchObject({
    code: 0,
    out: 'the store alone decides limits from now on\n',
  })
  const looked = await Sluice.open({ store: first.url })
  expect(await count(looked.db, 'sluice.shared')).toBe(0)
  await looked.close()

  const two = await work(second.url)
  onTestFinished(() => two.sluice.close())
  await until(() => two.errors.some((text) => text.includes('sluice limits redis --stores 1')), 'it is refused')
  expect(await other.runWarm(['limits', 'redis', '--stores', '1', '--yes'])).toMatchObject({ code: 0 })
  expect((await two.sluice.waitFor(two.id, { timeout: '1min' })).result).toBe('ran')
  expect(await client.send('HGET', ['sluice:{limits}:epoch', 'id'])).not.toBeNull()
})

it('limits redis lowers the number of databases that share limits', async ({ onTestFinished }) => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  await sluice.db.query(`insert into sluice.shared (owner, epoch, at, stores) values ('a', 'b', now(), 3)`)
  const project = createProject({ DATABASE_URL: url, REDIS_URL: redis.url })
  onTestFinished(() => project.close())
  const set = await project.runWarm(['limits', 'redis', '--stores', '2', '--yes', '--json'])
  expect(objects(set.out)).toEqual([{ stores: 2, prefix: 'sluice:', stood: false }])
  expect(await count(sluice.db, `sluice.shared where stores = 2 and epoch = 'b'`)).toBe(1)

  const worker = await sluice.work([task('any', { run: () => undefined })])
  expect(await project.runWarm(['limits', 'redis', '--stores', '1', '--yes'])).toMatchObject({
    code: 2,
    err: expect.stringContaining('2 databases share the limits: before --stores 1, stop the workers'),
  })
  expect(await count(sluice.db, 'sluice.shared where stores = 2')).toBe(1)
  await worker.stop()
  expect(await project.runWarm(['limits', 'redis', '--stores', '1', '--yes'])).toMatchObject({ code: 0 })
})

it('limits redis on a database that had no epoch: a published limit closes there', async ({ onTestFinished }) => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const { url } = await freshDatabase()
  const shared = limit('shared', { window: '10/h', published: true })
  const call = task('call', { limits: [shared], run: () => undefined })
  const sluice = await Sluice.open({ store: url, redis: redis.url, logLevel: 'silent' })
  onTestFinished(() => sluice.close())
  const project = createProject({ DATABASE_URL: url, REDIS_URL: redis.url })
  onTestFinished(() => project.close())
  const set = await project.runWarm(['limits', 'redis', '--stores', '2', '--yes'])
  expect(set).toMatchObject({
    code: 0,
    out: expect.stringContaining('2 databases share the limits under "sluice:" in this Redis; there was no epoch;'),
  })
  expect(await count(sluice.db, `sluice.shared where stores = 2 and epoch <> ''`)).toBe(1)
  const storage = { sql: sqlOn(sluice.db), schema: 'sluice', isEmbedded: false }
  expect(await checkShared(storage)).toMatchObject({ status: 'ok', text: expect.stringContaining('the next worker') })

  expect(await project.runWarm(['limits', 'redis', '--stores', '1', '--yes'])).toMatchObject({ code: 0 })
  await sluice.work([call])
  const id = await sluice.send(call, {})
  const isClosed = async () => (await sluice.why(id))?.reasons.some(({ kind }) => kind === 'redis-begun')
  await until(async () => (await isClosed()) === true, 'the limit is closed')
})

it('migrate grants a role what it needs, and prints that first', async ({ onTestFinished }) => {
  const { url, adminUrl } = await freshDatabase()
  const role = `app "${randomUUID()}"`
  const quoted = `"${role.replaceAll('"', '""')}"`
  const admin = new Client(adminUrl)
  await admin.connect()
  await admin.query(`create role ${quoted}`)
  onTestFinished(async () => {
    await admin.query(`drop owned by ${quoted}; drop role ${quoted}`)
    await admin.end()
  })
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  await project.runWarm(['migrate'])
  const may = async () =>
    (await admin.query(`select has_table_privilege($1, 'sluice.job', 'insert') as may`, [role])).rows[0].may
  const shown = await project.runWarm(['migrate', '--grant', role, '--dry-run'])
  expect(shown).toMatchObject({ code: 0, out: expect.stringContaining(`to ${quoted}`) })
  expect(await may()).toBe(false)
  expect(await project.runWarm(['migrate', '--grant', role])).toMatchObject({ code: 0 })
  expect(await may()).toBe(true)
  expect(await project.runWarm(['migrate', '--grant', 'nobody-of-this-name'])).toMatchObject({ code: 1 })
})

it('prune deletes what has ended and has a value anywhere in its data', async ({ onTestFinished }) => {
  const { project, sluice } = await openProject(onTestFinished)
  const keep = task('keep', {
    run: (input: { fails?: boolean }) => {
      if (input.fails) throw new Error('x')
    },
    retry: { attempts: 1 },
  })
  const later = await sluice.send(keep, { of: '71' } as never, { delay: '1d' })
  const others = await sluice.send(keep, { of: '711' } as never)
  await sluice.send(keep, { list: [{ of: 71 }] } as never)
  await sluice.send(keep, { of: '71', fails: true } as never)
  await sluice.dispatchOnce([keep])
  const prune = (...args: string[]) => project.runWarm(['prune', '--value', '71', ...args])
  const both = '1 done or cancelled job, 1 failed job'

  expect(await prune('--dry-run')).toMatchObject({ code: 0, out: `would delete: ${both}\n` })
  expect(await prune()).toMatchObject({ code: 2, err: expect.stringContaining(`${both} would be deleted`) })
  expect(await prune('--keep-done', '1d')).toMatchObject({ code: 2, err: expect.stringContaining('SLUICE_BAD_OPTION') })
  expect(await prune('--yes')).toMatchObject({ code: 0, out: `deleted: ${both}\n` })
  expect(objects((await prune('--yes', '--json')).out)).toMatchObject([
    { dryRun: false, done: 0, failed: 0, events: 0, calls: 0 },
  ])
  expect((await sluice.jobs.get(others))?.state).toBe('done')
  expect((await sluice.jobs.get(later))?.state).toBe('scheduled')

  const of = async (value: string) =>
    objects((await project.runWarm(['prune', '--value', value, '--dry-run', '--json'])).out)[0]
  expect(await of('711')).toMatchObject({ done: 1, unsent: 0 })
  // A number is one only as JSON writes it, with all of its digits.
  await sluice.db.query(`update sluice.done set input = '{"of": [9007199254740993, 123]}'`)
  expect(await of('9007199254740993')).toMatchObject({ done: 1 })
  expect(await of('9007199254740992')).toMatchObject({ done: 0 })
  expect(await of('00123')).toMatchObject({ done: 0 })
  // A Celery producer waits for the result of this job.
  await sluice.db.query(
    `insert into sluice.celery_call (id, job, call, created_at) select 'c', id, '{}', sluice.now() from sluice.done`,
  )
  const left = await project.runWarm(['prune', '--value', '9007199254740993', '--yes'])
  expect(left.out).toMatch(/^deleted: nothing\nleft out: 1 job whose result /)
  expect((await sluice.jobs.get(others))?.state).toBe('done')
})
