/** One order of locks: compares the locks that the SQL really takes with the table in docs/architecture.md. */
import { randomInt, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { hash64, newId } from '../../src/core/hash.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { schedule } from '../../src/schedule/schedule.ts'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { isLong } from '../long.ts'
import {
  acquire,
  acquireTogether,
  endTakes,
  expireHolders,
  further,
  renewHolder,
  renewTakers,
} from '../takes/engine.ts'
import { isSql, readAll } from '../repository.ts'
import { fn } from '../servers/fn.ts'
import { until } from '../until.ts'
import { forgetSteps, putRedisEpoch, sumUsage, undoClockStep, watchClock } from '../limits/engine.ts'
import { rescue, wakeForMissedWork, watchWorkers, workerRound } from '../fleet/engine.ts'
import {
  claim,
  claimAll,
  count,
  empty,
  endOverdue,
  enter,
  finish,
  ownClock,
  quietTask,
  sendClaimed,
  settle,
  tenantInput,
} from './engine.ts'
import { disorder, lockOrder, type Watched, watchedStore } from './locks.ts'
import { anySetting } from './setting.ts'
import { World } from './world.ts'
import { rebuildBucket, renewDefinitions } from './engine-parts.ts'

/** Repeats a run from the values that it has printed. */
const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const startMs = 1_800_000_000_000
const files = readAll()
const order = lockOrder(files.find(({ path }) => path === 'docs/architecture.md')?.text ?? '')
const by = ({ tenant = 'none' }: { tenant?: string | undefined }) => tenant
const kept = limit('locks.rate', { rate: '1000/s', burst: 1_000, by })
const seats = limit('locks.seats', { concurrency: 3 })
const pool = limit('locks.pool', { concurrency: 2, pool: ['a', 'b', 'c'] })
const rated = quietTask('locks.rated', [kept])
const seated = quietTask('locks.seated', [seats, kept])
const pooled = quietTask('locks.pooled', [pool, kept])
const daily = quietTask('locks.daily', [limit('locks.day', { quota: '10/day' })])
const doomed = task('locks.doomed', { input: tenantInput, onFailed: () => undefined, run: () => undefined })
const names = [rated, seated, pooled, doomed].map(({ name }) => name)
const rows = (n: number) => Array.from({ length: n }, (_, i) => ({ tenant: `t${i}` }))

it('the table of locks in the docs lists exactly the advisory locks of the SQL', () => {
  const numbers = files
    .filter(isSql)
    .flatMap(({ text }) => [...text.matchAll(/pg_(?:try_)?advisory\w*\((\d+), (-\d+)?/g)])
    .map(([, space, number]) => (number === undefined ? space : `${space} ${number}`))
  const inTable = [...order.waited.keys(), ...order.tried.keys()].filter((lock) => /^\d/.test(lock))
  expect(new Set(inTable.map((lock) => lock.replace(/ [a-z]+$/, '')))).toEqual(new Set([...numbers, '1397511524 -1']))
})

it('the SQL names each advisory lock as the table of locks does', () => {
  const spaces: Record<string, string> = { 1397511523: 'bucket', 1397511524: 'class', 1397511525: 'worker' }
  const nameOf = (space: string, n = spaces[space]) =>
    order.waited.get(`${space} ${n}`)?.name ?? order.tried.get(`${space} ${n}`)
  const wrong = files
    .filter(isSql)
    .flatMap(({ path, text }) => text.split('\n').map((line) => ({ path, line })))
    .filter(({ line }) => {
      const [, space = '', n] = /advisory_xact_lock\w*\((\d+), ?(-\d+)?/.exec(line) ?? []
      return space !== '' && /-- lock: ([\w ]+)/.exec(line)?.[1] !== nameOf(space, n)
    })
  expect(wrong).toEqual([])
})

describe('locks', () => {
  const seen = new Set<string>()
  let store: Watched
  beforeAll(async () => void (store = await watchedStore()))
  afterAll(() => store.sluice.close())
  const run = (name: string, ...args: unknown[]) =>
    store.sluice.db.query(`select * from ${fn}.${name}(${args.map((_, i) => `$${i + 1}`).join(',')})`, args)
  /** A lock that no operation takes. */
  const set = async (text: string) => {
    expect(await wrong()).toEqual([])
    await store.sluice.db.query(text)
    await store.taken()
  }
  const wrong = async () => disorder(await store.taken(), order, seen)

  it('are taken in one order by each operation', async () => {
    const { sluice } = store
    const { db } = sluice
    const worker = await enter(db)
    // Senders.
    await sluice.sendMany(rated, rows(9))
    await sluice.sendMany(seated, rows(9))
    await sluice.sendMany(pooled, rows(9))
    await sluice.send(doomed, {}, { maxWait: '1ms' })
    const id = newId()
    for (let i = 0; i < 2; i++) await sluice.send(rated, {}, { id })
    for (const replace of [false, false, true, true])
      await sluice.send(rated, {}, { idempotencyKey: 'k', replace, delay: '1h' })
    await db.query(`select sluice.send('locks.rated', '{}', '{"idempotency_key": "sql"}')`)
    await sluice.send(rated, {}, { delay: '1ms' })
    // Events, and what handlers have missed.
    const event = {
      handler: 'h',
      formerly: ['g'],
      pattern: 'locks.e',
      type: 'locks.e',
      task: 't',
      queue: 'q',
      bucket_text: '',
    }
    for (const handler of ['g', 'h', 'h']) {
      await run('subscribe_handlers', 'locks', JSON.stringify([{ ...event, handler, since_ms: 60_000 }]))
      await db.query(`select sluice.emit('locks.e', '1')`)
    }
    for (let i = 0; i < 8; i++) await run('catch_up_service', 'locks')
    await db.query(`update sluice.emitted set aged = true`)
    await run('catch_up_service', 'locks')
    await run('delete_old_events', 0, null)
    // The calendar of a quota that claims use.
    await sluice.send(daily, {})
    await set(`update sluice.limit_def set periods = null where name = 'locks.day'`)
    await claimAll(db, worker, [daily.name], 1)
    // Claims, ends, and further grants of attempts.
    const jobs = await claimAll(db, worker, names, 20)
    const [first] = jobs
    await claim(db, worker, names, 20, first?.claim, { idle: true })
    const takes = ['locks.pool:a', 'locks.rate:t0']
    await further(db, first, takes, { back: first?.claim })
    for (const job of jobs.slice(0, 6)) for (const units of [0, 3]) await settle(db, job, 'locks.rate', units)
    await run('hold_buckets', [1, 2], 1_000, null)
    for (const age of [0, 1_000]) await run('refuse_buckets', [2, 1], [3], null, age, null, '429')
    await run('accept_buckets', [2, 1], 0, null)
    await run(
      'adapt_limit',
      'locks.found',
      null,
      'found',
      null,
      null,
      '{"rules": [], "numbers": {}}',
      '{}',
      'test',
      null,
    )
    const seen = { name: kept.name, ages: 0, age: 0, late: 0, answers: 0, least: 0, most: 0, sound: true }
    for (const name of [kept.name, seats.name, kept.name])
      await run('record_measurements', newId(), 'host', JSON.stringify([{ ...seen, name }]))
    const used = ['locks.rate:t1', 'locks.rate:t0'].map(hash64)
    await run('charge_others', used, [900, 900], [0, 0], [0, 0], [60_000_000, null], null)
    await run('charge_again', used, [1, 2], null)
    await run('count_failures', [2, 1], [5, 6], [null, 7], 1_000, null)
    await run('count_failures', [1, 2], [5, 6], [null, 7], 1_000, null)
    await sqlOn(db).run('limits/ledger/forget_failures', [[2, 1]])
    const outcomes = ['done', 'failed', 'retry', 'throttled', 'return', 'unused', 'discard', 'interrupt']
    await finish(
      db,
      jobs.slice(0, 14).map((job, i) => ({ job, outcome: outcomes[i % outcomes.length] ?? '' })),
      [],
    )
    for (const { id: running } of jobs.slice(14, 16)) await sluice.jobs.cancel(running)
    await claim(db, worker, names, 50)
    await endOverdue(db)
    // A job that is claimed by its send.
    const alone = quietTask('locks.alone', [limit('locks.alone', { rate: '1000/s' })])
    await sluice.send(alone, {})
    await claim(db, worker, [alone.name], 1)
    expect(await sendClaimed(db, newId(), worker, alone, {})).toHaveLength(1)
    expect(await wrong()).toEqual([])
    // Operators.
    for (const name of names) await sluice.jobs.retryMany({ task: name })
    await sluice.jobs.reprioritise({ task: rated.name }, 3)
    await sluice.limits.rekey(kept.name, { from: 't1', to: 't2' })
    await sluice.jobs.cancelMany({ task: pooled.name })
    for (const what of [{ limit: seats.name }, { limit: pool.name, key: 'a' }]) {
      await sluice.pause(what, { reason: 'test' })
      await sluice.resume(what)
    }
    await sluice.pause({ queue: 'none*' }, { reason: 'test' })
    await sluice.limits.set(seats.name, { concurrency: 2 }, { reason: 'test' })
    await sluice.limits.set(kept.name, { rate: '9/s' }, { reason: 'test', key: 'new' })
    await sluice.limits.set(kept.name, { rate: '2000/s' }, { reason: 'test' })
    // Two versions of code, one of which is gone.
    await defineLimit(sqlOn(db), limit('locks.two', { rate: '1/s' }))
    const newer = await defineLimit(sqlOn(db), limit('locks.two', { rate: '2/s' }))
    await set(`update sluice.limit_source set seen_at = seen_at - interval '1 minute' where name = 'locks.two'`)
    await renewDefinitions(db, { 'locks.two': newer })
    await set(`insert into sluice.parked (kind, name, error, at) values ('bucket', 'x', '', sluice.now())`)
    await run('release_parked', 'bucket', 'x')
    // Takes outside of jobs, also of members of a pool, in both directions.
    const grants = [randomUUID(), randomUUID(), randomUUID()]
    const members = ['locks.pool:b', 'locks.pool:a', 'locks.seats']
    for (const [i, take] of members.entries()) await acquire(db, take, { grant: grants[i] ?? '', lifeMs: 15_000 })
    const lines = [0, 1, 2, 3].map(() => newId())
    for (const line of lines) await acquire(db, 'locks.seats', { line, waitUs: 9_000_000 })
    await set('update sluice.taker set alive_until = 0')
    await renewTakers(db, lines)
    await renewHolder(db, newId())
    await endTakes(db, grants.slice(0, 2), members.slice(0, 2), [1, 1])
    await endTakes(db, grants, [null, null, null], [0, 0, 0])
    await set('delete from sluice.taker')
    await acquire(db, 'locks.seats', { holder: newId(), lifeMs: 0.001 })
    // Several in one statement: some get places that a silent process had, others wait, with and without a line.
    const several = [0, 1, 2, 3].flatMap(() => [{}, { line: newId(), waitUs: 9_000_000 }])
    const answers = await acquireTogether(db, ['locks.seats', 'locks.rate:x'], 1, several)
    expect(new Set(answers.map(({ granted }) => granted))).toEqual(new Set([true, false]))
    await acquire(db, 'locks.pool:c', { holder: newId(), lifeMs: 0.001 })
    await expireHolders(db)
    await expireHolders(db, Number.MAX_SAFE_INTEGER)
    expect(await wrong()).toEqual([])
  })

  it('are taken in one order while something is parked and released', async () => {
    const { sluice } = store
    const { db } = sluice
    await empty(db)
    await store.taken()
    const worker = await enter(db)
    const tasks = ['rated', 'rated.b', 'rated.c', 'rated.d'].map((name) => quietTask(`locks.${name}`, [kept]))
    const of = tasks.map(({ name }) => name)
    const park = () => db.query(`select ${fn}.park_culprits($1, $2, 50, null) as names`, [worker, of])
    for (const one of tasks) await sluice.sendMany(one, rows(9))
    await finish(
      db,
      (await claimAll(db, worker, of, 50)).map((job) => ({ job, outcome: 'done' })),
    )
    for (const one of tasks) await sluice.sendMany(one, rows(9))
    // Classes in which claims find nothing, one after the other; then many buckets at once.
    await set('update sluice.list set floor = 9223372036854775807')
    expect(await park()).toEqual([{ names: [] }])
    await set('update sluice.list set floor = 0')
    await set('update sluice.ledger set n = 9223372036854775807')
    expect(await park()).toEqual([{ names: expect.objectContaining({ length: 9 }) }])
    // The member of a pool for which jobs wait.
    for (let i = 0; i < 9; i++) await sluice.send(pooled, {})
    await claimAll(db, worker, [pooled.name], 9)
    await set(`update sluice.bucket set parked = true where name = 'locks.pool' and key = 'a'`)
    await set(`insert into sluice.parked (kind, id, name, error, at)
               select 'bucket', id, 'locks.pool:a', '', sluice.now() from sluice.bucket where name = 'locks.pool' and key = 'a'`)
    expect(await sluice.release('locks.pool:a')).toBe(true)
    expect(await wrong()).toEqual([])
    await empty(db)
    await store.taken()
  })

  it('are taken in one order by maintenance', async () => {
    const { sluice } = store
    const { db } = sluice
    const worker = await enter(db)
    // Classes: many, retired, dropped, announced again; and data that come from another server.
    for (let i = 0; i < 140; i++) await sluice.send(rated, {}, { queue: `q${i}` })
    await finish(
      db,
      (await claimAll(db, worker, names, 140)).map((job) => ({ job, outcome: 'done' })),
    )
    for (let i = 0; i < 3; i++) await claim(db, worker, names, 1)
    await wakeForMissedWork(db)
    for (let i = 0; i < 9; i++) await sluice.send(rated, {}, { queue: `q${i}` })
    await claim(db, worker, names, 5)
    await sluice.send(pooled, { tenant: 'new' })
    await set(`update sluice.class_state set snap = '9000000000:9000000000:'`)
    await claimAll(db, worker, names, 5)
    // Housekeeping of the fleet.
    await watchWorkers(db)
    await set('update sluice.doubt set unchanged_us = 20000000')
    await watchWorkers(db)
    await rescue(db, await enter(db), 'shutdown')
    await workerRound(db, await enter(db))
    await set('update sluice.epoch set server_at = null')
    await undoClockStep(db, 0)
    await run('check_epoch', null, 9, null)
    for (const epoch of [undefined, 'one']) await putRedisEpoch(db, epoch, `${epoch ?? ''}one`)
    await claim(db, await enter(db), names, 1)
    for (let i = 0; i < 2; i++) await run('learn_costs', '[{"task": "a", "lim": "b", "value": "c", "ratios": [1]}]')
    await sqlOn(db).run('fleet/store_settings', [['a'], ['1']])
    await set(`insert into sluice.renewal select id from sluice.bucket where name = 'locks.rate' limit 1`)
    await rebuildBucket(db)
    expect(await wrong()).toEqual([])
    // A worker with all of its rounds, schedules and settings; then everything that is deleted.
    const note = schedule('locks.note', { task: rated, every: '1s', input: {} })
    const process = await sluice.work([rated], { schedules: [note] })
    await until(async () => (await count(db, 'sluice.firing')) > 0, 'it fires')
    await process.stop()
    await set(`update sluice.idempotency set expires_at = '-infinity'`)
    await sumUsage(db)
    await set('update sluice.ledger set at = 1')
    await sluice.prune({ keepDone: 0, keepFailed: 0 })
    await run('delete_learned_costs')
    expect(await wrong()).toEqual([])
  })

  it.each([
    [
      'a claim',
      'decide_claim',
      /(perform \S+\.)lock_buckets\(.*?\);/,
      "$& $1lock_classes('{5}');",
      /^class \(lock_classes .*\) after bucket /m,
    ],
    [
      'the locking of buckets',
      'lock_buckets',
      / order by 1\b/,
      ' order by 1 desc',
      /^bucket \(lock_buckets .*\) after bucket /m,
    ],
  ] as const)('that are reversed in %s are found by this suite', async (_, name, from, to, sentence) => {
    const { db } = store.sluice
    const [row] = await db.query<{ text: string }>(`select pg_get_functiondef('${fn}.${name}'::regproc) as text`)
    const text = row?.text ?? ''
    expect(text).toMatch(from)
    await db.query(text.replace(from, to))
    try {
      await store.sluice.sendMany(rated, rows(9))
      await claim(db, await enter(db), [rated.name], 3)
      expect((await wrong()).join('\n')).toMatch(sentence)
    } finally {
      await db.query(text)
    }
  })

  it('are taken in one order in random histories', async () => {
    await ownClock(store.sluice.db, startMs)
    await watchClock(store.sluice.db)
    const all = new Set<string>()
    for (const setting of fc.sample(anySetting(70), { seed, numRuns: isLong ? 50 : 3 })) {
      await empty(store.sluice.db)
      await forgetSteps(store.sluice.db)
      await store.taken()
      const world = new World(store.sluice, setting, startMs * 1_000)
      await world.begin()
      for (const act of setting.acts) await world.act(act)
      await world.drain()
      for (const sentence of await wrong()) all.add(sentence)
    }
    expect([...all], `SLUICE_TEST_SEED=${seed}`).toEqual([])
  })

  it('of the table have all been taken by this suite', () => {
    const nameOf = (lock: string) => order.waited.get(lock)?.name ?? lock
    const met = new Set([...seen].map(nameOf))
    expect([...order.waited.keys(), ...order.tried.keys()].map(nameOf).filter((name) => !met.has(name))).toEqual([])
  })
})
