/** Points of the conformance list: what Celery sees of a worker of ours while it works. RabbitMQ and Redis are the brokers. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { WorkerEvents } from '../../src/absorb/worker-events.ts'
import { systemClock } from '../../src/core/clock.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { absorb, openStage } from './stage.ts'
import { tasks } from './tasks.ts'

interface Seen {
  events: Record<string, unknown>[]
  state: string | null
  alive: Record<string, boolean>
}
type Info = Record<string, unknown> & { id: string }

describe.each(['RabbitMQ', 'Redis'])('over %s', (kind) => {
  let stage: Awaited<ReturnType<typeof openStage>>
  let redis: Awaited<ReturnType<typeof startRedis>> | undefined
  beforeAll(async () => {
    redis = kind === 'Redis' ? await startRedis() : undefined
    stage = await openStage(redis?.url)
  })
  afterAll(async () => {
    stage?.close()
    await redis?.close()
  })
  const one = async <T>(method: string) =>
    Object.values(await stage.ask<Record<string, T>>('inspect', { method })).flat() as unknown as T

  it('31: the states STARTED and RETRY are shown, to who wants them', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context, { trackStarted: true })
    const held = await stage.send('hold')
    const reported = () => sluice.db.query<{ n: number }>('select reported as n from sluice.celery_call')
    await until(async () => (await reported())[0]?.n === 1, 'it is reported that it runs')
    calls.push('go')
    const started = { pid: process.pid, hostname: expect.stringMatching(/^sluice-\d+(-\d+)?@/) }
    expect(await stage.ask('states', { id: held })).toEqual(expect.arrayContaining([['STARTED', started]]))
    const retried = await stage.ask<[string, unknown][]>('states', { id: await stage.send('second') })
    expect(retried.map(([state]) => state).filter((state) => state !== 'STARTED')).toEqual(['RETRY', 'SUCCESS'])
    expect(retried.find(([state]) => state === 'RETRY')?.[1]).toEqual(['RangeError', 'not yet'])
  })

  it('38: events show the worker and its tasks, once somebody wants them', async (context) => {
    const { all, calls } = tasks()
    const { worker } = await absorb(stage.url, all, context)
    const quiet = await stage.send('add', [1, 2])
    expect(await stage.result(quiet)).toEqual(['SUCCESS', 3])
    const [enabled] = await stage.ask<Record<string, unknown>[]>('watch')
    expect(Object.values(enabled ?? {})).toEqual([{ ok: 'task events enabled' }])
    const added = await stage.send('add', [1, 2])
    const failed = await stage.send('fail', ['x'], { kwargs: { a: 1 } })
    const second = await stage.send('second')
    const held = await stage.send('hold', [], { countdown: 3_600 })
    await stage.ask('revoke', { id: held })
    const seen = (id?: string) => stage.ask<Seen>('seen', { id: id ?? null })
    const types = async (id: string) => (await seen(id)).events.map(({ type }) => type)
    for (const [id, state] of [
      [added, 'SUCCESS'],
      [failed, 'FAILURE'],
      [second, 'SUCCESS'],
      [held, 'REVOKED'],
    ] as const)
      await until(async () => (await seen(id)).state === state, `${state} is seen`)
    expect(await types(added)).toEqual(['task-received', 'task-started', 'task-succeeded'])
    expect(await types(failed)).toEqual(['task-received', 'task-started', 'task-failed'])
    expect((await types(second)).filter((type) => type !== 'task-started')).toEqual([
      'task-received',
      'task-retried',
      'task-succeeded',
    ])
    expect(await types(held)).toEqual(['task-received', 'task-revoked'])
    const [first, , last] = (await seen(added)).events
    expect(first).toMatchObject({ name: 'add', args: '(1, 2)', kwargs: '{}', retries: 0, root_id: added })
    expect(last).toMatchObject({
      result: '3',
      runtime: expect.any(Number),
      hostname: expect.stringMatching(/^sluice-/),
    })
    expect((await seen(failed)).events.at(-1)).toMatchObject({ exception: "RangeError('boom')" })
    await until(async () => Object.values((await seen()).alive).includes(true), 'the worker is alive')
    await until(async () => (await seen()).events.some(({ type }) => type === 'worker-heartbeat'), 'it beats')
    expect((await seen(quiet)).events).toEqual([])
    const stats = await one<{ total: object }[]>('stats')
    expect(stats).toMatchObject([{ total: { add: 2, fail: 1, second: 1, hold: 1 } }])
    await worker.stop()
    await until(async () => (await seen()).events.some(({ type }) => type === 'worker-offline'), 'it said good-bye')
    expect(calls).toContainEqual([1, 2])
  })

  it('35: what is active, waits, is planned and was revoked is shown, and the settings', async (context) => {
    const { all, calls } = tasks()
    const { sluice } = await absorb(stage.url, all, context)
    const active = await stage.send('hold', ['a'], { kwargs: { b: 1 } })
    const later = await stage.send('add', [1], { countdown: 3_600 })
    const revoked = await stage.send('add', [2], { countdown: 3_600 })
    await until(() => calls.length === 1, 'it runs')
    await until(async () => (await sluice.list({ state: 'scheduled' })).length === 2, 'the others are planned')
    await stage.ask('revoke', { id: revoked })
    expect((await stage.result(revoked))[0]).toBe('REVOKED')
    expect(await one<Info[]>('active')).toMatchObject([
      { id: active, name: 'hold', args: "('a',)", kwargs: "{'b': 1}", delivery_info: { routing_key: 'celery' } },
    ])
    expect(await one('scheduled')).toMatchObject([{ eta: expect.any(String), request: { id: later, name: 'add' } }])
    expect(await one('reserved')).toEqual([])
    expect(await one('revoked')).toEqual([revoked])
    expect(await one('conf')).toMatchObject([{ worker_concurrency: 10, task_track_started: false }])
    await stage.ask('revoke', { id: active, terminate: true })
    expect((await stage.result(active))[0]).toBe('REVOKED')
  })

  it('36: what a worker of ours does not do is refused, with what to do instead', async (context) => {
    const { all } = tasks()
    const { worker } = await absorb(stage.url, all, context)
    const control = (method: string, given: object = {}, everybody = false) =>
      stage.ask('control', { method, arguments: given, everybody })
    // Nobody else answers either.
    expect(await control('rate_limit', { task_name: 'nobody.knows', rate_limit: '10/m' }, true)).toEqual([
      { error: 'unknown task' },
    ])
    expect(await control('rate_limit', { task_name: 'add', rate_limit: '10/m' })).toEqual([
      { error: expect.stringContaining('has no limit') },
    ])
    for (const method of ['shutdown', 'pool_grow', 'add_consumer', 'autoscale', 'time_limit'])
      expect(await control(method)).toEqual([
        { error: expect.stringMatching(/SIGTERM|--concurrency|--celery|timeout/) },
      ])
    expect(await stage.result(await stage.send('add', [1]))).toEqual(['SUCCESS', 1])
    expect(worker.running).toBe(0)
  })
})

it('a worker counts calls by the names of its tasks, and keeps no name that somebody has made up', () => {
  const tasks = new Map([['add', {}]])
  const events = new WorkerEvents({ clock: systemClock, name: 'one', tasks, active: () => 0 } as never)
  const how = { startedMs: null, endedMs: null }
  for (const task of ['add', 'made.up', 'add', 'made.up.too'])
    events.sendEnd({ id: 'a', state: 'SUCCESS', value: 1, traceback: undefined }, { task, ...how })
  expect(events.totals).toEqual({ add: 2 })
})
