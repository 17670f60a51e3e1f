/** Points of the conformance list with a producer in Python, a worker in Node, and Redis as the broker. */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { Chords } from '../../src/absorb/chord.ts'
import { signature } from '../../src/celery/signature.ts'
import { task } from '../../src/index.ts'
import { startRedis, type RedisServer } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { absorb, openStage, startProducer } from './stage.ts'
import { tasks } from './tasks.ts'
import { brief } from '../v8.ts'

const member = fileURLToPath(new URL('member.mjs', import.meta.url))

it('a member of a chord is added again if Redis returns the reply to another command', async () => {
  let resets = 0
  const redis = { send: async () => 'OK', load: async () => {}, open: async () => {}, close: async () => {} }
  const chords = new Chords({ ...redis, reset: () => void resets++ })
  const result = { id: 'a', state: 'SUCCESS', value: 1, traceback: undefined }
  const added = chords.add({ groupId: 'g', index: 0, result, body: signature('last') })
  await expect(added).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' })
  expect(resets).toBe(1)
})

describe('a task that Python sends over Redis', () => {
  let redis: RedisServer
  let stage: Awaited<ReturnType<typeof openStage>>
  let admin: Awaited<ReturnType<typeof connectRedis>>
  beforeAll(async () => {
    redis = await startRedis()
    stage = await openStage(redis.url)
    admin = await connectRedis(redis.port)
  })
  beforeEach(() => admin.send('FLUSHALL', []))
  afterAll(async () => {
    stage?.close()
    admin?.close()
    await redis?.close()
  })
  const held = async () => Number(await admin.send('HLEN', ['unacked']))

  it('20: runs as a job, its result is in Redis, and nothing stays behind', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    expect(await stage.result(await stage.send('add', [2, 3]))).toEqual(['SUCCESS', 5])
    await until(async () => (await held()) === 0, 'it is acknowledged')
    const links = [
      ['add', [1, 2], {}],
      ['add', [10], {}],
    ]
    expect(await stage.result(await stage.ask('send_chain', { tasks: links }))).toEqual(['SUCCESS', 13])
    expect(await stage.result(await stage.send('fail'))).toEqual(['FAILURE', ['RangeError', 'boom']])
    expect(calls).toEqual([
      [2, 3],
      [1, 2],
      [3, 10],
    ])
  })

  it('19: may have its result over rpc', async (context) => {
    const producer = await startProducer(redis.url, 'rpc://')
    context.onTestFinished(() => void producer.close())
    await absorb(redis.url, tasks().all, context, { celeryResults: 'rpc://' })
    expect(await producer.result(await producer.send('add', [2, 3]))).toEqual(['SUCCESS', 5])
  })

  it('21, 22 and 29: fails with its error; what follows an end is sent, and a group is sent whole', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const failed = await stage.send('fail', [], { link_error: 'note' })
    expect(await stage.result(failed)).toEqual(['FAILURE', ['RangeError', 'boom']])
    await stage.send('add', [4, 4], { link: 'note' })
    await until(() => calls.length === 3, 'what follows has run')
    expect(calls).toEqual(expect.arrayContaining([[failed], [4, 4], [8]]))
    const group = [
      ['add', [1, 2]],
      ['add', [10]],
    ]
    expect(await stage.ask('group', { tasks: group })).toEqual([3, 10])
  })

  it('28, 32 and 37: keeps its id when it is retried, may come by protocol 1, and greets workers of Celery', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    const answers = await stage.ask<Record<string, object>>('hello')
    expect(Object.values(answers)).toEqual([{ revoked: {}, clock: expect.any(Number) }])
    expect(await stage.result(await stage.send('second'))).toEqual(['SUCCESS', 2])
    expect((await sluice.list({ state: 'done' })).map(({ attempt }) => attempt)).toEqual([2])
    const body = JSON.stringify({ task: 'note', id: 'first', args: [1], kwargs: { a: 2 }, retries: 0, eta: null })
    await stage.ask('raw', { body, content_type: 'application/json', headers: {} })
    await until(() => calls.length === 1, 'it has run')
    expect(calls).toEqual([{ a: 2, args: [1] }])
  })

  it('23, 24, 25: waits for its eta in the store, expires, or is revoked', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    const later = await stage.send('add', [1], { countdown: 3 })
    const late = await stage.send('add', [2], { countdown: 3_600, expires: 5 })
    const revoked = await stage.send('add', [3], { countdown: 3_600 })
    expect(await stage.result(late)).toEqual(['REVOKED', ['TaskRevokedError', 'expired']])
    await until(async () => (await sluice.list({ state: 'scheduled' })).length > 0, 'it is scheduled')
    await stage.ask('revoke', { id: revoked })
    expect(await stage.result(revoked)).toEqual(['REVOKED', ['TaskRevokedError', 'revoked']])
    expect(await stage.result(later)).toEqual(['SUCCESS', 1])
    expect(await held()).toBe(0)
    expect(calls).toEqual([[1]])
  })

  it('30: may be a member of a chord, whose last task gets all results, or fails with a member', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    const members = [
      ['add', [1, 2]],
      ['add', [3]],
      ['add', [4]],
    ]
    expect(await stage.result(await stage.ask('send_chord', { tasks: members, body: 'add' }))).toEqual(['SUCCESS', 10])
    expect(calls.at(-1)).toEqual([[3, 3, 4]])
    const broken = await stage.ask<string>('send_chord', { tasks: [...members, ['fail', []]], body: 'add' })
    expect(await stage.result(broken)).toEqual(['FAILURE', ['ChordError', expect.stringContaining('RangeError')]])
    const ends = await stage.ask<string[]>('send_canvas')
    expect(await Promise.all(ends.map((id) => stage.result(id)))).toEqual([
      ['SUCCESS', 20],
      ['SUCCESS', 31],
    ])
    expect(await admin.send('KEYS', ['celery-taskset-meta-*'])).toEqual([])
  })

  it('30: is followed by groups in the middle of a chain, each of which begins a chord', async (context) => {
    const { all, calls } = tasks()
    await absorb(stage.url, all, context)
    expect(await stage.result(await stage.ask('send_middle', { first: 'add' }))).toEqual(['SUCCESS', 3_279])
    expect(calls).toHaveLength(8)
    expect(await stage.result(await stage.ask('send_middle', { first: 'fail' }))).toEqual([
      'FAILURE',
      ['RangeError', 'boom'],
    ])
    expect(await admin.send('KEYS', ['celery-taskset-meta-*'])).toEqual([])
  })

  it('8: of two priorities the lower one comes first', async (context) => {
    const { all, calls } = tasks()
    const { sluice, worker } = await absorb(stage.url, all, context)
    await worker.stop()
    for (const priority of [9, 0, 6]) await stage.send('note', [priority], { priority })
    await sluice.work(all, { celery: ['celery'], concurrency: 1 })
    await until(() => calls.length === 3, 'all have run')
    expect(calls).toEqual([[0], [6], [9]])
  })

  it('33: is parked with the reason when it cannot be carried out, and its producer learns that', async (context) => {
    await absorb(stage.url, tasks().all, context)
    expect((await stage.result(await stage.send('nobody.knows')))[0]).toBe('FAILURE')
    await until(async () => Number(await admin.send('LLEN', ['celery.parked'])) === 1, 'it is parked')
    expect(String(await admin.send('LINDEX', ['celery.parked', '0']))).toContain('x-sluice-reason')
    expect(await held()).toBe(0)
  })

  it('26: is a job once, though the process that absorbs it is killed', async (context) => {
    const calls: unknown[] = []
    const call = task('call', { input: z.unknown(), run: (input) => void calls.push(input) })
    const { sluice, worker, store } = await absorb(stage.url, [call], context)
    await worker.stop()
    await stage.ask('many', { task: 'call', n: 1_500 })
    const recorded = async () => {
      const [row] = await sluice.db.query<{ n: number }>('select count(*)::int as n from sluice.celery_call')
      return row?.n ?? 0
    }
    for (const least of [1, 600]) {
      const child = fork(member, [store, stage.url, '2s'], { execArgv: brief })
      context.onTestFinished(() => void child.kill('SIGKILL'))
      await until(async () => (await recorded()) >= least, `${least} are recorded`)
      child.kill('SIGKILL')
    }
    await sluice.work([call], { celery: { queues: ['celery'], visibilityTimeout: '2s' }, concurrency: 100 })
    await until(async () => (await sluice.jobs.status()).done === 1_500, 'all are done')
    expect(new Set(calls.map(String)).size).toBe(1_500)
    expect(calls.length).toBe(1_500)
    await until(async () => (await held()) === 0, 'nothing is held any more')
  })
})
