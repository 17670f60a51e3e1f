/** Points of the conformance list with a producer in Python and a worker in Node. A name begins with its point (scripts/conformance.mjs). */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { silent } from '../../src/core/log.ts'
import { openBroker } from '../../src/amqp/broker.ts'
import { openProducer } from '../../src/celery/index.ts'
import { limit, rule, task } from '../../src/index.ts'
import { storeOn } from '../../src/db/store.ts'
import { startCelery } from '../celery/worker.ts'
import { findPython } from '../examples/interpreter.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { absorb, openStage, startProducer } from './stage.ts'
import { brief } from '../v8.ts'

const member = fileURLToPath(new URL('member.mjs', import.meta.url))
const anything = z.unknown()
const once = { attempts: 1, base: 1, max: 1 } as const

/** Tasks of Node, and what they have been called with. */
function tasks() {
  const calls: unknown[] = []
  const note = (input: unknown) => void calls.push(input)
  const total = z.array(z.number())
  const all = [
    task('add', { input: total, run: (input) => (note(input), input.reduce((sum, one) => sum + one, 0)) }),
    task('note', { input: anything, run: (input) => note(input) }),
    task('mourn', { input: anything, run: (input) => note({ mourned: input }) }),
    task('wait', {
      input: anything,
      run: async (_, { signal }) => {
        calls.push('begun')
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
        calls.push('stopped')
      },
    }),
    task('second', {
      input: anything,
      retry: { attempts: 2, base: 1, max: 1 },
      run: (_, { attempt }) => {
        if (attempt === 1) throw new Error('not yet')
        return attempt
      },
    }),
    task('fail', {
      input: anything,
      retry: once,
      run: () => {
        throw new RangeError('boom')
      },
    }),
  ]
  return { all, calls }
}

describe('a task that Python sends', () => {
  let stage: Awaited<ReturnType<typeof openStage>>
  beforeAll(async () => (stage = await openStage()), 60_000)
  afterAll(() => stage.close())

  it('19: runs as a job, and its result goes back', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    expect(await stage.result(await stage.send('add', [2, 3]))).toEqual(['SUCCESS', 5])
    const named = await stage.send('note', [], { kwargs: { to: 'a', n: 1 } })
    expect(await stage.result(named)).toEqual(['SUCCESS', null])
    expect(calls).toEqual([[2, 3], { to: 'a', n: 1 }])
    expect(await sluice.list({ state: 'done' })).toHaveLength(2)
  })

  it('21 and 22: fails with the type and text of its error, and what follows an error runs', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const id = await stage.send('fail', [], { link_error: 'mourn' })
    expect(await stage.result(id)).toEqual(['FAILURE', ['RangeError', 'boom']])
    await until(() => calls.length === 1, 'its errback has run')
    expect(calls).toEqual([{ mourned: [id] }])
  })

  it('29: is followed by the rest of its chain, and by what it links to; a group is sent whole', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const tasksInOrder = [
      ['add', [1, 2]],
      ['add', [10]],
      ['add', [100]],
    ]
    const inChain = tasksInOrder.map(([name, args]) => [name, args, {}])
    expect(await stage.result(await stage.ask('send_chain', { tasks: inChain }))).toEqual(['SUCCESS', 113])
    await stage.send('add', [4, 4], { link: 'note' })
    await until(() => calls.length === 5, 'what it links to has run')
    expect(calls.at(-1)).toEqual([8])
    const results = await stage.ask<number[]>('group', { tasks: tasksInOrder })
    expect(results.toSorted((a, b) => a - b)).toEqual([3, 10, 100])
  })

  it('is followed by tasks in the queues that routes give their names, unless they name one themselves', async (context) => {
    const { all } = tasks()
    await absorb(stage.url, all, context, { routes: { 'shop.*': 'elsewhere' } })
    const numbers = z.array(z.number())
    const total = task('shop.total', { input: numbers, run: ([sum = 0, more = 0]) => 1_000 * sum + more })
    await absorb(stage.url, [total], context, { queues: ['elsewhere', 'named'] })
    const links = [
      ['add', [1, 2], {}],
      ['shop.total', [4], {}],
      ['shop.total', [5], { queue: 'named' }],
    ]
    expect(await stage.result(await stage.ask('send_chain', { tasks: links }))).toEqual(['SUCCESS', 3_004_005])
  })

  it('15: may be a link of a chain whose other links Python executes', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const env = { BROKER: stage.url, BACKEND: 'rpc://', NOTES: 'redis://127.0.0.1:1' }
    const flags = ['--pool', 'solo', '-Q', 'stored']
    const python = startCelery({
      python: await findPython('celery', 'redis'),
      app: 'worker',
      name: 'mixed',
      env,
      flags,
    })
    context.onTestFinished(() => python.kill())
    const links = [
      ['add', [1, 2], {}],
      ['add', [10], { queue: 'stored' }],
      ['add', [100], {}],
    ]
    expect(await stage.result(await stage.ask('send_chain', { tasks: links }))).toEqual(['SUCCESS', 113])
    expect(calls).toEqual([
      [1, 2],
      [13, 100],
    ])
  })

  it('23: waits for its eta, and reserves no slot meanwhile', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const atMs = Date.now()
    const later = await stage.send('add', [1], { countdown: 3 })
    expect(await stage.result(await stage.send('add', [2]))).toEqual(['SUCCESS', 2])
    expect(await stage.result(later)).toEqual(['SUCCESS', 1])
    expect(Date.now() - atMs).toBeGreaterThanOrEqual(3_000)
    expect(calls).toEqual([[2], [1]])
  })

  it('24: is revoked when it has expired', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    expect(await stage.result(await stage.send('add', [1], { countdown: 3_600, expires: 5 }))).toEqual([
      'REVOKED',
      ['TaskRevokedError', 'expired'],
    ])
    expect(calls).toEqual([])
  })

  it('25: can be revoked, before it begins and after', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    const later = await stage.send('add', [2], { countdown: 3_600 })
    await until(async () => (await sluice.list({ state: 'scheduled' })).length === 1, 'it is scheduled')
    await stage.ask('revoke', { id: later })
    expect(await stage.result(later)).toEqual(['REVOKED', ['TaskRevokedError', 'revoked']])
    const long = await stage.send('wait', [])
    await until(() => calls.length === 1, 'it has begun')
    await stage.ask('revoke', { id: long, terminate: true })
    expect(await stage.result(long)).toEqual(['REVOKED', ['TaskRevokedError', 'revoked']])
    await until(() => calls.length === 2, 'it was stopped')
    expect(calls).toEqual(['begun', 'stopped'])
  })

  it('fails for good at the time limit of its message, with every attempt, and not at that of another one', async (context) => {
    const { all, calls } = tasks()
    const vip = rule('vip', { do: { priority: 5 } })
    const { sluice } = await absorb(stage.url, all, context, {}, { rules: [vip] })
    const long = await stage.send('wait', [], { soft_time_limit: 0.5, time_limit: 60 })
    expect(await stage.result(long)).toEqual(['FAILURE', [expect.any(String), expect.stringContaining('(500 ms)')]])
    const [{ id } = { id: '' }] = await sluice.list({ state: 'failed' })
    const limit = { rule: 'time limit', timeoutMs: 500 }
    const error = expect.objectContaining({ code: 'SLUICE_TIMEOUT' })
    expect(await sluice.jobs.get(id)).toMatchObject({
      attempt: 1,
      reason: 'refused',
      error,
      ruled: [{ rule: 'vip', priority: 5 }, limit],
    })
    expect(calls).toEqual(['begun', 'stopped'])
    await sluice.jobs.retry(id)
    await until(() => calls.length === 4, 'another attempt of it was stopped')
    const added = await stage.send('add', [1], { time_limit: 60 })
    expect(await stage.result(added)).toEqual(['SUCCESS', 1])
  })

  it('runs once however often its message arrives', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const raw = { content_type: 'application/json', headers: { task: 'note', id: 'my own id', lang: 'py' } }
    const body = JSON.stringify([[7], {}, {}])
    for (let i = 0; i < 20; i++) await stage.ask('raw', { body, ...raw })
    expect(await stage.result(await stage.send('add', [1]))).toEqual(['SUCCESS', 1])
    await stage.ask('raw', { body, ...raw })
    expect(await stage.result(await stage.send('add', [2]))).toEqual(['SUCCESS', 2])
    expect(calls).toEqual([[7], [1], [2]])
  })

  it('33: is parked with the reason when it cannot be carried out, and its producer learns that', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const unknown = await stage.send('nobody.knows', [1])
    const invalid = await stage.send('add', ['x'])
    await stage.ask('raw', { body: { a: 1 }, content_type: 'application/x-python-serialize', headers: {} })
    await stage.ask('raw', { body: '[', content_type: 'application/json', headers: { task: 'add', id: '1' } })
    const followed = (text: string) =>
      JSON.stringify([[1], {}, { callbacks: [{ task: 'note', args: ['half'], kwargs: {}, options: {} }] }]).replace(
        'half',
        text,
      )
    for (const [id, body] of [
      ['2', followed('\\ud800')],
      ['3', followed('\\u0000')],
      ['4\u0000', '[[1], {}, {}]'],
    ])
      await stage.ask('raw', { body, content_type: 'application/json', headers: { task: 'add', id, lang: 'py' } })
    const [state, [type, text]] = (await stage.result(unknown)) as [string, string[]]
    expect([state, type, text]).toEqual(['FAILURE', 'NotRegistered', 'nobody.knows'])
    expect((await stage.result(invalid))[0]).toBe('FAILURE')
    const broker = await openBroker({ url: stage.url, name: 'test', log: silent })
    context.onTestFinished(() => broker.close())
    const reasons: string[] = []
    await broker.consume('celery.parked', { prefetch: 10 }, (incoming) => {
      reasons.push(String(incoming.properties.headers?.['x-sluice-reason']))
      incoming.ack()
    })
    await until(() => reasons.length === 7, 'all are parked')
    expect(reasons.toSorted()).toEqual([
      expect.stringContaining('input of "add"'),
      expect.stringContaining('no worker here has a task "nobody.knows"'),
      expect.stringMatching(/^the id contains .u0000/),
      expect.stringContaining('its body is no JSON'),
      expect.stringContaining('pickle'),
      expect.stringMatching(/^what follows the task at callbacks.0.args.0 contains .u0000/),
      expect.stringMatching(/^what follows the task at callbacks.0.args.0 contains half of a surrogate pair/),
    ])
    expect(calls).toEqual([])
  })

  it('is forgotten after 30 days, if it has no job any more', async (context) => {
    const { all } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    expect(await stage.result(await stage.send('add', [1]))).toEqual(['SUCCESS', 1])
    const waiting = await stage.send('add', [2], { countdown: 3_600 })
    const { db } = sluice
    const ids = async (which = 'true') =>
      (await db.query<{ id: string }>(`select id from sluice.celery_call where ${which}`)).map(({ id }) => id)
    // A call is recorded before its job is sent.
    await until(async () => (await sluice.list({ state: 'scheduled' })).length === 1, 'both are jobs')
    // Its result is sent before that is recorded.
    await until(async () => (await ids('replied_at is not null')).length === 1, 'the reply is recorded')
    await db.query(`insert into sluice.celery_call (id, job, call, created_at)
      values ('gone', gen_random_uuid(), '{}', sluice.now() - interval '31 days'), ('new', gen_random_uuid(), '{}', sluice.now())`)
    await db.query(`update sluice.celery_call set created_at = sluice.now() - interval '31 days' where id = $1`, [
      waiting,
    ])
    await db.query(
      `update sluice.celery_call set replied_at = sluice.now() - interval '31 days' where replied_at is not null`,
    )
    await storeOn(db).run('absorb/delete_old_calls', [30])
    expect((await ids()).toSorted()).toEqual([waiting, 'new'].toSorted())
  })

  it('35: is shown to Celery by those who run it', async (context) => {
    const { all } = tasks()
    await absorb(stage.url, all, context)
    const pings = await stage.ask<Record<string, unknown>>('inspect', { method: 'ping', everybody: true })
    expect(Object.values(pings)).toEqual([{ ok: 'pong' }])
    const registered = await stage.ask<Record<string, unknown>>('inspect', { method: 'registered' })
    expect(Object.values(registered)).toEqual([['add', 'note', 'mourn', 'wait', 'second', 'fail']])
    const stats = await stage.ask<Record<string, { pool: object }>>('inspect', { method: 'stats' })
    expect(Object.values(stats).map(({ pool }) => pool)).toEqual([{ 'max-concurrency': 10 }])
    const queues = await stage.ask<Record<string, { name: string }[]>>('inspect', { method: 'active_queues' })
    expect(Object.values(queues)).toMatchObject([[{ name: 'celery' }]])
  })

  it('37: is greeted by workers of Celery that start', async (context) => {
    await absorb(stage.url, tasks().all, context)
    const answers = await stage.ask<Record<string, object>>('hello')
    expect(Object.values(answers)).toEqual([{ revoked: {}, clock: expect.any(Number) }])
  })

  it('28: keeps its id when it is retried', async (context) => {
    const { sluice } = await absorb(stage.url, tasks().all, context)
    expect(await stage.result(await stage.send('second'))).toEqual(['SUCCESS', 2])
    expect((await sluice.list({ state: 'done' })).map(({ attempt }) => attempt)).toEqual([2])
  })

  it('32: may come by protocol 1', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const body = JSON.stringify({ task: 'note', id: 'first', args: [1], kwargs: { a: 2 }, retries: 0, eta: null })
    await stage.ask('raw', { body, content_type: 'application/json', headers: {} })
    await until(() => calls.length === 1, 'it has run')
    expect(calls).toEqual([{ a: 2, args: [1] }])
  })

  it('33: may be compressed, and have numbers that Node has not', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const args = ['é', 'x'.repeat(200_000)]
    expect(await stage.result(await stage.send('note', args, { compression: 'gzip' }))).toEqual(['SUCCESS', null])
    await stage.ask('odd')
    await until(() => calls.length === 2, 'both have run')
    expect(calls).toEqual([args, ['1152921504606846976', 'NaN', 1.5]])
    const link = '{"task": "note", "args": [1152921504606846976], "kwargs": {}, "options": {}}'
    const raw = { content_type: 'application/json', headers: { task: 'note', id: 'linked', lang: 'py' } }
    await stage.ask('raw', { body: `[[0], {}, {"callbacks": [${link}]}]`, ...raw })
    await until(() => calls.length === 4, 'what follows has run, too')
    expect(calls.slice(2)).toEqual([[0], [null, '1152921504606846976']])
  })

  it('34: may come from a queue that somebody has declared otherwise', async (context) => {
    const broker = await openBroker({ url: stage.url, name: 'test', log: silent })
    context.onTestFinished(() => broker.close())
    await broker.declare({ queues: [{ name: 'ranked', arguments: { 'x-max-priority': 10 } }] })
    await absorb(stage.url, tasks().all, context, { queues: ['ranked'] })
    const producer = await openProducer({ broker: stage.url, queue: 'ranked' })
    context.onTestFinished(() => producer.close())
    const sent = await producer.delay('add', [1, 2], { priority: 7 })
    expect(await sent.result()).toBe(3)
  })

  it('keeps the limits of its task, on two workers', async (context) => {
    const paced = limit('paced', { rate: '100/s' })
    const call = task('call', { input: anything, limits: [paced], run: () => undefined })
    const { sluice } = await absorb(stage.url, [call], context)
    await sluice.work([call], { celery: ['celery'] })
    await stage.ask('many', { task: 'call', n: 300 })
    await until(async () => (await sluice.jobs.status()).done === 300, 'all are done')
    expect((await sluice.verify()).isProved).toBe(true)
  })

  it('26: is a job once, though the process that absorbs it is killed', async (context) => {
    const calls: unknown[] = []
    const call = task('call', { input: anything, run: (input) => void calls.push(input) })
    const { sluice, worker, store } = await absorb(stage.url, [call], context)
    await worker.stop()
    await stage.ask('many', { task: 'call', n: 1_500 })
    const recorded = async () => {
      const [row] = await sluice.db.query<{ n: number }>('select count(*)::int as n from sluice.celery_call')
      return row?.n ?? 0
    }
    // It claims nothing: its jobs are in another queue.
    for (const least of [1, 300, 600]) {
      const child = fork(member, [store, stage.url], { execArgv: brief })
      context.onTestFinished(() => void child.kill('SIGKILL'))
      await until(async () => (await recorded()) >= least, `${least} are recorded`)
      child.kill('SIGKILL')
    }
    await sluice.work([call], { celery: ['celery'], concurrency: 100 })
    await until(async () => (await sluice.jobs.status()).done === 1_500, 'all are done')
    expect(new Set(calls.map(String)).size).toBe(1_500)
    expect(calls.length).toBe(1_500)
  })

  it('20 and 30: may have its result put into Redis, and be a member of a chord then', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const producer = await startProducer(stage.url, redis.url)
    context.onTestFinished(() => void producer.close())
    const { all, calls } = tasks()
    await absorb(stage.url, all, context, { celeryResults: redis.url })
    expect(await producer.result(await producer.send('add', [2, 3]))).toEqual(['SUCCESS', 5])
    const members = [
      ['add', [1, 2]],
      ['add', [4]],
    ]
    const last = await producer.ask<string>('send_chord', { tasks: members, body: 'note' })
    expect(await producer.result(last)).toEqual(['SUCCESS', null])
    expect(calls.at(-1)).toEqual([[3, 4]])
  })

  it('gets its result from the next worker when the first one has ended', async (context) => {
    const { all } = tasks()
    const { sluice, worker } = await absorb(stage.url, all, context)
    const later = await stage.send('add', [1], { countdown: 1.5 })
    await until(async () => (await sluice.list({ state: 'scheduled' })).length === 1, 'it is scheduled')
    await worker.stop()
    await sluice.work(all, { celery: ['celery'] })
    expect(await stage.result(later)).toEqual(['SUCCESS', 1])
  })
})
