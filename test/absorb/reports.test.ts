/** Reports to Celery producers of which a part cannot be sent. */
import { randomBytes } from 'node:crypto'
import { expect, it, onTestFinished } from 'vitest'
import { Reporter } from '../../src/absorb/reporter.ts'
import type { TaskResult } from '../../src/celery/result.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import type { Queryable } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { type AnyTask, newId, Sluice, task } from '../../src/index.ts'
import { ownClock } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'

/** A store with these tasks at work, and a reporter of its calls, which looks for their ends by itself. */
async function reporting(tasks: readonly AnyTask[], finish: (result: TaskResult) => void) {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  const { db } = sluice
  await sluice.work(tasks)
  const results = { finish: async (_: unknown, result: TaskResult) => finish(result) }
  const events = { isOn: false, sendStarted() {}, sendEnd() {} }
  const how = { results: results as never, events: events as never, name: 'a', tracksStarted: false }
  const store = storeOn(db)
  const call = store.call.bind(store) as (...given: unknown[]) => Promise<never>
  const called: unknown[] = []
  store.call = (...given: unknown[]) => (called.push(given[0]), call(...given))
  const run = store.run.bind(store) as (...given: unknown[]) => Promise<never>
  const statements: unknown[] = []
  const reads: string[][] = []
  store.run = async (...given: unknown[]) => {
    statements.push(given[0])
    const rows = (await run(...given)) as never[]
    if (given[0] === 'absorb/find_changed_calls') reads.push(rows.map(({ result }) => String(result)))
    return rows
  }
  const reporter = new Reporter({ store, ...how })
  onTestFinished(() => reporter.close())
  const record = (id: string, job: string) =>
    db.query(`insert into sluice.celery_call (id, job, call, created_at) values ($1, $2, '{}', sluice.now())`, [
      id,
      job,
    ])
  return { url, sluice, db, reporter, record, called, statements, reads }
}

it('a reporter sends the end of a call once, though that of another one could not be sent', async () => {
  const sent: string[] = []
  let failures = 2
  const note = task('note', { run: () => 'noted' })
  const { sluice, db, reporter, record } = await reporting([note], ({ id }) => {
    if (id === 'bad' && failures-- > 0) throw new StoreError('SLUICE_REDIS_UNREACHABLE', 'it is away')
    sent.push(id)
  })
  const calls = ['good', 'bad']
  for (const id of calls) {
    const job = newId()
    await sluice.send(note, null, { id: job })
    await sluice.waitFor(job)
    await record(id, job)
  }
  reporter.start()
  await until(() => sent.includes('bad'), 'both are sent')
  await until(async () => {
    const [row] = await db.query<{ n: string }>(
      'select count(*) as n from sluice.celery_call where replied_at is null and reported = 0',
    )
    return row?.n === '0'
  }, 'both are recorded')
  expect(sent).toEqual(calls)
})

it.each([
  { what: 'after a tenth of a second', thenMs: 100 },
  { what: 'when the clock of the store was set back', thenMs: -3_600_000 },
])('a reporter leaves what has just ended to the process that executed it, and sends it $what', async ({ thenMs }) => {
  const note = task('note', { run: () => 'noted' })
  const sent: string[] = []
  const { sluice, db, reporter, record, statements } = await reporting([note], ({ id }) => sent.push(id))
  const job = newId()
  await sluice.send(note, null, { id: job })
  await sluice.waitFor(job)
  await record('call', job)
  const [row] = await db.query<{ ms: number }>(
    'select extract(epoch from finished_at)::float8 * 1000 as ms from sluice.done',
  )
  const endedMs = Math.ceil(row?.ms ?? 0)
  const clock = await ownClock(db, endedMs + 99)
  reporter.start()
  await until(() => statements.filter((name) => name === 'absorb/find_changed_calls').length > 2, 'it has looked')
  expect(sent).toEqual([])
  await clock.set(endedMs + thenMs)
  await until(() => sent.length === 1, 'it is sent')
})

it('a reporter goes on with other calls while another client has locked the job of a revoked one', async () => {
  const sent: string[] = []
  const note = task('note', { run: () => 'noted' })
  const { url, sluice, db, reporter, record, called } = await reporting([note], ({ id, state }) =>
    sent.push(`${id} ${state}`),
  )
  const job = newId()
  await sluice.send(note, null, { id: job, delay: '1h' })
  await record('revoked', job)
  const other = await Sluice.open({ store: url })
  onTestFinished(() => other.close())
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  let isLocked = false
  const locking = other.transaction(async (tx) => {
    await tx.query('select 1 from sluice.job where id = $1 for update', [job])
    isLocked = true
    await released
  })
  onTestFinished(async () => (release(), await locking))
  await until(() => isLocked)
  await db.query(`update sluice.celery_call set revoked_at = sluice.now() where id = 'revoked'`)
  reporter.start()
  for (const id of ['first', 'second']) {
    const ended = newId()
    await sluice.send(note, null, { id: ended })
    await sluice.waitFor(ended)
    await record(id, ended)
    await until(() => sent.includes(`${id} SUCCESS`), `the result of the ${id} one is sent`)
  }
  expect(sent).toEqual(['first SUCCESS', 'second SUCCESS'])
  // Each wait for the lock would delay all results.
  expect(called).toEqual([])
  release()
  await until(() => sent.includes('revoked REVOKED'), 'it is revoked')
})

/** Waits until 1,001 jobs have ended long enough ago that a look at all calls finds them. */
async function allEnded(db: Queryable): Promise<void> {
  const sql = `select count(*)::int as n from sluice.done where finished_at < sluice.now() - interval '100 ms'`
  await until(async () => (await db.query<{ n: number }>(sql))[0]?.n === 1_001, 'all have ended')
}

it('a reporter sends the results of calls behind a thousand that cannot be sent', async () => {
  const note = task('note', { run: () => 'noted' })
  const sent: string[] = []
  const { sluice, db, reporter } = await reporting([note], ({ id }) => {
    if (id !== 'last') throw new StoreError('SLUICE_BROKER_NACK', 'its queue is full')
    sent.push(id)
  })
  await sluice.sendMany(note, copies(1_001, null))
  await allEnded(db)
  await db.query(
    `insert into sluice.celery_call (id, job, call, created_at)
      select case row_number() over () when 1001 then 'last' else id::text end, id, '{}', sluice.now() from sluice.done`,
  )
  reporter.start()
  await until(() => sent.includes('last'), 'the last one is sent')
})

it('a reporter sends no more in a look for which the broker is away', async () => {
  const note = task('note', { run: () => 'noted' })
  const tried: string[] = []
  const { sluice, db, reporter } = await reporting([note], ({ id }) => {
    tried.push(id)
    throw new StoreError('SLUICE_BROKER_UNREACHABLE', 'it is away')
  })
  await sluice.sendMany(note, copies(1_001, null))
  await allEnded(db)
  await db.query(
    `insert into sluice.celery_call (id, job, call, created_at) select id, id, '{}', sluice.now() from sluice.done`,
  )
  reporter.start()
  await until(() => tried.length > 1_000, 'there is another look')
  expect(new Set(tried.slice(0, 1_001)).size).toBe(1_000)
})

it('a reporter reads a few megabytes of results at a time, however many have ended', async () => {
  const [size, all] = [100_000, 100]
  const large = task('large', { run: () => randomBytes(size).toString('base64') })
  const sent = new Set<string>()
  const { sluice, db, reporter, reads } = await reporting([large], ({ id }) => void sent.add(id))
  await sluice.sendMany(large, copies(all, null))
  await until(async () => (await sluice.jobs.status()).done === all, 'all have ended')
  await db.query(
    `insert into sluice.celery_call (id, job, call, created_at) select id, id, '{}', sluice.now() from sluice.done`,
  )
  reporter.start()
  await until(() => sent.size === all, 'all are sent')
  const bytes = reads.map((results) => results.join('').length)
  expect(Math.max(...bytes)).toBeGreaterThan(size)
  expect(Math.max(...bytes)).toBeLessThan(6 * 2 ** 20)
})

it('a reporter closes after the first portion of large results that cannot be sent', async () => {
  const note = task('note', { run: () => 'noted' })
  const tried: string[] = []
  const { sluice, db, reporter, record } = await reporting([note], ({ id }) => {
    tried.push(id)
    throw new StoreError('SLUICE_BROKER_NACK', 'its queue is full')
  })
  for (const id of ['a', 'b']) {
    const job = newId()
    await sluice.send(note, null, { id: job })
    await sluice.waitFor(job)
    await record(id, job)
  }
  await db.query(`update sluice.celery_call set call = jsonb_build_object('task', repeat('a', 2500000))`)
  await reporter.close()
  expect(tried).toHaveLength(1)
})

it('a reporter rests for seconds at most between looks that find nothing and take a second', async () => {
  let nowMs = 0
  const looks: number[] = []
  const run = async (name: string) => {
    if (name === 'absorb/find_changed_calls') {
      looks.push(nowMs)
      nowMs += 1_000
    }
    return []
  }
  const sleep = async (ms: number, signal?: AbortSignal) => {
    nowMs += ms
    await new Promise((resolve) => setImmediate(resolve))
    if (looks.length > 20 && signal?.aborted === false)
      await new Promise((resolve) => signal?.addEventListener('abort', resolve))
  }
  const clock = { monotonicMs: () => nowMs, sleep }
  const store = { clock, run, log: console, report: { on: () => () => {} } }
  const events = { isOn: false }
  const reporter = new Reporter({ store, results: {}, events, name: 'a', tracksStarted: false } as never)
  reporter.start()
  onTestFinished(() => reporter.close())
  await until(() => looks.length > 20, 'it has looked')
  const rests = looks.slice(1).map((ms, i) => ms - (looks[i] ?? 0) - 1_000)
  expect(Math.max(...rests)).toBe(9_000)
})

it('a reporter looks at other calls, though the results of jobs that end here cannot be sent', async () => {
  let [nowMs, looks] = [0, 0]
  let notice: (job: { job: string }) => void = () => {}
  const own = { state: 'done', reason: null, result: null, error: null, started_ms: null, ended_ms: null }
  const bad = { last: '1', id: 'bad', call: '{}', reported: 0, attempt: 1, ...own }
  const run = async (name: string, [, , jobs]: unknown[] = []) => {
    if (name !== 'absorb/find_changed_calls') return []
    if (jobs !== null) return [bad]
    looks++
    return []
  }
  const finish = async () => {
    notice({ job: 'another' })
    throw new StoreError('SLUICE_BROKER_NACK', 'its queue is full')
  }
  const sleep = async (ms: number) => {
    nowMs += ms
    await new Promise((resolve) => setImmediate(resolve))
  }
  const on = (name: string, listener: typeof notice) => {
    if (name === 'done') notice = listener
    return () => {}
  }
  const store = {
    clock: { monotonicMs: () => nowMs, sleep },
    run,
    on: () => ({ run: async (_: string, [ids]: [string[]]) => ids.map((id) => ({ id })) }),
    db: { transaction: (carry: (tx: object) => unknown) => carry({}) },
    log: silent,
    report: { on },
  }
  const events = { isOn: false, sendStarted() {}, sendEnd() {} }
  const reporter = new Reporter({ store, results: { finish }, events, name: 'a', tracksStarted: false } as never)
  reporter.start()
  onTestFinished(() => reporter.close())
  notice({ job: 'one' })
  await until(() => looks > 2, 'it looks again and again')
})

it('a reporter revokes a call that is being recorded in this moment', async () => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  onTestFinished(() => sluice.close())
  const { db } = sluice
  const store = storeOn(db)
  let revoked: Promise<unknown> | undefined
  await db.transaction(async (tx) => {
    await store.on(tx).run('absorb/record_calls', [['call'], [newId()], ['{}']])
    revoked = store.run('absorb/revoke_calls', [['call'], false])
    const waiting = `select 1 from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%celery_call%'`
    await until(async () => (await db.query(waiting)).length > 0, 'the revoke waits')
  })
  await revoked
  expect(
    await db.query('select job is null as unread, revoked_at is not null as revoked from sluice.celery_call'),
  ).toEqual([{ unread: false, revoked: true }])
})
