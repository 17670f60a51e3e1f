/** Results in Redis, for those who wait for them. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it, type TestContext } from 'vitest'
import { resultKey, writeResult } from '../../src/celery/result.ts'
import { redisResults } from '../../src/celery/results.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'

async function stage({ onTestFinished }: TestContext) {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const [admin, results] = await Promise.all([connectRedis(redis.port), redisResults(redis.url)])
  onTestFinished(async () => {
    admin.close()
    await results.close()
  })
  const report = (id: string, state: string, value: unknown) =>
    admin.send('SET', [resultKey(id), writeResult({ id, state, value, traceback: undefined })])
  return { results, report }
}

it('are not kept when they were read, however long another one is awaited', async (context) => {
  const { results, report } = await stage(context)
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const used = () => {
    collect()
    return process.memoryUsage().heapUsed
  }
  results.watch('slow', () => {})
  const value = 'x'.repeat(2 ** 20)
  const read = async (from: number, to: number) => {
    for (let n = from; n < to; n++) {
      await report(`${n}`, 'SUCCESS', value)
      expect((await results.last(`${n}`, 60_000)).state).toBe('SUCCESS')
      results.forget(`${n}`)
    }
  }
  await read(0, 2)
  const before = used()
  await read(2, 52)
  expect((used() - before) / 2 ** 20).toBeLessThan(20)
})

it('reject with what a caller throws that is told of states', async (context) => {
  const { results, report } = await stage(context)
  const last = results.last('told', 60_000, () => {
    throw new RangeError('boom')
  })
  await report('told', 'STARTED', null)
  await expect(last).rejects.toThrow('boom')
  await report('told', 'SUCCESS', 1)
  expect(await results.last('told', 60_000)).toMatchObject({ state: 'SUCCESS', value: 1 })
})
