/** Several dispatchers, both kinds of fleets, and results in Redis. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { vendor } from '../../src/testing/vendor.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { dispatch, openStage, pythonTask, type Stage } from './stage.ts'

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
    const both = Array.from({ length: 30 }, () => ({ url }))
    await Promise.all([sluice.sendMany(python, both), sluice.sendMany(node, both)])
    await until(async () => (await count('done')) === 60, 'all calls are made')
    const { arrivals, vendor429, rules } = api.report()
    expect({ arrivals, vendor429, exceeded: rules[0]?.exceeded }).toEqual({ arrivals: 60, vendor429: 0, exceeded: 0 })
    expect((await sluice.verify()).exceeded).toEqual([])
    expect(await count(`done where task = 'call'`)).toBe(30)
  })

  it('run again, marked as in doubt, what a killed dispatcher had in hand, and nothing else twice', async (context) => {
    const queue = await stage.queue()
    const many = pythonTask('many', queue)
    const { url, sluice, dispatcher, count, begun, ended, gate } = await dispatch(stage, [many], context)
    await dispatcher.stop()
    const args = [url, stage.url, queue]
    const first = fork(fileURLToPath(new URL('member.mjs', import.meta.url)), args, { execArgv: [] })
    context.onTestFinished(() => void first.kill('SIGKILL'))
    await once(first, 'message')
    const held = await sluice.send(many, { gate, held: 1 })
    await begun(held)
    first.kill('SIGKILL')
    const others = await Promise.all(Array.from({ length: 10 }, () => sluice.send(many, {})))
    await sluice.dispatch([many])
    expect(await ended(held)).toMatchObject({ state: 'done', attempt: 2, ambiguous: true, crashes: 1 })
    await until(async () => (await count('done')) === 11, 'all are done')
    expect(stage.seen(held).length).toBe(2)
    expect(
      stage
        .seen(...others)
        .map(({ id }) => id)
        .toSorted(),
    ).toEqual(others.toSorted())
    await until(async () => (await count('claim')) === 0, 'no claim is left')
  })

  it('may put their results into Redis', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    await stage.start('stored', ['-c', '2', '-Q', 'stored'], { BACKEND: redis.url })
    const [add, fail] = [pythonTask('add', 'stored'), pythonTask('fail', 'stored', { retry: { attempts: 1 } })]
    const { sluice, ended } = await dispatch(stage, [add, fail], context, { celeryResults: redis.url })
    const [sum, failure] = await Promise.all([sluice.send(add, { x: 2, y: 3 }), sluice.send(fail, {})])
    expect(await ended(sum)).toMatchObject({ state: 'done', result: 5 })
    expect(await ended(failure)).toMatchObject({ state: 'failed', error: { name: 'LookupError' } })
  })
})
