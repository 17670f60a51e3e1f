/** Workers without a store, over a real RabbitMQ: a dispatcher runs the statements that their attempts need. */
import { beforeAll, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { closedError } from '../../src/core/errors.ts'
import { version } from '../../src/core/version.ts'
import type { Queryable } from '../../src/db/db.ts'
import { event, limit, type SluiceOptions, task, type Work, workInFleet, type FleetOptions } from '../../src/index.ts'
import { BorrowedStore } from '../../src/outlet/borrowed-store.ts'
import { Lender } from '../../src/outlet/lending.ts'
import type { StatementResult, ToRun } from '../../src/outlet/messages.ts'
import { createOpeningReader } from '../../src/gates/gates.ts'
import { defineShareBuckets } from '../../src/claim/definitions/define.ts'
import { marginsOf } from '../../src/claim/definitions/margins.ts'
import { Acquirer } from '../../src/takes/acquire.ts'
import { newId } from '../../src/core/hash.ts'
import { parkBuckets, parkingOn } from '../../src/claim/parking/parked.ts'
import type { Limit } from '../../src/limits/limit.ts'
import { Estimates } from '../../src/tasks/estimate.ts'
import { silent } from '../../src/core/log.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { type Sql, sqlOn, storeOn } from '../../src/db/store.ts'
import { Report } from '../../src/report/report.ts'
import { Sluice } from '../../src/sluice.ts'
import { vendor, type VendorOptions } from '../../src/testing/vendor.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { checkOnce, createFleet, note } from './processes.ts'

let broker: Broker
let store: string
beforeAll(async () => {
  const [host, database] = await Promise.all([freshBroker(), freshDatabase()])
  broker = host
  store = database.url
})

const input = z.object({ url: z.string().optional() })
type Ends = Pick<TestContext, 'onTestFinished'>

/** Opens a dispatcher and a worker without a store for these tasks; each test has its own queue, and so its own fleet. */
async function openFleet(work: Work[], { onTestFinished }: Ends, options: SluiceOptions & { queue: string }) {
  const { queue, ...own } = options
  const sluice = await Sluice.open({ store, amqp: broker.url, ...own })
  onTestFinished(() => sluice.close())
  await join(work, { onTestFinished }, { queues: [queue] })
  await sluice.dispatch(work, { queues: [queue] })
  return sluice
}

async function join(work: Work[], { onTestFinished }: Ends, options: FleetOptions) {
  const worker = await workInFleet(work, { amqp: broker.url, ...options })
  onTestFinished(() => worker.stop())
  return worker
}

async function openVendor(rules: VendorOptions['rules'], { onTestFinished }: Ends) {
  const api = vendor({ rules })
  const url = await api.listen()
  onTestFinished(() => api.close())
  return { api, url }
}

/** A log whose lines are kept. */
function keeping() {
  const lines: string[] = []
  const keep = (text: string) => void lines.push(text)
  return { lines, log: { debug() {}, info: keep, warn: keep, error: keep } }
}

/** A dispatcher's lender on this SQL, whose results are read. */
function lenderOf(sql: Sql, clock = systemClock) {
  const lender = new Lender({ sql, clock, from: 'a' })
  return { lend: async (statement: ToRun) => JSON.parse((await lender.lend(statement)) ?? 'null') as StatementResult }
}

it.concurrent('its attempts take further grants, and nothing is exceeded at the vendor', async (context) => {
  const limits = [limit('further', { rate: '12/4s' })]
  const run = async ({ url = '' }, { fetch }: { fetch: typeof globalThis.fetch }) => {
    await fetch(url, { method: 'POST' })
    await fetch(url, { method: 'POST' })
  }
  const twice = task('twice', { input, queue: 'further', limits, allowPrivate: ['127.0.0.1'], run })
  const { api, url } = await openVendor([{ algorithm: 'sliding log', limit: 12, windowMs: 4_000 }], context)
  const sluice = await openFleet([twice], context, { queue: 'further' })
  const ids = await sluice.sendMany(twice, copies(10, { url }))
  for (const id of ids) await sluice.waitFor(id, { timeout: '60s' })
  const { vendor429, rules } = api.report()
  expect({ vendor429, exceeded: rules[0]?.exceeded, calls: api.arrivals().length }).toEqual({
    vendor429: 0,
    exceeded: 0,
    calls: 20,
  })
  expect(await sluice.verify({ limit: 'further' })).toMatchObject({ exceeded: [] })
})

it.concurrent('its attempts settle, report progress while they run, and hold a limit that the vendor refuses', async (context) => {
  let goOn = () => {}
  const wait = new Promise<void>((resolve) => (goOn = resolve))
  const tokens = limit('tokens', { window: '1000/h' })
  const spend = task('spend', {
    queue: 'settle',
    input: z.object({ most: z.number() }),
    limits: [{ limit: tokens, cost: 'most' }],
    async run(_, { progress, log, settle }) {
      progress(1, 4)
      log.info('a quarter is done')
      await wait
      await settle({ tokens: 40 })
      return 'spent'
    },
  })
  const refusing = limit('refusing', { window: '5/h' })
  const call = task('refused', {
    queue: 'settle',
    limits: [refusing],
    retry: { attempts: 1 },
    run: (_, { limits }) => limits.refused({ retryAfterMs: 60_000 }),
  })
  const sluice = await openFleet([spend, call], context, { queue: 'settle' })
  const spent = await sluice.send(spend, { most: 100 })
  await until(async () => (await sluice.jobs.get(spent))?.progress !== null, 'its progress is seen')
  const seen = await sluice.jobs.get(spent)
  expect(seen).toMatchObject({ state: 'running', progress: { done: 1, total: 4 } })
  goOn()
  expect(await sluice.waitFor(spent)).toMatchObject({ result: 'spent' })
  const [attempt] = (await sluice.jobs.get(spent))?.attempts ?? []
  expect(attempt?.units).toEqual([{ limit: 'tokens', charged: 100, settled: 40 }])
  await sluice.send(call, undefined)
  await until(async () => (await sluice.limits.list()).some(({ refusals }) => refusals.length > 0), 'the limit is held')
})

it.concurrent('joins the fleet of one store and of its own release', async (context) => {
  const queue = 'two'
  const ran: string[] = []
  const one = task('one', { queue, input: z.string(), run: (name) => void ran.push(name) })
  const open = async (at: string) => {
    const sluice = await Sluice.open({ store: at, amqp: broker.url })
    context.onTestFinished(() => sluice.close())
    return sluice
  }
  const [first, second] = await Promise.all([open(store), open((await freshDatabase()).url)])
  await first.dispatch([one], { queues: [queue] })
  const { lines, log } = keeping()
  const worker = await join([one], context, { queues: [queue], log })
  await until(() => worker.isAttached, 'the first store has it')
  await second.send(one, 'of the second store')
  const other = await second.dispatch([one], { queues: [queue] })
  const id = await first.send(one, 'of the first store')
  await first.waitFor(id)
  // Without a dispatcher it looks for another one, and finds that of the second store.
  await first.close()
  await until(() => lines.some((line) => line.includes('dispatchers of two stores')), 'it refuses the second store')
  expect({ ran, slots: other.slots }).toEqual({ ran: ['of the first store'], slots: 0 })

  const report = new Report(systemClock, log)
  const borrowed = new BorrowedStore({ schema: 'sluice', clock: systemClock, report })
  const offer = { type: 'offer', from: 'a', store: 's' } as const
  expect(borrowed.accepts({ ...offer, version: '0.0.0-other' })).toBe(false)
  expect(borrowed.accepts({ ...offer, version })).toBe(true)
  expect(lines.filter((line) => line.includes('another release'))).toHaveLength(1)
})

it.concurrent('goes on with another dispatcher, which then takes its further grants', async (context) => {
  const queue = 'heirs'
  let goOn = () => {}
  const wait = new Promise<void>((resolve) => (goOn = resolve))
  let hasBegun = false
  const { api, url } = await openVendor([{ algorithm: 'concurrency', limit: 10 }], context)
  const long = task('long', {
    input,
    queue,
    limits: [limit('long', { rate: '100/s' })],
    allowPrivate: ['127.0.0.1'],
    timeout: '5min',
    async run({ url: to = '' }, { fetch }) {
      hasBegun = true
      await fetch(to)
      await wait
      await fetch(to)
    },
  })
  const sluice = await openFleet([long], context, { queue })
  const id = await sluice.send(long, { url })
  await until(() => hasBegun, 'it began')
  const next = await Sluice.open({ store, amqp: broker.url })
  context.onTestFinished(() => next.close())
  await next.dispatch([long], { queues: [queue] })
  const ended = sluice.close()
  goOn()
  expect(await next.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done', attempt: 1 })
  expect(api.arrivals().length).toBe(2)
  await ended
})

it.concurrent('with limits in Redis it makes the first request of an attempt, and no other', async (context) => {
  const redis = await startRedis()
  context.onTestFinished(() => redis.close())
  const queue = 'redis'
  const { api, url } = await openVendor([{ algorithm: 'concurrency', limit: 10 }], context)
  const shared = [limit('shared', { rate: '100/s' })]
  const how = { input, queue, limits: shared, allowPrivate: ['127.0.0.1'], retry: { attempts: 1 } }
  let calls = 0
  const once = task('once-only', {
    ...how,
    async run({ url: to = '' }, { fetch }) {
      const sinceMs = performance.now()
      // The first time, until its grant has run out: then the job goes back uncalled.
      if (calls++ === 0) await until(() => performance.now() > sinceMs + 1_500)
      await fetch(to)
    },
  })
  const again = task('again', {
    ...how,
    async run({ url: to = '' }, { fetch }) {
      await fetch(to)
      await fetch(to)
    },
  })
  const own = (await freshDatabase()).url
  const sluice = await openFleet([once, again], context, { queue, store: own, redis: redis.url, redisPrefix: 'fleet:' })
  expect(await sluice.waitFor(await sluice.send(once, { url }), { timeout: '30s' })).toMatchObject({
    state: 'done',
    attempt: 1,
  })
  const failed = await sluice.waitFor(await sluice.send(again, { url }), { timeout: '30s' })
  expect(failed).toMatchObject({ state: 'failed', error: { code: 'SLUICE_NO_REDIS' } })
  expect({ arrivals: api.arrivals().length, again: calls > 1 }).toEqual({ arrivals: 2, again: true })
})

it.concurrent('its jobs run again, marked as in doubt, when it is killed', async (context) => {
  const fleet = await createFleet(broker.url, context)
  await fleet.start('dispatch')
  const first = await fleet.start('join')
  await fleet.sluice.sendMany(note, copies(2, { gate: fleet.gate }))
  await until(() => fleet.runs.length === 2, 'both began')
  await fleet.start('join')
  first.kill('SIGKILL')
  await fleet.sluice.sendMany(note, copies(20))
  await fleet.areDone(22)
  checkOnce(fleet.runs)
  // What was on its way to it is in doubt, too, but did not begin.
  const held = fleet.runs.slice(0, 2).map(({ id }) => id)
  expect(fleet.runs.filter(({ id, ambiguous }) => ambiguous && held.includes(id))).toHaveLength(2)
})

it('refuses what needs a store', async () => {
  const { lines, log } = keeping()
  const happened = event('something.happened', z.object({}))
  const work: Work[] = [happened.on(async () => {}, { name: 'note' })]
  await expect(workInFleet(work, { amqp: broker.url, log })).rejects.toMatchObject({ code: 'SLUICE_NEEDS_STORE' })
  const borrowed = new BorrowedStore({ schema: 'sluice', clock: systemClock, report: new Report(systemClock, log) })
  const needs = { code: 'SLUICE_NEEDS_STORE' }
  await expect(borrowed.store.query('select 1')).rejects.toMatchObject(needs)
  const away = { code: 'SLUICE_STORE_UNREACHABLE' }
  await expect(parkingOn(borrowed.store).parked()).rejects.toMatchObject(away)
  const lender = lenderOf(borrowed.store)
  expect(await lender.lend({ id: 'a', name: 'anything', args: [] })).toMatchObject({ id: 'a', error: needs })
  expect(lines).toEqual([])
})

it('a dispatcher runs each statement that an attempt may need', async ({ onTestFinished }) => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  const lender = lenderOf(storeOn(sluice.db))
  const report = new Report(systemClock, silent)
  const borrowed = new BorrowedStore({ schema: 'sluice', clock: systemClock, report })
  const results: [name: string, code: string | undefined][] = []
  borrowed.connect(async (statement) => {
    const sent = JSON.parse(JSON.stringify(statement)) as typeof statement
    const result = await lender.lend(sent)
    results.push([statement.name, result.error?.code])
    borrowed.receive(result)
  })
  const { store: far } = borrowed
  const half = limit('half', { rate: '100/min', shares: { part: 0.5 } })
  const halves = task('halves', { input: z.any(), limits: [{ limit: half, cost: 'n', learn: true }], run() {} })
  const { limits } = halves
  await sluice.define([halves])
  const margins = marginsOf(far)
  await margins.join(limits)
  margins.applyStatedMargin(limits)
  await defineShareBuckets(far, 'half')
  const estimates = new Estimates(far)
  estimates.recordUse('halves', limits[0] as Limit, { n: 2 }, 1)
  await estimates.write()
  await estimates.of(halves)
  const acquirer = new Acquirer(far, new StoreClock(), undefined)
  const buckets = ['half']
  await acquirer.request({ pending: { id: newId() }, buckets, units: [1], back: undefined })
  await acquirer.chargeAgain(buckets, [1], new Set(buckets))
  const of = { buckets, limits: [{ name: 'half', circuit: 1, currency: undefined }] }
  const bad = { cause: 'down', answer: '503', retryAfterMs: undefined } as const
  await acquirer.recordRefusal({ ...of, requestedAt: undefined, who: 'a', isTrial: false }, bad)
  await acquirer.recordAccepted(of, undefined)
  await parkBuckets(far, buckets)
  const read = createOpeningReader(far)
  expect(await read({ fromMin: 0, toMin: 1_440, days: null, zone: 'UTC' })).toBeUndefined()
  expect(results.filter(([, code]) => code !== undefined)).toEqual([])
  expect(results.length).toBeGreaterThan(10)
  expect(results.map(([name]) => name)).toContain('tasks/read_learned_costs')
  // The code of an error decides whether it is tried again.
  const odd = { fromMin: 'noon' as never, toMin: 60, days: null, zone: 'UTC' }
  await expect(read(odd)).rejects.toMatchObject({ code: '22P02' })
})

it('a dispatcher runs nothing but the function that a message names', async () => {
  const texts: string[] = []
  const query = async (text: string) => {
    texts.push(text)
    return []
  }
  const lender = lenderOf(sqlOn({ query } as Queryable))
  const borrowed = new BorrowedStore({ schema: 'sluice', clock: systemClock, report: new Report(systemClock, silent) })
  const sent: ToRun[] = []
  borrowed.connect(async (statement) => {
    const forged = { ...statement, types: 'text[]), pg_sleep(60' }
    sent.push(forged)
    borrowed.receive(await lender.lend(forged))
  })
  await parkBuckets(borrowed.store, ['a'])
  const [own] = sent as [ToRun]
  const places = own.args.map((_, i) => `$${i + 1}`).join(',')
  expect(texts).toEqual([expect.stringMatching(/^select \* from sluice_\w+\.\w+\([$\d,]+\)$/)])
  expect(texts[0]).toContain(`.${own.name}(${places})`)
  const odd = { ...own, id: 'b', args: { map: 'x' } as never }
  expect(await lender.lend(odd)).toMatchObject({ error: { code: 'SLUICE_NEEDS_STORE' } })
  expect(texts).toHaveLength(1)
})

it('a dispatcher runs a statement once, two at a time, and none that is no longer awaited', async () => {
  const ends: (() => void)[] = []
  let nowMs = 0
  const run = () => new Promise<never[]>((resolve) => ends.push(() => resolve([])))
  const lender = lenderOf({ run } as unknown as Sql, { ...systemClock, monotonicMs: () => nowMs })
  const lend = (id: string) => lender.lend({ id, name: 'tasks/read_learned_costs', args: [] })
  const [first, again, second, third, late] = ['a', 'a', 'b', 'c', 'd'].map(lend)
  expect(ends).toHaveLength(2)
  ends[0]?.()
  expect(await first).toMatchObject({ id: 'a', rows: [] })
  expect(await again).toEqual(await first)
  await until(() => ends.length === 3, 'the third begins')
  nowMs += 10_000
  ends[1]?.()
  expect([await second, await late]).toMatchObject([{ id: 'b' }, null])
  ends[2]?.()
  expect(await third).toMatchObject({ id: 'c' })
  expect(await lend('a')).toEqual(await first)
  const last = lend('e')
  ends[3]?.()
  expect(await last).toMatchObject({ id: 'e' })
  expect(ends).toHaveLength(4)
})

it('a result that cannot be sent is an error, and a closed store one that is away', async () => {
  const lender = lenderOf({ run: async () => [{ n: 1n }] } as unknown as Sql)
  expect(await lender.lend({ id: 'a', name: 'tasks/read_learned_costs', args: [] })).toMatchObject({
    error: { message: expect.stringContaining('BigInt'), isAway: false },
  })
  const closed = lenderOf({ run: async () => Promise.reject(closedError()) } as unknown as Sql)
  const borrowed = new BorrowedStore({ schema: 'sluice', clock: systemClock, report: new Report(systemClock, silent) })
  borrowed.connect(async (statement) => borrowed.receive(await closed.lend(statement)))
  await expect(borrowed.store.run('tasks/read_learned_costs')).rejects.toMatchObject({
    code: 'SLUICE_STORE_UNREACHABLE',
    retryable: true,
  })
})
