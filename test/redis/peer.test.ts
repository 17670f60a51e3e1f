/** Limits that are shared in Redis, point by point: jobs and takes while Redis is well. */
import { randomUUID } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { numbered } from '../rows.ts'
import { Margins } from '../../src/claim/definitions/margins.ts'
import { hash64 } from '../../src/core/hash.ts'
import { type Limit, limit, rateLimited, type Sluice } from '../../src/index.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { attemptCalls } from '../claim/engine.ts'
import { roomOf } from '../limits/engine.ts'
import type { Owner } from '../fleet/children.ts'
import { until } from '../until.ts'
import { answering, counted, redisFor, slow } from './peer-stage.ts'

describe.concurrent('jobs with a limit in Redis', () => {
  it('take in Redis what they take in the store, and leave unused units to others', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, ({ settle }, n) => (n === 0 ? settle({ slow: 0 }) : undefined))
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    await sluice.sendMany(call, numbered(4))
    await until(() => ran.length === 4)
    await sluice.close()
    // One of the four reported that it had used nothing.
    expect(await other(10)).toBe(7)
  })

  it('wait for units that others used up, are explained, and go on', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const { sluice } = await open()
    const shared = limit('shared', { window: '10/4s', published: true })
    const { call, ran } = counted([shared])
    await sluice.work([call])
    const other = await foreigner(shared)
    expect(await other(10)).toBe(10)
    const id = await sluice.send(call as never, { n: 1 } as never)
    await until(async () => (await sluice.why(id))?.reasons.some(({ kind }) => kind === 'redis-used') === true)
    expect(ran).toEqual([])
    await until(() => ran.length === 1)
    const job = await sluice.waitFor(id)
    expect(job).toMatchObject({ state: 'done', attempt: 1, failed: 0 })
  })

  it('begin with those of other programs when an operator resets a limit that the vendor has refused', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const { sluice, store } = await open()
    const shared = limit('shared', { rate: '100/s', published: true })
    const { call, ran } = counted([shared], ({ attempt }) => {
      if (attempt === 1) throw rateLimited(3_600_000)
    })
    await sluice.work([call])
    const other = await foreigner(shared)
    const id = await sluice.send(call as never, { n: 1 } as never)
    await until(async () => (await sluice.jobs.get(id))?.state === 'scheduled', 'it is refused')
    await until(async () => (await other()) === 0, 'others are held, too')
    // As the command line does.
    const operator = await open(undefined, store)
    expect(await operator.sluice.limits.reset('shared')).toBe(1)
    await until(async () => (await other()) === 1, 'others go on')
    await until(() => ran.length === 1, 'the job goes on')
  })

  it('run soon after others gave back their units, however slowly the limit would drain', async (context) => {
    const { connect, open } = await redisFor(context)
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    const client = await connect()
    const limiter = new RedisLimiter(client)
    const bucket = { name: 'slow', rules: limits[0]?.rules ?? [], version: 1 }
    const id = randomUUID()
    await limiter.reserve({ id, buckets: [bucket], items: [{ want: 10, takes: [{ bucket: 0, units: 1 }] }] })
    const first = await sluice.send(call as never, { n: 1 } as never)
    await until(async () => (await sluice.why(first))?.reasons.some(({ kind }) => kind === 'redis-used') === true)
    // Not for long, because the limit was used up a moment ago.
    const [held] = await sluice.db.query<{ us: number }>(
      `select (hold - at)::float8 as us from sluice.ledger where cause = 'used' order by at limit 1`,
    )
    expect(held?.us).toBeLessThan(5_000_000)
    await limiter.settle({ id: randomUUID(), buckets: [bucket], acts: [{ bucket: 0, grant: id, isUnused: true }] })
    await sluice.sendMany(call, numbered(9))
    await until(() => ran.length === 10)
  })

  // By itself, because it replaces what all limits measure.
  it.sequential('are charged once more there and in the store for a request that may have arrived late', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const url = await answering(context, (response) => response.end('ok'))
    const { sluice } = await open()
    const limits = [slow(true)]
    let charged: Promise<void> | undefined
    const { call, ran } = counted(limits, async ({ fetch }) => (await fetch(url)).text())
    const way = vi.spyOn(Margins.prototype, 'measureWay')
    context.onTestFinished(() => way.mockRestore())
    way.mockImplementation((_, charge) => {
      const recordAnswer = () => (charged ??= charge?.(new Set(['slow'])))
      return { recordAnswer, overdueMs: () => undefined, recordOverdue: () => {} }
    })
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    await sluice.sendMany(call, numbered(1))
    await until(() => ran.length === 1)
    await charged
    const [room] = await sluice.db.query(`select avail from ${roomOf('array[$1::bigint]', 'null')}`, [hash64('slow')])
    expect(Number(room?.avail)).toBe(8)
    expect(await other(10)).toBe(8)
  })

  // By itself, because a grant that a busy machine receives too late is requested again.
  it.sequential('are not delayed by a limit that only counts places, and cause no needless requests for it', async (context) => {
    const { connect, open } = await redisFor(context)
    const asked: string[] = []
    let returned = 0
    const client = await connect()
    const { sluice } = await open({
      send: (command, args) => {
        const text = command.startsWith('EVAL') ? String(args.at(-1)) : ''
        if (text.includes('"items"')) asked.push(text)
        const { acts = [] } = (text === '' ? {} : JSON.parse(text)) as { acts?: object[] }
        // An act that names a grant and nothing else returns all of it.
        returned += acts.filter((act) => Object.keys(act).join() === 'bucket,grant').length
        return client.send(command, args)
      },
    })
    const { call, ran } = counted([limit('places', { concurrency: 3 }), limit('paced', { rate: '40/s' })])
    for (let n = 0; n < 8; n++) await sluice.work([call], { concurrency: 5 })
    await sluice.sendMany(call, numbered(80))
    await until(() => ran.length === 80)
    console.log(`${asked.length} calls to Redis for 80 jobs, of which ${returned} were granted again`)
    expect(asked.every((text) => (JSON.parse(text) as { buckets: unknown[] }).buckets.length === 1)).toBe(true)
    // All of the jobs used a limit that was saturated: a denial would be one more call. So is a grant that a busy machine
    // returns, because it is too old.
    expect(asked.length - returned).toBeLessThan(80 * 1.2)
  })

  it('make other processes wait when the vendor demands silence', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const url = await answering(context, (response) => response.writeHead(429, { 'retry-after': '3600' }).end())
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, ({ fetch }) => fetch(url).then(() => Promise.reject(new Error('no'))))
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    expect(await other()).toBe(1)
    await sluice.sendMany(call, numbered(1))
    await until(async () => (await other()) === 0)
    expect(ran).toEqual([])
  })

  it('follow a definition that is changed while everything runs', async (context) => {
    const { open } = await redisFor(context)
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits)
    await sluice.work([call])
    await sluice.sendMany(call, numbered(12))
    await until(() => ran.length === 10)
    await sluice.limits.set('slow', { burst: 20 }, { reason: 'more' })
    await until(() => ran.length === 12)
  })

  it('take further grants for further requests', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const url = await answering(context, (response) => response.end('ok'))
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits, async ({ fetch }) => {
      for (let n = 0; n < 3; n++) await (await fetch(url)).text()
    })
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    await sluice.sendMany(call, numbered(1))
    await until(() => ran.length === 1)
    expect(await other(10)).toBe(7)
  })
})

describe('takes outside of jobs', () => {
  it('take in Redis too, are denied units that others used up, and give units back', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const { sluice } = await open()
    const all = slow(true)
    const first = await sluice.takes.take(all)
    const other = await foreigner(all)
    expect(await other(7)).toBe(7)
    await first.giveBack()
    await until(async () => (await other(1)) === 1)
    await sluice.takes.take(all)
    await sluice.takes.take(all)
    const denied = await sluice.takes.tryTake(all)
    expect(denied.granted).toBe(false)
    expect(denied.retryAfterMs).toBeGreaterThan(1_000)
    await expect(sluice.takes.take(all, { maxWaitMs: 100 })).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
  })

  /** Whether a key gets a unit now; on a busy machine Redis may count as away, and what it answers too late is lost. */
  const takes = async ({ takes: its }: Sluice, of: Limit, key: string) =>
    (await its.tryTake(of, { key }).catch(() => ({ granted: false }))).granted

  it('take by the numbers of their key, also in the epoch that follows a loss', async (context) => {
    const { connect, open } = await redisFor(context)
    const { sluice } = await open()
    const keyed = limit('keyed', { window: '10/h', by: 'k' }) as unknown as Limit
    const granted = new Map([
      ['a', 0],
      ['b', 0],
    ])
    const of = (key: string) => granted.get(key) ?? 0
    const take = async (key: string) => {
      if (await takes(sluice, keyed, key)) granted.set(key, of(key) + 1)
    }
    const reach = (key: string, least: number) =>
      until(async () => {
        await take(key)
        return of(key) >= least
      }, `${least} units of ${key}`)
    const set = (units: number) =>
      sluice.limits.set('keyed', { window: `${units}/h` }, { key: 'a', reason: 'a contract' })
    const client = await connect()
    const isIn = async (key: string) => Number(await client.send('EXISTS', [`sluice:{limits}:b:keyed:${key}`])) === 1
    await reach('b', 3)
    await set(30)
    await reach('a', 11)
    await client.send('FLUSHALL', [])
    await until(() => isIn('a'), 'the next epoch has the key')
    await set(90)
    await reach('a', 31)
    await sluice.limits.unset('keyed', { key: 'a' })
    const used = of('a')
    for (let n = 0; n < 10; n++) await Promise.all([take('a'), take('b'), take('b')])
    expect(of('a')).toBe(used)
    expect(of('b')).toBeLessThanOrEqual(10)
  })

  it('take by the numbers of all keys there once other programs take from the limit', async (context) => {
    const { redis, connect, open } = await redisFor(context)
    const { sluice, store } = await open()
    const keyed = (published: boolean) => limit('keyed', { window: '2/h', by: 'k', published }) as unknown as Limit
    await until(() => takes(sluice, keyed(false), 'a'))
    const set = (of: Sluice) => of.limits.set('keyed', { window: '5/h' }, { key: 'a', reason: 'a contract' })
    await set(sluice)
    await sluice.close()
    const { sluice: later } = await open(redis.url, store)
    await until(() => takes(later, keyed(true), 'a'))
    expect(await takes(later, keyed(true), 'a')).toBe(false)
    await expect(set(later)).rejects.toMatchObject({ message: expect.stringContaining('published in Redis') })
    const client = await connect()
    await client.send('FLUSHALL', [])
    await until(async () => Number(await client.send('EXISTS', ['sluice:{limits}:epoch'])) === 1, 'an epoch begins')
  })

  it('are refused while Redis is away, unless the limit is open', async (context) => {
    const { open, redis } = await redisFor(context)
    const { sluice } = await open()
    const closed = slow(false)
    const isOpen = limit('open', { rate: '10/h', burst: 10, onStoreError: 'open' })
    await sluice.takes.take(closed)
    await redis.kill()
    await until(async () => {
      const error: unknown = await sluice.takes.tryTake(closed).catch((told: unknown) => told)
      return (error as { code?: string }).code === 'SLUICE_REDIS_UNREACHABLE'
    })
    for (let n = 0; n < 10; n++) await sluice.takes.take(isOpen)
    // The store goes on counting.
    expect((await sluice.takes.tryTake(isOpen)).granted).toBe(false)
  })
})

describe('jobs that are sent alone', () => {
  it('are claimed where they are sent, and begin when Redis has confirmed them', async (context) => {
    const { foreigner, open } = await redisFor(context)
    const { sluice } = await open()
    const limits = [slow(true)]
    const { call, ran } = counted(limits)
    let claims = 0
    let begun = 0
    const { call: toStore } = sluice.db
    sluice.db.call = async (name, ...rest) => {
      const rows = await toStore.call(sluice.db, name, ...rest)
      if (name === attemptCalls.claim) claims += ((rows[0] as { jobs: string | null }).jobs ?? '') === '' ? 0 : 1
      if (name === attemptCalls.sendAndClaim) begun += (rows[0] as { jobs: string | null }).jobs === null ? 0 : 1
      return rows as never
    }
    await sluice.work([call])
    const other = await foreigner(limits[0] as Limit)
    for (let n = 0; begun < 2; n++) {
      await sluice.send(call as never, { n } as never)
      await until(() => ran.length === n + 1)
    }
    expect(await other(10 - ran.length)).toBe(10 - ran.length)
    expect(claims).toBe(ran.length - begun)
  })
})

describe('jobs behind a saturated rate', () => {
  /** A worker under 100/s with its own eyes on Redis: `ahead` has how many jobs of each call are wanted for later. */
  async function saturated(test: Owner, published: boolean) {
    const { connect, foreigner, open } = await redisFor(test)
    const ahead: number[] = []
    const client = await connect()
    const { sluice } = await open({
      send: (command, args) => {
        const text = command.startsWith('EVAL') ? String(args.at(-1)) : ''
        const { items = [] } = (text === '' ? {} : JSON.parse(text)) as { items?: { after: number }[] }
        if (items.length > 0) ahead.push(items.filter(({ after }) => after > 0).length)
        return client.send(command, args)
      },
    })
    const limits = [limit('paced', { rate: '100/s', published })]
    const { call, ran } = counted(limits)
    await sluice.work([call], { concurrency: 20 })
    await sluice.sendMany(call, numbered(500))
    return { sluice, limits, ahead, ran, foreigner }
  }

  it('are requested ahead of time, many in one call, and a pause calls them back', async (context) => {
    const { sluice, ahead, ran } = await saturated(context, false)
    await until(() => ahead.some((count) => count >= 5))
    const before = ran.length
    await until(() => ran.length >= before + 20)
    await sluice.pause({ limit: 'paced' }, { reason: 'audit' })
    await until(async () => (await sluice.db.query('select 1 from sluice.job where claim is not null')).length === 0)
    const paused = ran.length
    await sluice.resume({ limit: 'paced' })
    await until(() => ran.length > paused)
    expect(new Set(ran).size).toBe(ran.length)
  })

  it('give other programs their turn, for which the store stops to grant ahead', async (context) => {
    const { limits, ahead, foreigner } = await saturated(context, true)
    const other = await foreigner(limits[0] as Limit)
    await until(() => ahead.some((count) => count >= 5))
    let turns = 0
    await until(async () => (turns += (await other()) === 1 ? 1 : 0) >= 10)
    const calls = ahead.length
    await until(async () => (await other()) !== undefined && ahead.length >= calls + 5)
    expect(ahead.slice(calls)).toEqual(ahead.slice(calls).map(() => 0))
  })
})
