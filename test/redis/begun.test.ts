/** A Redis that starts empty: what a job then waits for, in words and times, and that it starts by itself. */
import { expect, it, onTestFinished } from 'vitest'
import { limit, Sluice, task } from '../../src/index.ts'
import type { Why } from '../../src/operations/why.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'

it('`why` tells that Redis lost its state, and until when that closes the limit; then the job starts by itself', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const shared = limit('shared', { window: '10/6s', published: true })
  const call = task('call', { limits: [shared], run: () => undefined })
  const sluice = await Sluice.open({ store: (await freshDatabase()).url, redis: redis.url })
  onTestFinished(() => sluice.close())
  await sluice.work([call])
  await sluice.waitFor(await sluice.send(call, {}))

  await redis.kill()
  await redis.start()
  const id = await sluice.send(call, {})
  const seen: Why['reasons'] = []
  await until(async () => {
    const found = await sluice.why(id)
    seen.push(...(found?.reasons.filter(({ kind }) => kind === 'redis-begun') ?? []))
    return seen.length > 0
  }, 'why tells it')
  const [reason] = seen
  const at = reason?.notBefore?.toISOString()
  expect(reason).toMatchObject({ limit: 'shared', acts: 'time', notBefore: expect.any(Date) })
  expect(reason?.text).toMatch(
    /^Redis lost its state and began anew at \S+Z: shared \(10\/6s\) is closed for 6\.\d s from then, while earlier grants count$/,
  )
  const { state, startedAt, attempt } = await sluice.waitFor(id)
  expect({ state, attempt }).toEqual({ state: 'done', attempt: 1 })
  expect(startedAt?.toISOString() ?? '').toSatisfy((started: string) => started >= (at ?? ''))
})
