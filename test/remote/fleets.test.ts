/** Several dispatchers, both kinds of fleets, and results in Redis. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { vendor } from '../../src/testing/vendor.ts'
import { startProxy } from '../servers/proxy.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { failRecordsOfBegun, holdEnd } from '../claim/engine-parts.ts'
import { another, dispatch, openStage, pythonTask, type Stage } from './stage.ts'
import { brief } from '../v8.ts'

let stage: Stage
beforeAll(async () => void (stage = await openStage()))
afterAll(() => stage?.close())

const urlOnly = z.object({ url: z.string() })

describe.concurrent('stock workers', () => {
  it('keep one limit together with a fleet of Node, as the vendor sees it', async (context) => {
    const [most, windowMs] = [30, 3_000]
    const api = vendor({ rules: [{ algorithm: 'sliding log', limit: most, windowMs }] })
    const url = await api.listen()
    context.onTestFinished(() => api.close())
    // Python's own way to the vendor is not measured, and this machine is busy.
    const calls = limit('calls', { rate: `${most}/3s`, transit: '500ms' })
    const python = pythonTask('call', await stage.queue(), { limits: [calls] })
    const node = task('ring', {
      input: urlOnly,
      limits: [calls],
      run: async (input, { fetch }) => void (await fetch(input.url, { method: 'POST', headers: { 'x-by': 'node' } })),
    })
    const { sluice, count } = await dispatch(stage, [python, node], context)
    const worker = await sluice.execute([python, node], { concurrency: 4 })
    context.onTestFinished(() => worker.abort())
    const both = copies(30, { url })
    await Promise.all([sluice.sendMany(python, both), sluice.sendMany(node, both)])
    await until(async () => (await count('done')) === 60, 'all calls are made')
    const { arrivals, vendor429, rules } = api.report()
    expect({ arrivals, vendor429, exceeded: rules[0]?.exceeded }).toEqual({ arrivals: 60, vendor429: 0, exceeded: 0 })
    expect((await sluice.verify()).exceeded).toEqual([])
    expect(await count(`done where task = 'call'`)).toBe(30)
  })

  /**
   * Kills a dispatcher, in a process of its own, that has a job at a worker; another one follows.
   * @param records false: it cannot record that the job was begun @param isKilled false: later, by `kill`
   */
  async function takeOver(
    context: TestContext,
    queue: string,
    { celeryResults = 'rpc://', records = true, isKilled = true } = {},
  ) {
    const many = pythonTask('many', queue)
    const made = await dispatch(stage, [many], context, { celeryResults })
    await made.dispatcher.stop()
    const mend = records ? undefined : await failRecordsOfBegun(made.sluice.db)
    const args = [made.url, stage.url, queue, celeryResults]
    const first = fork(fileURLToPath(new URL('member.mjs', import.meta.url)), args, { execArgv: brief })
    context.onTestFinished(() => void first.kill('SIGKILL'))
    await once(first, 'message')
    const held = await made.sluice.send(many, { gate: made.gate })
    await made.begun(held)
    const kill = async () => {
      first.kill('SIGKILL')
      await once(first, 'exit')
    }
    if (isKilled) await kill()
    await mend?.()
    const beats = () =>
      made.sluice.db.query<{ beat: string }>(
        'select w.beat from sluice.worker w where exists (select from sluice.claim c where c.worker = w.id)',
      )
    const [before] = await beats()
    const heir = async () => {
      const worker = await made.sluice.dispatch([many])
      context.onTestFinished(() => worker.abort())
    }
    /** Without an heir it would be given up by then. */
    const outlived = () =>
      until(async () => Number((await beats())[0]?.beat) >= Number(before?.beat) + 5, 'the heir beats for it')
    return { ...made, many, held, heir, outlived, kill }
  }

  it('go on with what a killed dispatcher had in hand', async (context) => {
    const { sluice, many, held, heir, outlived, count, ended, open } = await takeOver(context, await stage.queue())
    await heir()
    const others = await Promise.all(Array.from({ length: 10 }, () => sluice.send(many, {})))
    await until(async () => (await count('done')) === 10, 'the heir has slots left')
    await outlived()
    open()
    expect(await ended(held)).toMatchObject({ state: 'done', attempt: 1, ambiguous: false, crashes: 0 })
    expect(stage.seen(held).length).toBe(1)
    expect(stage.seen(...others).length).toBe(10)
    await until(async () => (await count('claim')) === 0, 'no claim is left')
  })

  it.for([
    ['when it has claimed a job', 'claim.received'],
    ['when it has sent the job, before RabbitMQ has confirmed that', ''],
    ['when RabbitMQ has confirmed the job', 'outlet.confirmed'],
  ] as const)('are called once, though a dispatcher is killed %s', async ([, point], context) => {
    const queue = await stage.queue()
    const many = pythonTask('many', queue)
    const proxy = await startProxy({ port: Number(new URL(stage.url).port) })
    context.onTestFinished(() => proxy.close())
    const made = await dispatch(stage, [many], context)
    await made.dispatcher.stop()
    const id = await made.sluice.send(many, { gate: made.gate })
    const sent = proxy.swallow({ when: 'sluice_attempt' })
    const at = point === '' ? proxy.url(stage.url) : stage.url
    const first = fork(fileURLToPath(new URL('member.mjs', import.meta.url)), [made.url, at, queue, 'rpc://'], {
      execArgv: brief,
      env: { ...process.env, SLUICE_CRASH_AT: point },
    })
    context.onTestFinished(() => void first.kill('SIGKILL'))
    if (point === '') void sent.then(() => first.kill('SIGKILL'))
    await once(first, 'exit')
    expect(await made.count('job where claim is not null')).toBe(1)
    const heir = await made.sluice.dispatch([many])
    context.onTestFinished(() => heir.abort())
    made.open()
    const job = await made.ended(id)
    // The heir has just started: if no worker has the job, it does not know whether one had it, and was lost.
    const isAgain = job.attempt > 1
    expect(job).toMatchObject({ state: 'done', ambiguous: isAgain, crashes: isAgain ? 1 : 0 })
    expect(stage.seen(id)).toMatchObject([{ attempt: job.attempt, ambiguous: isAgain }])
    await until(async () => (await made.count('claim')) === 0, 'no claim is left')
  })

  it('are called once, though a dispatcher is killed when it has read a result, before it has recorded that', async (context) => {
    const { sluice, held, heir, ended, open, kill } = await takeOver(context, await stage.queue(), { isKilled: false })
    const end = await holdEnd(sluice, held)
    open()
    await end.tried()
    await kill()
    await end.free()
    await heir()
    expect(await ended(held)).toMatchObject({ state: 'done', attempt: 1, ambiguous: false, crashes: 0 })
    expect(stage.seen(held).length).toBe(1)
  })

  it('read a result that came while there was no dispatcher', async (context) => {
    const { held, heir, ended, open, isOpen } = await takeOver(context, await stage.queue())
    open()
    await until(() => isOpen() && stage.seen(held).length === 1, 'it can end')
    await heir()
    expect(await ended(held)).toMatchObject({ state: 'done', attempt: 1, ambiguous: false, crashes: 0 })
    expect(stage.seen(held).length).toBe(1)
  })

  it('run again, marked as in doubt, what a killed dispatcher had at a worker that was killed, too', async (context) => {
    const queue = another('frail')
    const frail = await stage.start(queue, ['-c', '2', '-Q', queue])
    const { held, heir, count } = await takeOver(context, queue, { records: false })
    await frail.kill()
    await heir()
    // What the killed one had not recorded is in a message that it had therefore not acknowledged.
    await until(async () => (await count('claim where begun is not null')) === 1, 'it is known to have begun')
    await stage.control.request('add_consumer', { queue }, { workers: [stage.worker.name] })
    await until(() => stage.seen(held).length === 2, 'it runs again')
    expect(stage.seen(held)).toMatchObject([{ attempt: 1 }, { attempt: 2, ambiguous: true }])
  })

  it('may put their results into Redis, where the next dispatcher finds them', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const queue = another('stored')
    await stage.start(queue, ['-c', '2', '-Q', queue], { BACKEND: redis.url })
    const [add, fail] = [pythonTask('add', queue), pythonTask('fail', queue, { retry: { attempts: 1 } })]
    const { sluice, ended, dispatcher } = await dispatch(stage, [add, fail], context, { celeryResults: redis.url })
    const [sum, failure] = await Promise.all([sluice.send(add, { x: 2, y: 3 }), sluice.send(fail, {})])
    expect(await ended(sum)).toMatchObject({ state: 'done', result: 5 })
    expect(await ended(failure)).toMatchObject({ state: 'failed', error: { name: 'LookupError' } })
    await dispatcher.stop()
    const next = await takeOver(context, queue, { celeryResults: redis.url })
    next.open()
    await next.heir()
    expect(await next.ended(next.held)).toMatchObject({ state: 'done', attempt: 1, ambiguous: false })
  })

  it('run again, marked as in doubt, if the Redis of results has lost what they reported', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const admin = await connectRedis(redis.port)
    const proxy = await startProxy({ port: redis.port })
    context.onTestFinished(async () => (admin.close(), await proxy.close()))
    const queue = another('stored')
    await stage.start(queue, ['-c', '2', '-Q', queue], { BACKEND: redis.url })
    const many = pythonTask('many', queue)
    const made = await dispatch(stage, [many], context, { celeryResults: proxy.url(redis.url) })
    const { sluice, ended, begun, gate, open } = made
    const id = await sluice.send(many, { gate, held: 1 })
    await begun(id)
    await proxy.refuse()
    proxy.reset()
    open()
    await until(async () => {
      const keys = (await admin.send('KEYS', ['celery-task-meta-*'])) as string[]
      const all = await Promise.all(keys.map((key) => admin.send('GET', [key])))
      return all.some((text) => String(text).includes('SUCCESS'))
    }, 'its result is there')
    // A restart without persistence.
    await admin.send('FLUSHALL', [])
    await proxy.pass()
    expect(await ended(id)).toMatchObject({ state: 'done', attempt: 2, crashes: 1, ambiguous: true })
    expect(stage.seen(id)).toMatchObject([{ attempt: 1 }, { attempt: 2, ambiguous: true }])
  })
})
