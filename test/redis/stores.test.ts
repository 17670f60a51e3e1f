/** Several databases with one limit in one Redis: the vendor, in a process of its own, is the truth. */
import { describe, expect, it, vi } from 'vitest'
import { guarantees, limit } from '../../src/index.ts'
import { end } from '../fleet/children.ts'
import { isLong } from '../long.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { rate, world } from './world.ts'

const [promise] = guarantees(limit('shared', { rate, transit: '1s' }))
const jobs = isLong ? 1_800 : 160
const endMs = 120_000 + jobs * 300
vi.setConfig({ testTimeout: 2 * endMs })

describe('databases with one Redis', { concurrent: !isLong }, () => {
  it('one limit holds over two databases, and both use it about alike', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const run = await world(context, ['eu', 'us'], redis.url)
    const members = await Promise.all(run.stores.flatMap(({ enter }) => [enter(), enter()]))
    await Promise.all(run.stores.map(({ send }) => send(jobs)))
    await until(
      async () => (await Promise.all(run.stores.map(({ ended }) => ended()))).every((n) => n === jobs),
      'all are done',
      endMs,
    )
    const arrivals = await run.proved(2 * jobs)
    const seconds = (Number(arrivals.at(-1)?.atNs) - Number(arrivals[0]?.atNs)) / 1e9
    const share = (arrivals.length - (promise?.burst ?? 0)) / seconds / (promise?.perSecond ?? 0)
    // While both have jobs waiting, that is at least until half of all jobs are done.
    const first = arrivals.slice(0, jobs)
    const parts = run.stores.map(({ path }) => first.filter((one) => one.path === path).length / first.length)
    console.log(
      `of the guarantee: ${share.toFixed(3)}; of the first ${jobs}: ${parts.map((part) => part.toFixed(2)).join(' and ')}`,
    )
    // On a busy machine grants grow old and go back, so the short form does not judge it.
    if (isLong) expect(share).toBeGreaterThan(0.9)
    for (const part of parts) expect(part).toBeGreaterThan(0.25)
    await end(members)
  })

  it('nothing is exceeded when Redis loses its state, and one of two databases begins it anew', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const run = await world(context, ['eu', 'us'], redis.url)
    const members = await Promise.all(run.stores.map(({ enter }) => enter()))
    await Promise.all(run.stores.map(({ send }) => send(jobs)))
    const ended = async () => Promise.all(run.stores.map((store) => store.ended()))
    for (const part of [0.2, 0.5]) {
      await until(async () => (await ended()).every((n) => n > jobs * part), 'some of both are done', endMs)
      await redis.kill()
      await redis.start()
    }
    await until(async () => (await ended()).every((n) => n === jobs), 'all are done', endMs)
    await run.proved(2 * jobs)
    await end(members)
  })
})
