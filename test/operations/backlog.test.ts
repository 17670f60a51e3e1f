/** What waits and what stops it, as `status` and `doctor` read it. */
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { sqlOn } from '../../src/db/store.ts'
import { abandoned, emptyText, unattended } from '../../src/cli/backlog.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { task } from '../../src/tasks/task.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { changeWorkers, claimAll, done, engines, enter } from '../claim/engine.ts'
import { addBucket, chargeOthers, refuse } from '../limits/engine.ts'
import { leastIdAt } from '../store/engine.ts'
import { copies } from '../rows.ts'

const input = z.object({ account: z.string() })
const crm = limit('crm', { window: '2/min', by: 'account' })
const seats = limit('seats', { concurrency: 1 })
const call = task('call', { input, limits: [crm, seats], run: () => {} })
const free = task('free', { input, run: () => {} })
const [onServer] = engines

it('`status` names no time at which jobs are done while something stops all of them', () => {
  const line = {
    task: 'call',
    queue: 'default',
    waiting: 10,
    oldestAt: undefined,
    perMinute: 60,
    sentPerMinute: 0,
    growthPerMinute: -60,
    currently: undefined,
    isAbandoned: false,
  }
  const held = (jobs: number) => ({ kind: 'held', text: 'crm held: the vendor rejects the credential', jobs }) as const
  expect(emptyText({ ...line, stops: [] })).toBe('in about 10 s')
  expect(emptyText({ ...line, stops: [{ ...held(10), kind: 'used-up' }] })).toBe('in about 10 s')
  expect(emptyText({ ...line, stops: [held(9)] })).toBe('in about 10 s')
  expect(emptyText({ ...line, stops: [held(10)] })).toBe('stopped')
  expect(emptyText({ ...line, growthPerMinute: 0, stops: [held(10)] })).toBe('stopped')
})

it('`status` takes a burst for no growth: the rate of the limit shows when its jobs are gone', () => {
  const line = {
    task: 'call',
    queue: 'default',
    waiting: 137,
    oldestAt: new Date(0),
    perMinute: 13,
    sentPerMinute: 150,
    growthPerMinute: 137,
    currently: undefined,
    isAbandoned: false,
  }
  const used = { kind: 'used-up', text: 'crm used up for a1', jobs: 137, emptyMs: 82_200 } as const
  expect(emptyText({ ...line, stops: [used] }, 2_000)).toBe('in about 82.2 s')
  expect(emptyText({ ...line, stops: [{ ...used, jobs: 100 }] }, 2_000)).toBe('-')
  expect(emptyText({ ...line, stops: [] }, 2_000)).toBe('-')
  expect(emptyText({ ...line, stops: [used] }, 120_000)).toBe('grows by 137/min')
  const paused = { kind: 'paused', text: 'crm paused', jobs: 137 } as const
  expect(emptyText({ ...line, stops: [used, paused] }, 2_000)).toBe('stopped')
})

describe('the backlog', () => {
  let t: TestSluice
  let at: { sql: ReturnType<typeof sqlOn>; schema: string; isEmbedded: boolean }
  beforeAll(async () => {
    t = await testSluice({
      tasks: [call, free],
      store: await onServer.store(),
      start: new Date('2026-05-04T10:00:00Z'),
    })
    at = { sql: sqlOn(t.sluice.db), schema: 'sluice', isEmbedded: false }
  })
  afterAll(() => t.close())
  const read = () => t.sluice.jobs.backlog()
  const of = async (name: string) => (await read()).jobs.find((one) => one.task === name)

  it('counts by task and queue and by limit, with the oldest wait and the rate', async () => {
    for (const account of ['a', 'a', 'a', 'b']) await call.send({ account })
    await free.send({ account: 'x' }, { queue: 'bulk' })
    const { jobs, limits, isExact } = await read()
    expect(isExact).toBe(true)
    expect(jobs).toMatchObject([
      {
        task: 'call',
        queue: 'default',
        waiting: 4,
        oldestAt: new Date('2026-05-04T10:00:00Z'),
        perMinute: 0,
        sentPerMinute: 4,
      },
      { task: 'free', queue: 'bulk', waiting: 1 },
    ])
    expect(new Map(limits.map(({ limit: name, waiting, keys }) => [name, [waiting, keys]]))).toEqual(
      new Map([
        ['crm', [4, 2]],
        ['seats', [4, 1]],
      ]),
    )
    expect(new Map(limits.map(({ limit: name, busiestKeys }) => [name, busiestKeys]))).toMatchObject(
      new Map([
        [
          'crm',
          [
            { key: 'a', waiting: 3, oldestAt: new Date('2026-05-04T10:00:00Z'), stop: undefined },
            { key: 'b', waiting: 1 },
          ],
        ],
        ['seats', []],
      ]),
    )
    expect(await t.drain()).toBe(4)
    await enter(t.sluice.db, ['call', 'free'])
    const after = await read()
    expect(after.jobs).toMatchObject([
      {
        task: 'call',
        waiting: 1,
        perMinute: 3,
        sentPerMinute: 4,
        stops: [{ kind: 'used-up', text: 'crm used up for a', jobs: 1 }],
      },
    ])
    const load = after.limits.find(({ limit: name }) => name === 'crm')
    expect(load?.waiting).toBe(1)
    expect(load?.perMinute).toBe(3)
  })

  it('computes by the rate of a limit when its jobs have started, for jobs without costs', async () => {
    const steady = limit('steady', { rate: '60/min', by: 'account' })
    const calls = task('calls', { input, limits: [steady], run: () => {} })
    const costly = task('costly', { input, limits: [{ limit: steady, cost: 2 }], run: () => {} })
    const kit = await testSluice({ tasks: [calls, costly], store: await onServer.store() })
    onTestFinished(() => kit.close())
    const emptyMs = async () => (await kit.sluice.jobs.backlog()).jobs.map(({ stops }) => stops.find(isUsedUp)?.emptyMs)
    const isUsedUp = ({ kind }: { kind: string }) => kind === 'used-up'
    await calls.sendMany([...copies(30, { account: 'a' }), ...copies(20, { account: 'b' })])
    const started = await kit.drain()
    // A tenth of the number starts at once, of each key; the keys empty side by side.
    expect(started).toBe(12)
    const [firstMs = 0] = await emptyMs()
    expect(firstMs).toBeGreaterThan(23_000)
    expect(firstMs).toBeLessThan(25_000)
    // The smaller limit has granted what it has for minutes, and grants nothing until then.
    await kit.sluice.limits.set('steady', { rate: '6/min' }, { reason: 'slower' })
    const [laterMs = 0] = await emptyMs()
    expect(laterMs).toBeGreaterThan(24 * 10_000)
    await costly.send({ account: 'a' })
    expect(await emptyMs()).toEqual([undefined, undefined])
  })

  it('counts units as used: less what attempts gave back', async () => {
    const tokens = limit('tokens', { window: '100/min', cost: 60 })
    const ask = task('ask', { input, limits: [tokens], run: (_, { settle }) => settle({ tokens: 50 }) })
    const kit = await testSluice({ tasks: [ask], store: await onServer.store() })
    onTestFinished(() => kit.close())
    for (const account of ['a', 'b']) await ask.send({ account })
    expect(await kit.drain()).toBe(1)
    const { limits } = await kit.sluice.jobs.backlog()
    expect(limits).toMatchObject([{ limit: 'tokens', waiting: 1, perMinute: 50 }])
  })

  it('counts units of a limit with a share once, and none that somebody else has used of the account', async () => {
    const shared = limit('parts', { window: '100/min', shares: { urgent: 0.5 } })
    const ask = task('ask', { input, limits: [shared], run: () => {} })
    const kit = await testSluice({ tasks: [ask], store: await onServer.store() })
    onTestFinished(() => kit.close())
    for (const share of ['urgent', 'urgent', undefined]) await ask.send({ account: 'a' }, { share })
    expect(await kit.drain()).toBe(3)
    const seen = { most: 100, left: 50, sinceUs: 60_000_000, resetUs: null }
    expect(await chargeOthers(kit.sluice.db, 'parts', seen)).toMatchObject({ units: 47 })
    await ask.send({ account: 'a' })
    expect((await kit.sluice.jobs.backlog()).limits).toMatchObject([{ limit: 'parts', waiting: 1, perMinute: 3 }])
  })

  it('counts a job of a limit with a share once, whichever part stops it', async () => {
    const shared = limit('parts', { window: '4/min', shares: { urgent: 0.5 } })
    const ask = task('ask', { input, limits: [shared], run: () => {} })
    const kit = await testSluice({ tasks: [ask], store: await onServer.store() })
    onTestFinished(() => kit.close())
    const send = async (n: number, share?: string) => {
      for (let i = 0; i < n; i++) await ask.send({ account: 'a' }, { share })
      await kit.drain()
      const { jobs, limits } = await kit.sluice.jobs.backlog()
      return [...jobs, ...limits].map(({ waiting, stops }) => ({
        waiting,
        stops: stops.flatMap(({ kind, text, jobs: of }) => (kind === 'used-up' ? [[text, of]] : [])),
      }))
    }
    // The first keeps the part of the share from being lent.
    expect(await send(1, 'urgent')).toEqual([])
    for (const [share, waiting] of [
      [undefined, 1],
      ['urgent', 3],
    ] as const) {
      const found = await send(3, share)
      expect(found).toEqual([
        { waiting, stops: [['parts used up', waiting]] },
        { waiting, stops: [['used up', waiting]] },
      ])
    }
  })

  it('counts nothing that is given back of units from before the minute', async () => {
    const tokens = limit('tokens', { quota: '100000/day', zone: 'UTC', cost: ({ cost }: { cost: number }) => cost })
    const costing = z.object({ cost: z.number() })
    const advance = () => kit.clock.advance('2m')
    const ask = task('ask', {
      input: costing,
      limits: [tokens],
      timeout: '1h',
      run: async (_, { settle }) => {
        await advance()
        await tokens.take({ cost: 10 })
        await settle({ tokens: 50 })
      },
    })
    const kit = await testSluice({ tasks: [ask], store: await onServer.store() })
    onTestFinished(() => kit.close())
    await ask.send({ cost: 1_000 })
    expect(await kit.drain()).toBe(1)
    await ask.send({ cost: 10 })
    const { limits } = await kit.sluice.jobs.backlog()
    expect(limits).toMatchObject([{ limit: 'tokens', perMinute: 10 }])
  })

  it('names a pause of a limit, a task and a queue, and whoever made it', async () => {
    await t.sluice.pause({ limit: 'crm', key: 'a' }, { reason: 'audit' })
    await t.sluice.pause({ task: 'call' }, { reason: 'deploy' })
    await t.sluice.pause({ queue: 'default' }, { reason: 'moving' })
    const found = await of('call')
    expect(found?.stops.map(({ kind }) => kind)).toEqual(['paused', 'paused', 'paused'])
    expect(found?.stops.map(({ text }) => text).join()).toMatch(
      /(task|queue) paused by .*: (deploy|moving),(task|queue) paused by .*,crm paused for a by .*: audit/,
    )
    await t.sluice.resume({ limit: 'crm', key: 'a' })
    await t.sluice.resume({ task: 'call' })
    await t.sluice.resume({ queue: 'default' })
    expect((await of('call'))?.stops).toMatchObject([{ kind: 'used-up' }])
  })

  it('names each reason for which a vendor’s answers hold keys, with those keys only', async () => {
    for (const account of ['b', 'c']) await call.send({ account })
    const causes = { a: 'credential', b: 'down', c: 'down' }
    for (const [key, cause] of Object.entries(causes)) {
      await addBucket(t.sluice.db, 'crm', key)
      await refuse(t.sluice.db, [`crm:${key}`], { waitUs: 60_000_000, cause })
    }
    const held = (await of('call'))?.stops.filter(({ kind }) => kind === 'held').map(({ text }) => text)
    expect(held?.toSorted()).toEqual([
      'crm held: the vendor is down for 2 keys',
      'crm held: the vendor rejects the credential for a',
    ])
  })

  it('says of jobs of a parked bucket that they are stopped, and not when they have started', async () => {
    const steady = limit('steady', { rate: '60/min', by: 'account' })
    const calls = task('calls', { input, limits: [steady], run: () => {} })
    const kit = await testSluice({ tasks: [calls], store: await onServer.store() })
    onTestFinished(() => kit.close())
    for (let i = 0; i < 20; i++) await calls.send({ account: 'a' })
    await kit.drain()
    await kit.sluice.db.query(`update sluice.bucket set parked = true where name = 'steady' and key = 'a'`)
    const [line] = (await kit.sluice.jobs.backlog()).jobs
    const text = 'steady parked for a'
    expect(line?.stops.filter(({ kind }) => kind !== 'no-worker')).toEqual([
      { kind: 'held', text, jobs: line?.waiting },
    ])
    expect(line && emptyText(line)).toBe('stopped')
  })

  it('says of jobs of a limit without a definition that it has none, once for all keys', async () => {
    const steady = limit('steady', { rate: '60/min', by: 'account' })
    const calls = task('calls', { input, limits: [steady], run: () => {} })
    const kit = await testSluice({ tasks: [calls], store: await onServer.store() })
    onTestFinished(() => kit.close())
    for (const account of ['a', 'b']) await calls.send({ account })
    await kit.sluice.db.query(`update sluice.job set buckets = array[replace(buckets[1], 'steady', 'gone')]`)
    const look = async () => {
      const { jobs, limits } = await kit.sluice.jobs.backlog()
      const [line] = jobs
      expect(line && emptyText(line)).toBe('stopped')
      return [...(line?.stops ?? []), ...(limits[0]?.stops ?? [])].filter(({ kind }) => kind !== 'no-worker')
    }
    const stop = { kind: 'undefined-limit', text: 'not defined in the database', jobs: 2 }
    const stops = [{ ...stop, text: `gone ${stop.text}` }, stop]
    expect(await look()).toEqual(stops)
    expect(await kit.drain()).toBe(0)
    expect(await look()).toEqual(stops)
  })

  it('names jobs that nobody will run: no worker knows the task, serves the queue, or has the label', async () => {
    expect(await abandoned(at)).toMatchObject({ status: 'ok' })
    const lost = task('lost', { input, run: () => {} })
    const labelled = task('labelled', {
      input,
      limits: [limit('ip', { rate: '5/s', by: label('egress') })],
      run: () => {},
    })
    await t.sluice.send(lost, { account: 'a' })
    await t.sluice.send(labelled, { account: 'a' })
    await t.sluice.send(free, { account: 'a' }, { queue: 'unserved' })
    await enter(t.sluice.db, ['labelled'])
    await changeWorkers(t.sluice.db, { queues: ['default'] })
    expect((await of('lost'))?.stops).toMatchObject([{ kind: 'no-task', jobs: 1 }])
    expect((await of('free'))?.stops).toMatchObject([{ kind: 'no-queue', text: 'no worker serves queue unserved' }])
    expect((await of('labelled'))?.stops).toMatchObject([{ kind: 'no-label', text: 'no worker has the label egress' }])
    const found = await abandoned(at)
    expect(found?.status).toBe('fail')
    for (const name of ['lost', 'labelled', 'free']) expect(found?.text).toContain(`task ${name}`)
    await changeWorkers(t.sluice.db, { tasks: ['lost'], slots: 0 })
    expect(await of('lost')).toMatchObject({
      isAbandoned: false,
      stops: [{ kind: 'no-worker', text: 'its workers have no slots now' }],
    })
    await t.sluice.db.query('delete from sluice.worker')
    expect((await of('lost'))?.stops).toMatchObject([{ kind: 'no-worker', text: 'no worker is running' }])
    // A fleet that is down is no mistake of the jobs'.
    expect(await abandoned(at)).toMatchObject({ status: 'ok' })
    expect((await unattended(at)).text).toMatch(
      /no worker is registered; waiting: \d+ jobs, the oldest for .*sluice work/,
    )
  })

  it('says that a queue empties when a burst is over, and not because of a job or two', async () => {
    const { db } = t.sluice
    const burst = task('burst', { input, run: () => {} })
    const worker = await enter(db, ['burst'])
    const sent = copies(100, { account: 'x' })
    await t.sluice.sendMany(burst, sent)
    await db.query(`update sluice.job set id = overlay(id::text placing
      left(${leastIdAt('sluice.now_us() / 1000 - 30000')}::text, 13) from 1 for 13)::uuid where task = 'burst'`)
    await done(db, await claimAll(db, worker, ['burst'], 2))
    expect(await of('burst')).toMatchObject({ waiting: 98, sentPerMinute: 100, perMinute: 2, growthPerMinute: 98 })
    await done(db, await claimAll(db, worker, ['burst'], 18))
    expect(await of('burst')).toMatchObject({ waiting: 80, perMinute: 20, growthPerMinute: -120 })
    await db.query(`delete from sluice.job where task = 'burst'`)
  })

  it('estimates where more jobs wait than it counts, from jobs of all times', async () => {
    await t.sluice.db.query(
      `insert into sluice.job (id, lane, priority, created_at, task, queue, buckets)
       select gen_random_uuid(), 1, 0, sluice.now(), 'many', 'default',
         array['crm:' || case when i > 10100 then 'late' else 'early' end] from generate_series(1, 12000) i`,
    )
    await t.sluice.db.query(`insert into sluice.class (id, queue, task) values (77, 'default', 'many');`)
    await t.sluice.db.query(
      `insert into sluice.class_state (class, n, snap, waiting)
       values (77, 1, pg_current_snapshot(), 12000)`,
    )
    const { jobs, limits, isExact } = await read()
    expect(isExact).toBe(false)
    expect(jobs[0]).toMatchObject({ task: 'many', waiting: 12_000 })
    const keys = limits.find(({ limit: name }) => name === 'crm')?.busiestKeys.map(({ key }) => key)
    expect(keys?.slice(0, 2)).toEqual(['early', 'late'])
  })

  it('counts jobs that no claim has seen yet, also of classes that do not exist', async () => {
    const kit = await testSluice({ tasks: [call, free], store: await onServer.store() })
    onTestFinished(() => kit.close())
    const rows = (n: number) => Array.from({ length: n }, (_, i) => ({ account: `${i % 2}` }))
    await call.sendMany(rows(12_000))
    await free.sendMany(rows(2_000), { queue: 'bulk' })
    const look = async () => {
      const { jobs, limits, isExact } = await kit.sluice.jobs.backlog()
      const [crmLoad] = limits.filter(({ limit: name }) => name === 'crm')
      const { waiting } = await kit.sluice.jobs.status()
      return { isExact, waiting, jobs: jobs.map(({ task: name, waiting: n }) => [name, n]), load: crmLoad }
    }
    const counted = {
      isExact: false,
      waiting: 14_000,
      jobs: [
        ['call', 12_000],
        ['free', 2_000],
      ],
    }
    const before = await look()
    expect(before).toMatchObject(counted)
    expect(before.load?.waiting).toBeGreaterThan(10_000)
    expect(before.load?.busiestKeys).toMatchObject([{ stop: undefined }, { stop: undefined }])
    // Both classes exist now.
    const worker = await enter(kit.sluice.db, ['call', 'free'])
    await claimAll(kit.sluice.db, worker, ['call'], 1)
    await free.sendMany(rows(3_000))
    const { waiting } = await kit.sluice.jobs.status()
    expect(waiting).toBe(16_999)
    // One place of `seats` is taken, and stops all jobs.
    const { limits } = await kit.sluice.jobs.backlog()
    const seatsLoad = limits.find(({ limit: name }) => name === 'seats')
    expect(seatsLoad?.stops).toMatchObject([{ kind: 'concurrency', jobs: seatsLoad?.waiting }])
  })
})
