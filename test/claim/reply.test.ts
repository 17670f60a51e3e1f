import { afterAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { Claims } from '../../src/claim/claim.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openPg } from '../../src/db/pg.ts'
import { storeOn } from '../../src/db/store.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { isReady, type Proxy, startProxy } from '../servers/proxy.ts'
import { isLong } from '../long.ts'
import { numbered } from '../rows.ts'
import { until } from '../until.ts'
import { rescue } from '../fleet/engine.ts'
import { jobsLeft, sendCalls } from '../store/engine.ts'
import { attemptCalls, claim, type Claimed, claimsInHand, count, done, enter, quietTask } from './engine.ts'

const ends: (() => Promise<unknown>)[] = []
afterAll(async () => {
  for (const end of ends.toReversed()) await end()
})

/** A worker behind a proxy, and a connection that bypasses it for sends. */
async function behind() {
  const { url } = await freshDatabase()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  const direct = await Sluice.open({ store: url })
  const far = await Sluice.open({ store: proxy.url(url) })
  const runs: string[] = []
  const work = task('work', {
    input: z.object({ n: z.number() }),
    limits: [limit('wide', { rate: '1000000/s', burst: 1_000_000 })],
    run: (_, { job, attempt, ambiguous }) => void runs.push(`${job.id} ${attempt} ${ambiguous}`),
  })
  ends.push(
    () => direct.close(),
    () => proxy.close(),
    () => far.close(),
  )
  await far.work([work], { concurrency: 20 })
  await direct.send(work, { n: 0 })
  await far.send(work, { n: 0 })
  await until(() => runs.length === 2, 'the first jobs')
  const done = (n: number) => until(async () => (await direct.jobs.status()).done === n, `${n} done`)
  await done(2)
  return { proxy, direct, far, runs, work, done }
}

const swallow = (proxy: Proxy, statement: string, leave: 'open' | 'closed') =>
  proxy.swallow({ when: (request) => request.includes(`\0${statement}\0`), leave, until: isReady })

describe.concurrent('a lost reply', () => {
  it.each([
    ['claim', 'open'],
    ['claim', 'closed'],
    ['finish', 'open'],
    ['finish', 'closed'],
  ] as const)('of a %s, its socket then %s: all jobs are done, each once', async (what, leave) => {
    const { proxy, direct, runs, work, done } = await behind()
    const lost = swallow(proxy, attemptCalls[what], leave)
    await direct.sendMany(work, numbered(50))
    await lost
    const lostMs = systemClock.monotonicMs()
    await done(52)
    if (isLong) expect(systemClock.monotonicMs() - lostMs).toBeLessThan(15_000)
    expect(new Set(runs).size).toBe(52)
    expect(runs).toHaveLength(52)
    expect(await claimsInHand(direct.db)).toBe(0)
  })

  it.each(['open', 'closed'] as const)('of a send, its socket then %s: the job is recorded once', async (leave) => {
    const { proxy, far, runs, work, done } = await behind()
    const lost = swallow(proxy, sendCalls.lane, leave)
    const ids = await Promise.all(Array.from({ length: 50 }, (_, n) => far.send(work, { n })))
    await lost
    await done(52)
    expect(new Set(ids).size).toBe(50)
    expect(runs).toHaveLength(52)
  })

  it.each(['open', 'closed'] as const)(
    'of a send to its own worker, its socket then %s: the job runs once',
    async (leave) => {
      const { proxy, direct, far, runs, work, done } = await behind()
      const lost = swallow(proxy, attemptCalls.sendAndClaim, leave)
      let hasLost = false
      void lost.then(() => (hasLost = true))
      let n = 2
      // Each job alone, until one was sent while the worker idled.
      for (; !hasLost; n++) await far.send(work, { n })
      await done(n)
      expect(new Set(runs).size).toBe(n)
      expect(runs).toHaveLength(n)
      expect(await claimsInHand(direct.db)).toBe(0)
    },
  )

  it('of a send whose request reaches the store after its repetition: the job runs once', async () => {
    const { url } = await freshDatabase()
    const proxy = await startProxy({ port: Number(new URL(url).port) })
    const [near, far] = [await Sluice.open({ store: url }), await Sluice.open({ store: proxy.url(url) })]
    ends.push(
      () => near.close(),
      () => proxy.close(),
      () => far.close(),
    )
    const runs: string[] = []
    const work = task('work', { run: (_, { job }) => void runs.push(job.id) })
    await near.work([work])
    await far.send(work, {})
    const session = await far.db.query<{ pid: number }>('select pg_backend_pid() as pid')
    proxy.strand()
    const id = await far.send(work, {})
    const isOver = async () => (await near.jobs.status()).done === 2
    await until(isOver, 'the job that was sent again is done')
    await proxy.pass()
    const sessions = () => count(near.db, `pg_stat_activity where pid = ${session[0]?.pid}`)
    await until(async () => (await sessions()) === 0, 'the session of the first request is over')
    await until(async () => (await jobsLeft(near.db)) === 0, 'nothing is left to do')
    expect(runs.filter((run) => run === id)).toEqual([id])
    expect((await near.jobs.status()).failed).toBe(0)
  })

  it('of a claim whose request reaches the store after the end of its jobs, whose end comes again later still: no job is lost', async (context) => {
    const { url } = await freshDatabase()
    const proxy = await startProxy({ port: Number(new URL(url).port) })
    const near = await Sluice.open({ store: url })
    const far = openPg({ url: proxy.url(url), clock: systemClock, answerMs: 500 })
    ends.push(
      () => near.close(),
      () => proxy.close(),
      () => far.close(),
    )
    const { db } = near
    const work = quietTask('work')
    const worker = await enter(db)
    const who = { worker, queues: undefined, tasks: [work.name] }
    const claims = new Claims(storeOn(far))
    const claimOne = async () =>
      (await claims.claim(who, 1, { idle: false, ahead: 0 }, context.signal)).jobs as unknown as Claimed[]
    await near.send(work, { n: 0 })
    let warm: Claimed[] = []
    await until(async () => (warm = await claimOne()).length === 1, 'a connection is open, and the lane known')
    await done(db, warm)
    const [session] = await far.call<{ pid: number }>(attemptCalls.sendAndClaim, 'select pg_backend_pid() as pid', [])
    await near.send(work, { n: 1 })
    proxy.strand()
    const first = await claimOne()
    expect(first).toHaveLength(1)
    await done(db, first)
    const id = await near.send(work, { n: 2 })
    await proxy.pass()
    const sessions = () => count(db, `pg_stat_activity where pid = ${session?.pid}`)
    await until(async () => (await sessions()) === 0, 'the session of the first request is over')
    await done(db, first)
    await rescue(db, worker)
    expect((await claim(db, await enter(db), [work.name], 1)).jobs.map((job) => job.id)).toEqual([id])
  })

  it('whose request reaches the store after its caller gave it up: each job is done once', async () => {
    const { proxy, direct, runs, work, done } = await behind()
    proxy.halfOpen()
    await direct.sendMany(work, numbered(50))
    const heldMs = systemClock.monotonicMs()
    await until(() => systemClock.monotonicMs() - heldMs > 11_000, 'the requests are given up')
    await proxy.pass()
    await done(52)
    expect(runs).toHaveLength(52)
    expect(await count(direct.db, 'sluice.done where ambiguous')).toBe(0)
  })
})
