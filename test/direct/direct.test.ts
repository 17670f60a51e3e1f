/** Workers without a store execute what a real producer of Celery sends, under limits in Redis. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type AnyTask, check, fail, label, limit, type Rate, snooze, task } from '../../src/index.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { startProducer } from '../absorb/stage.ts'
import { findPython } from '../examples/interpreter.ts'
import { Caller } from '../redis/caller.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'
import { until } from '../until.ts'
import { type DirectHost, kinds, startHost } from './brokers.ts'
import { direct, mostIn, startVendor } from './stage.ts'

const anything = z.unknown()
const total = z.array(z.number())
const soon = { base: 1, max: 1 } as const
describe.each(kinds)('over %s', (kind) => {
  let host: DirectHost
  let redis: RedisServer
  let producer: Awaited<ReturnType<typeof startProducer>>
  let places: { celeryBroker: string; redis: string }

  beforeAll(async () => {
    ;[host, redis] = await Promise.all([startHost(kind), startRedis()])
    producer = await startProducer(host.url, host.backend)
    places = { celeryBroker: host.url, redis: redis.url }
  })
  afterAll(async () => {
    producer.close()
    await Promise.all([redis.close(), host.close()])
  })

  describe('a task that Python sends, without a store', () => {
    it('is executed, and its result goes back; what follows it is sent', async (context) => {
      const calls: unknown[] = []
      const add = task('add', { input: total, run: (input) => input.reduce((sum, one) => sum + one, 0) })
      const note = task('note', { input: anything, run: (input) => void calls.push(input) })
      await direct(context, [add, note], { ...places, routes: { 'shop.*': 'elsewhere' } })
      const follower = task('shop.total', { input: anything, run: (input) => ({ input }) })
      await direct(context, [follower], { ...places, celery: ['elsewhere'] })
      expect(await producer.result(await producer.send('add', [2, 3]))).toEqual(['SUCCESS', 5])
      const chain = [
        ['add', [1, 2], {}],
        ['add', [10], {}],
      ]
      expect(await producer.result(await producer.ask('send_chain', { tasks: chain }))).toEqual(['SUCCESS', 13])
      const routed = await producer.ask('send_chain', { tasks: [chain[0], ['shop.total', [], {}]] })
      expect(await producer.result(routed as string)).toEqual(['SUCCESS', { input: [3] }])
      await producer.send('add', [4, 4], { link: 'note' })
      // Protocol 1 has all of it in the body.
      const body = JSON.stringify({ id: 'first', task: 'note', args: [1], kwargs: {}, retries: 0, eta: null })
      await producer.ask('raw', { body, content_type: 'application/json', headers: {} })
      await until(() => calls.length === 2, 'both have run')
      expect(calls).toEqual(expect.arrayContaining([[8], [1]]))
    })

    it('is repeated with backoff, and then fails: with its error, what follows an error, onFailed, and a place aside', async (context) => {
      const attempts: number[] = []
      const calls: unknown[] = []
      const note = task('note', { input: anything, run: (input) => void calls.push(input) })
      const flaky = task('flaky', {
        input: anything,
        retry: { attempts: 3, ...soon },
        run: (_, { attempt }) => {
          attempts.push(attempt)
          throw new RangeError('boom')
        },
        onFailed: ({ reason, attempt, error }) => void calls.push({ reason, attempt, error: error?.message }),
      })
      const refuse = task('refuse', {
        input: anything,
        run: () => {
          throw fail('no such customer')
        },
      })
      await direct(context, [flaky, note, refuse], { ...places, park: true })
      const id = await producer.send('flaky', [7], { link_error: 'note' })
      expect(await producer.result(id)).toEqual(['FAILURE', ['RangeError', 'boom']])
      await until(() => calls.length === 2, 'both have run')
      expect(attempts).toEqual([1, 2, 3])
      expect(calls).toEqual(expect.arrayContaining([[id], { reason: 'exhausted', attempt: 3, error: 'boom' }]))
      expect((await producer.result(await producer.send('refuse')))[0]).toBe('FAILURE')
      await until(async () => (await host.depth('celery.parked')) === 2, 'both are put aside')
      const parked = await host.drain('celery.parked')
      expect(parked.map(({ headers }) => headers['task'])).toEqual(['flaky', 'refuse'])
      expect(String(parked[0]?.headers['x-sluice-reason'])).toContain('exhausted')
      expect(parked[0]?.headers['x-death']).toBeUndefined()
    })

    it('is put aside when it cannot be carried out, and its producer learns why', async (context) => {
      await direct(context, [task('add', { input: total, run: () => 0 })], places)
      const unknown = await producer.result(await producer.send('nobody', [1]))
      expect(unknown).toEqual(['FAILURE', ['NotRegistered', 'nobody']])
      await producer.ask('raw', {
        body: 'no json',
        content_type: 'application/json',
        headers: { task: 'add', id: 'x' },
      })
      await until(async () => (await host.drain('celery.parked')).length > 0, 'it is parked')
      // An input that the schema refuses is no attempt that could succeed.
      expect((await producer.result(await producer.send('add', ['text'])))[0]).toBe('FAILURE')
    })

    it('waits for its eta on the broker, is revoked before it begins and while it runs, and when it has expired', async (context) => {
      const seen: string[] = []
      const add = task('add', { input: total, run: (input) => (seen.push('add'), input[0]) })
      const wait = task('wait', {
        input: anything,
        run: async (_, { signal }) => {
          seen.push('begun')
          await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
        },
      })
      const worker = await direct(context, [add, wait], places)
      const sinceMs = Date.now()
      const later = await producer.send('add', [1], { countdown: 0.6 })
      const revoked = await producer.send('add', [2], { countdown: 1 })
      await until(() => worker.counts.delivered >= 2 && worker.running === 0, 'both wait on the broker')
      await producer.ask('revoke', { id: revoked })
      expect(await producer.result(later)).toEqual(['SUCCESS', 1])
      expect(Date.now() - sinceMs).toBeGreaterThanOrEqual(600)
      expect(await producer.result(revoked)).toEqual(['REVOKED', ['TaskRevokedError', 'revoked']])
      const long = await producer.send('wait')
      await until(() => seen.includes('begun'), 'it has begun')
      await producer.ask('revoke', { id: long, terminate: true })
      expect(await producer.result(long)).toEqual(['REVOKED', ['TaskRevokedError', 'terminated']])
      const dead = await producer.send('add', [3], { countdown: 3_600, expires: 5 })
      expect(await producer.result(dead)).toEqual(['REVOKED', ['TaskRevokedError', 'expired']])
      expect(seen).toEqual(['add', 'begun'])
    })

    it('is seen by its producer and by `celery inspect`: what runs, what waits, STARTED, RETRY and events', async (context) => {
      let release = () => {}
      const released = new Promise<void>((resolve) => (release = resolve))
      const wait = task('wait', { input: anything, run: () => released })
      const second = task('second', {
        input: anything,
        retry: { attempts: 3, ...soon },
        run: (_, { attempt }) => {
          if (attempt === 1) throw new RangeError('boom')
        },
      })
      const worker = await direct(context, [wait, second], { ...places, trackStarted: true, concurrency: 2 })
      await producer.ask('watch')
      const retried = await producer.ask<[string, unknown][]>('states', { id: await producer.send('second', [1]) })
      expect(retried.map(([state]) => state)).toEqual(['STARTED', 'RETRY', 'STARTED', 'SUCCESS'])
      const id = await producer.send('wait', [7])
      await until(() => worker.running === 1, 'it runs')
      const ask = async (method: string) => {
        const all = await producer.ask<Record<string, { id: string }[]>>('inspect', { method })
        return Object.values(all).flat()
      }
      const active = { id, name: 'wait', args: '(7,)', acknowledged: false, worker_pid: process.pid }
      expect(await ask('active')).toEqual([expect.objectContaining(active)])
      expect(await ask('reserved')).toEqual([])
      release()
      expect((await producer.result(id))[0]).toBe('SUCCESS')
      const types = async () =>
        (await producer.ask<{ events: { type: string }[] }>('seen', { id })).events.map(({ type }) => type)
      await until(async () => (await types()).includes('task-succeeded'), 'its end is seen')
      expect(await types()).toEqual(['task-received', 'task-started', 'task-succeeded'])
    })

    it('ends at the time limit of its message', async (context) => {
      const wait = task('wait', {
        input: anything,
        run: (_, { signal }) => new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve())),
      })
      await direct(context, [wait], places)
      const id = await producer.send('wait', [], { time_limit: 0.3 })
      expect((await producer.result(id))[0]).toBe('FAILURE')
    })

    it('may be put off by its handler, which is no retry', async (context) => {
      const attempts: number[] = []
      const nap = task('nap', {
        input: anything,
        run: (_, { attempt }) => {
          attempts.push(attempt)
          if (attempts.length < 3) throw snooze('100ms')
          return 'rested'
        },
      })
      await direct(context, [nap], places)
      expect(await producer.result(await producer.send('nap'))).toEqual(['SUCCESS', 'rested'])
      expect(attempts).toEqual([1, 1, 1])
    })
  })

  describe('a limit without a store', () => {
    const limited = (url: string, name: string, given: { rate: Rate } | { window: Rate }): AnyTask =>
      task(`call.${name}`, {
        input: total,
        limits: [limit(name, given)],
        run: async ([n], { fetch, attempt }) => void (await check(await fetch(`${url}/${n}/${attempt}`))),
      })

    async function vendorFor({ onTestFinished }: { onTestFinished(end: () => unknown): void }) {
      const vendor = await startVendor()
      onTestFinished(() => vendor.close())
      return vendor
    }

    it('is never exceeded; what it denies waits on the broker, and counts no attempt', async (context) => {
      const vendor = await vendorFor(context)
      const call = limited(vendor.url, 'plain', { rate: '20/s' })
      const worker = await direct(context, [call], places)
      await producer.ask('many', { task: call.name, n: 40 })
      await until(() => new Set(vendor.paths).size === 40, 'all were called', 30_000)
      expect(mostIn(vendor.arrivals, 1_000)).toBeLessThanOrEqual(20)
      expect(vendor.paths.every((path) => path.endsWith('/1'))).toBe(true)
      expect(worker.counts.denied).toBeGreaterThan(20)
      await until(() => worker.running === 0, 'nothing is in hand')
    })

    it('is closed when its epoch begins, for as long as it looks back', async (context) => {
      const vendor = await vendorFor(context)
      const own = await startRedis()
      context.onTestFinished(() => own.close())
      const call = limited(vendor.url, 'closed', { rate: '100/s' })
      const sinceMs = performance.now()
      await direct(context, [call], { ...places, redis: own.url })
      await producer.send(call.name, [1])
      await until(() => vendor.arrivals.length === 1, 'it was called', 10_000)
      expect((vendor.arrivals[0] ?? 0) - sinceMs).toBeGreaterThan(1_000)
    })

    it('of a key under which another program has written grants nothing, and others go on', async (context) => {
      const ran: number[] = []
      const errors: string[] = []
      const foreign = limit('foreign', { rate: '100/s', by: ([n]: number[]) => n ?? 0 })
      const noted = task('noted', { input: total, limits: [foreign], run: ([n = 0]) => void ran.push(n) })
      const client = await connectRedis(redis.port)
      context.onTestFinished(() => client.close())
      const key = 'sluice:{limits}:b:foreign:1'
      await client.send('SET', [key, 'mine'])
      const error = (text: string, about?: object) => void errors.push(`${text} ${JSON.stringify(about)}`)
      await direct(context, [noted], { ...places, celery: ['keys'], log: { debug() {}, info() {}, warn() {}, error } })
      for (const n of [1, 0, 1, 2]) await producer.send('noted', [n], { queue: 'keys' })
      await until(() => ran.length === 2 && errors.length > 0, 'the others have run, and it is logged')
      expect(new Set(ran)).toEqual(new Set([0, 2]))
      expect(errors).toEqual([expect.stringContaining(key)])
    })

    it('holds for further requests, and is held when the vendor refuses', async (context) => {
      const vendor = await vendorFor(context)
      const crm = limit('further', { rate: '10/s' })
      const many = task('many', {
        input: anything,
        limits: [crm],
        run: async (_, { fetch }) => {
          for (let n = 0; n < 4; n++) await check(await fetch(`${vendor.url}/${n}`))
        },
      })
      await direct(context, [many], places)
      const all = await Promise.all([1, 2, 3].map((n) => producer.send('many', [n])))
      for (const id of all) expect(await producer.result(id)).toEqual(['SUCCESS', null])
      expect(vendor.arrivals).toHaveLength(12)
      expect(mostIn(vendor.arrivals, 1_000)).toBeLessThanOrEqual(10)
      vendor.refusals = 1
      const from = performance.now()
      expect(await producer.result(await producer.send('many', [4]))).toEqual(['SUCCESS', null])
      expect(performance.now() - from).toBeGreaterThanOrEqual(1_000)
    })

    it('counts places over all workers', async (context) => {
      let [running, most] = [0, 0]
      const own = await startRedis()
      context.onTestFinished(() => own.close())
      // Places are closed for a minute after a loss, since nobody knows what still runs; here nothing does.
      const { Redis } = await import('ioredis')
      const client = new Redis(own.url)
      const limiter = new RedisLimiter({ send: (command, args) => client.call(command, ...args) })
      await limiter.begin({ epoch: 'first', owner: 'direct', closeUs: 0 })
      client.disconnect()
      const export_ = task('export', {
        input: anything,
        limits: [limit('places', { concurrency: 2, by: label('team') })],
        run: async () => {
          most = Math.max(most, ++running)
          const until100 = performance.now() + 100
          await until(() => performance.now() > until100, 'it has run for a while')
          running--
        },
      })
      const options = { ...places, redis: own.url, labels: { team: 'a' } }
      const workers = [await direct(context, [export_], options), await direct(context, [export_], options)]
      await producer.ask('many', { task: 'export', n: 12 })
      const done = () => workers.reduce((sum, { counts }) => sum + counts.done, 0)
      await until(() => done() === 12, 'all have run', 30_000)
      expect(most).toBe(2)
    })

    it('is shared with Python, by the definition that the worker publishes', async (context) => {
      const vendor = await vendorFor(context)
      const call = limited(vendor.url, 'shared', { window: '8/s' })
      const python = new Caller(await findPython('redis'), redis.url, 'sluice:', 'limits')
      context.onTestFinished(() => python.end())
      await direct(context, [call], places)
      // It takes a second to start.
      await python.ask('reserve', [['unknown']])
      await producer.send(call.name, [1])
      await until(() => vendor.arrivals.length === 1, 'the limit has opened', 10_000)
      let taken = 0
      while ((await python.ask('reserve', [['shared']])).error === undefined) taken++
      // Node has one of the eight, which is the first to leave the window.
      expect(taken).toBe(7)
      await producer.send(call.name, [2])
      await until(() => vendor.arrivals.length === 2, 'it was called', 10_000)
      expect((vendor.arrivals[1] ?? 0) - (vendor.arrivals[0] ?? 0)).toBeGreaterThan(1_000)
    })
  })

  describe('a worker without a store', () => {
    const plain = task('plain', { input: anything, run: () => 0 })

    it('has no more messages in hand than it has slots, and each until it has ended', async (context) => {
      let release = () => {}
      const released = new Promise<void>((resolve) => (release = resolve))
      const wait = task('held', { input: anything, run: () => released })
      const worker = await direct(context, [wait], {
        celeryBroker: places.celeryBroker,
        redis: '',
        celery: ['many'],
        concurrency: 10,
      })
      for (let n = 0; n < 30; n++) await producer.send('held', [n], { queue: 'many' })
      await until(() => worker.running === 10, 'all slots are taken')
      await expect.poll(() => host.depth('many')).toBe(20)
      expect(worker.counts.delivered).toBe(10)
      release()
      await until(() => worker.counts.done === 30, 'all have run')
    })

    it('needs no Redis without limits', async (context) => {
      await direct(context, [plain], { celeryBroker: places.celeryBroker, redis: '' })
      expect(await producer.result(await producer.send('plain'))).toEqual(['SUCCESS', 0])
    })
  })
})
