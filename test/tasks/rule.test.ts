/** Routes and rules, at send and at dispatch, on both engines, with a store clock that the test controls. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type Context, limit, rule, type RuleJob, Sluice, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { mainEngines } from '../claim/engine.ts'
import { numbered } from '../rows.ts'

const ran: string[] = []
const input = z.object({ plan: z.string().optional(), account: z.string().optional(), n: z.number().optional() })
const note =
  (name: string) =>
  (_: unknown, { job }: { job: { queue: string } }) =>
    void ran.push(`${name}@${job.queue}`)
const crm = limit('crm', { rate: '1000/s', by: (job: { account?: string | undefined }) => job.account ?? 'none' })
const sync = task('sync.contact', { input, limits: [crm], run: note('sync') })
const mail = task('mail.welcome', { input, run: note('mail') })
const call = task('call', { input, queue: ({ plan }) => `calls-${plan ?? 'free'}`, run: note('call') })
const tasks = [sync, mail, call]
let banned = new Set<string>()
let gone = false
type Input = { plan?: string; account?: string; n?: number }
const rules = [
  rule<Input>('vip', {
    tasks: 'sync.*',
    when: ({ input: { plan } }) => plan === 'vip',
    do: { priority: 10, queue: 'fast', tags: ['vip'] },
  }),
  rule<Input>('shared', { queues: 'fast', do: ({ input: job }) => ({ keys: { crm: `pool-${job.account}` } }) }),
  rule<Input>('test-address', {
    tasks: ['mail.*'],
    when: ({ input: job }) => job.account === 'test',
    do: { discard: 'a test address' },
  }),
  rule('after-discard', { tasks: 'mail.*', do: { priority: 3 } }),
  rule('banned', {
    at: 'dispatch',
    when: async ({ keys }) => banned.has(keys['crm'] ?? ''),
    do: { queue: 'other-ip' },
  }),
  rule('hours', {
    at: 'dispatch',
    tasks: 'call',
    when: () => true,
    open: { from: '08:00', to: '18:00', days: 'mon-fri', zone: 'Europe/Berlin' },
  }),
  rule('gone', { at: 'dispatch', tasks: 'call', when: () => gone, do: { discard: 'the customer left' } }),
  rule<Input>('not-yet', {
    at: 'dispatch',
    when: ({ input: { n }, tags }) => n === 5 && !tags.includes('x'),
    do: { hold: '5min' },
  }),
] as const

describe.each(mainEngines)('$name', (engine) => {
  let t: TestSluice
  beforeAll(async () => {
    const routes = { 'mail.wel*': 'mail', '*': { priority: 2 } }
    // A Saturday.
    t = await testSluice({ tasks, rules, routes, start: new Date('2026-03-28T12:00:00Z'), store: await engine.store() })
  })
  afterAll(() => t.close())

  test('routes and functions choose the queue, and a sender may choose another', async () => {
    const ids = await Promise.all([
      mail.send({}),
      mail.send({}, { queue: () => 'own' }),
      sync.send({}),
      sync.send({ plan: 'a' }, { priority: 4 }),
    ])
    const jobs = await Promise.all(ids.map((id) => t.sluice.jobs.get(id)))
    expect(jobs.map((job) => [job?.queue, job?.priority])).toEqual([
      ['mail', 3],
      ['own', 3],
      ['default', 2],
      ['default', 4],
    ])
    expect(await t.sluice.jobs.get(await call.send({ plan: 'a', n: 1 }, { delay: '1h' }))).toMatchObject({
      queue: 'calls-a',
    })
    await t.drain()
  })

  test('rules at send change the options that they name, in order, and are recorded in the job', async () => {
    const id = await sync.send({ plan: 'vip', account: 'a' }, { tags: ['own'] })
    const expected = {
      queue: 'fast',
      priority: 10,
      tags: ['own', 'vip'],
      limits: ['crm:pool-a'],
      ruled: [
        { rule: 'vip', priority: 10, queue: 'fast', tags: ['vip'] },
        { rule: 'shared', keys: { crm: 'pool-a' } },
      ],
    }
    expect(await t.sluice.jobs.get(id)).toMatchObject(expected)
    await t.drain()
    // The key that a rule set is no change of the task's limits: the job ran as it was.
    expect(await t.waitFor(id)).toMatchObject({ ...expected, state: 'done', attempt: 1 })
  })

  test('a rule at send discards a job, which is recorded as cancelled, with the reason', async () => {
    const sent = { idempotencyKey: `k-${engine.name}` }
    const id = await mail.send({ account: 'test' }, sent)
    expect(await mail.send({ account: 'test' }, sent)).toBe(id)
    expect(await t.sluice.jobs.get(id)).toMatchObject({
      state: 'cancelled',
      reason: 'discarded by rule test-address: a test address',
      ruled: [{ rule: 'test-address' }],
    })
    expect(await t.drain()).toBe(0)
  })

  test('a rule at dispatch moves a job to another queue, uncalled, and refunds its grant', async () => {
    banned = new Set(['9'])
    ran.length = 0
    const id = await sync.send({ account: '9' })
    await t.drain()
    expect(ran).toEqual(['sync@other-ip'])
    expect(await t.waitFor(id)).toMatchObject({
      attempt: 1,
      queue: 'other-ip',
      ruled: [{ rule: 'banned', queue: 'other-ip' }],
    })
    const rows = await t.sluice.db.query<{ units: number }>(
      `select units::int as units from sluice.ledger where bucket = sluice.hash64('crm:9') order by at, n`,
    )
    // On a busy machine a grant may grow old, and be refunded, once more.
    expect(rows.reduce((sum, { units }) => sum + Number(units), 0)).toBe(1)
    expect(rows.length).toBeGreaterThanOrEqual(3)
  })

  test('a job with hours waits for the opening in its zone, also over a change of clocks, and why shows it', async () => {
    const id = await call.send({})
    await t.drain()
    const reason = (await t.sluice.why(id))?.reasons.find(({ kind }) => kind === 'rule')
    // Monday 08:00 in Berlin, when summer time has begun.
    expect(reason?.notBefore).toEqual(new Date('2026-03-30T06:00:00.000Z'))
    expect(reason?.text).toBe('held by rule hours')
    expect(await t.sluice.jobs.get(id)).toMatchObject({ attempt: 0, failed: 0, state: 'scheduled' })
    await t.clock.set(new Date('2026-03-30T05:59:58Z'))
    await t.drain()
    expect(await t.sluice.jobs.get(id)).toMatchObject({ state: 'scheduled' })
    await t.clock.set(new Date('2026-03-30T06:00:01Z'))
    expect(await t.drain()).toBeGreaterThan(0)
    expect(await t.waitFor(id)).toMatchObject({
      state: 'done',
      attempt: 1,
      ruled: [{ rule: 'hours', heldUntil: '2026-03-30T06:00:00.000Z' }],
    })
  })

  test('a rule at dispatch discards or holds a job', async () => {
    gone = true
    const left = await call.send({})
    const held = await mail.send({ n: 5 })
    await t.drain()
    gone = false
    expect(await t.waitFor(left)).toMatchObject({
      state: 'cancelled',
      attempt: 0,
      reason: 'discarded by rule gone: the customer left',
    })
    await t.clock.advance('5min')
    // The rule runs again, and holds the job again: the record names it once.
    await t.drain()
    expect(await t.sluice.jobs.get(held)).toMatchObject({
      state: 'scheduled',
      ruled: [{ rule: 'after-discard' }, { rule: 'not-yet', hold: '5min' }],
    })
    await t.sluice.jobs.cancel(held)
  })

  test('jobs that were sent by SQL, or by a process without rules, are checked and ruled before they run', async () => {
    const plain = await Sluice.open({ store: (t.sluice.url ?? '') || 'memory:' }).catch(() => undefined)
    const send = async (...args: unknown[]) =>
      (await t.sluice.db.query<{ id: string }>(`select sluice.send($1, $2, $3) as id`, args))[0]?.id as string
    const ids = [
      await send('sync.contact', '{"plan": "vip", "account": "s"}', '{"tags": ["sql"], "priority": 1}'),
      await send('sync.contact', '{"plan": 7}', '{}'),
      await send('mail.welcome', '{"account": "test"}', '{}'),
      await send('mail.welcome', '{}', '{"delay": "1 hour"}'),
      ...(engine.name === 'PGlite' || plain === undefined
        ? []
        : [await plain.send(sync, { plan: 'vip', account: 'p' })]),
    ]
    ran.length = 0
    expect((await t.sluice.why(ids[0] ?? ''))?.reasons.map(({ kind }) => kind)).toContain('unseen')
    await t.drain()
    const jobs = await Promise.all(ids.map((id) => t.sluice.jobs.get(id)))
    expect(jobs).toMatchObject([
      {
        state: 'done',
        queue: 'fast',
        priority: 10,
        tags: ['sql', 'vip'],
        limits: ['crm:pool-s'],
        attempt: 1,
        ruled: [{ rule: 'vip' }, { rule: 'shared' }],
      },
      { state: 'failed', reason: 'refused', error: { code: 'SLUICE_INVALID_INPUT' } },
      { state: 'cancelled', reason: 'discarded by rule test-address: a test address' },
      { state: 'scheduled' },
      ...(ids.length > 4
        ? [{ state: 'done', queue: 'fast', limits: ['crm:pool-p'], ruled: [{ rule: 'vip' }, { rule: 'shared' }] }]
        : []),
    ])
    await t.clock.advance('1h')
    await t.drain()
    expect(await t.waitFor(ids[3] ?? '')).toMatchObject({
      state: 'done',
      queue: 'mail',
      ruled: [{ rule: 'after-discard' }],
    })
    await plain?.close()
  })
})

test('a rule of hours alone closes its tasks in the store, for as long as a worker has it', async () => {
  const open = { from: '08:00', to: '18:00', zone: 'Europe/Berlin' }
  const store = (await freshDatabase()).url
  const night = [rule('office', { at: 'dispatch', tasks: 'mail.*', open })]
  const t = await testSluice({ tasks, rules: night, start: new Date('2026-01-10T20:00:00Z'), store })
  const id = await mail.send({})
  const free = await sync.send({})
  expect(await t.drain()).toBe(1)
  expect((await t.sluice.why(id))?.reasons).toContainEqual(
    expect.objectContaining({
      kind: 'closed',
      gate: expect.stringMatching(/^rule:office#/) as string,
      text: 'closed by rule office (08:00-18:00 Europe/Berlin)',
      notBefore: new Date('2026-01-11T07:00:00Z'),
    }),
  )
  expect(await t.sluice.jobs.get(id)).toMatchObject({ state: 'waiting', attempt: 0 })
  expect(await t.waitFor(free)).toMatchObject({ state: 'done' })
  await t.clock.set(new Date('2026-01-11T07:00:00Z'))
  expect(await t.drain()).toBe(1)
  await t.clock.set(new Date('2026-01-11T20:00:00Z'))
  const last = await mail.send({})
  await t.drain()
  // Another service with rules of its own, or an older version, opens only its own hours.
  const other = await Sluice.open({ store, rules: [rule('other', { tasks: 'x', do: { priority: 1 } })] })
  expect(await other.dispatchOnce(tasks)).toBe(0)
  await t.clock.advance('61s')
  expect(await t.sluice.pauses()).toEqual([])
  expect(await other.dispatchOnce(tasks)).toBe(1)
  expect(await t.waitFor(last)).toMatchObject({ state: 'done' })
  await Promise.all([other.close(), t.close()])
})

test('rules do not apply to the jobs that report failures, unless they name them', async () => {
  const heard: unknown[] = []
  const fails = task('mail.fails', {
    input,
    retry: { attempts: 1 },
    run: () => Promise.reject(new Error('no')),
    onFailed: async ({ input: failed }, context) => {
      // Plain JavaScript has no types.
      const { fetch } = context as Context
      await expect(fetch('http://127.0.0.1/')).rejects.toMatchObject({ code: 'SLUICE_NO_FETCH' })
      heard.push(failed)
    },
  })
  const all = [
    rule<{ plan: string }>('throws', { tasks: 'mail.*', when: ({ input: { plan } }) => plan.endsWith('x'), do: {} }),
    rule('drops', { do: ({ queue }) => (queue === 'none' ? { discard: 'no' } : {}) }),
    rule('holds', { at: 'dispatch', do: ({ task: name }) => (name === 'mail.fails' ? {} : { hold: '1h' }) }),
    rule('tags', { tasks: '*:failed', do: { tags: ['told'] } }),
  ]
  const t = await testSluice({ tasks: [fails], rules: all, store: (await freshDatabase()).url })
  await fails.send({ plan: 'a' })
  // A rule's code comes after the job, which SQL sent, and whose input does not even fit.
  await t.sluice.db.query(`select sluice.send('mail.fails', '{"plan": 7}')`)
  await t.drain()
  expect(heard).toEqual(expect.arrayContaining([{ plan: 'a' }, { plan: 7 }]))
  expect(heard).toHaveLength(2)
  const told = await t.sluice.list({ state: 'done', task: 'mail.fails:failed' })
  expect(told.map(({ tags }) => tags)).toEqual([['told'], ['told']])
  await t.close()
})

test('24 queues and 24 rules put each job where its rule decides', async () => {
  const many = task('many', { input: z.object({ n: z.number() }), run: note('many') })
  const all = Array.from({ length: 24 }, (_, i) =>
    rule<{ n: number }>(`r${i}`, { when: ({ input: { n } }) => n % 24 === i, do: { queue: `q${i}`, tags: [`t${i}`] } }),
  )
  const t = await testSluice({ tasks: [many], rules: all, store: (await freshDatabase()).url })
  await t.sluice.sendMany(many, numbered(480))
  ran.length = 0
  // A worker of one queue runs the jobs of that queue, and nothing else.
  await t.sluice.dispatchOnce([many], { queues: ['q7'] })
  expect(ran).toEqual(Array.from({ length: 20 }, () => 'many@q7'))
  await t.drain()
  const rows = await t.sluice.db.query<{ queue: string; n: string; fits: boolean }>(
    `select queue, count(*) as n, bool_and(queue = 'q' || ((input ->> 'n')::int % 24) and tags = array['t' || ((input ->> 'n')::int % 24)]
     and ruled -> 0 ->> 'rule' = 'r' || ((input ->> 'n')::int % 24)) as fits from sluice.done group by 1`,
  )
  expect(rows).toHaveLength(24)
  expect(rows.every(({ n, fits: isRight }) => Number(n) === 20 && isRight)).toBe(true)
  await t.close()
})

test('a job that rules move in a circle fails with that reason', async () => {
  const round = task('round', { input, run: note('round') })
  const all = ['a', 'b'].map((queue) =>
    rule(`to-${queue}`, { at: 'dispatch', when: (job: RuleJob) => job.queue !== queue, do: { queue } }),
  )
  const t = await testSluice({ tasks: [round], rules: all, store: (await freshDatabase()).url })
  const id = await round.send({}, { queue: 'a' })
  await t.drain()
  expect(await t.waitFor(id)).toMatchObject({
    state: 'failed',
    reason: 'refused',
    error: { code: 'SLUICE_UNSTABLE_KEY' },
  })
  await t.close()
})
