/** The kit for users' tests: time that moves to the next job, and what was sent, limited and refused. */
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished, vi } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import { check, fail, limit, newId, rateLimited, rule, Sluice, snooze, task } from '../../src/index.ts'
import { testSluice, type TestSluice, vendor, type Vendor } from '../../src/testing/index.ts'
import { numbered } from '../rows.ts'

const input = z.object({ n: z.number() })
const ran: number[] = []
const crm = limit('crm', { rate: '5/s', by: () => 'a1' })
const calls = task('calls', { input, limits: [crm], run: ({ n }) => void ran.push(n) })
const daily = task('daily', { input, limits: [limit('daily', { quota: '1/day', zone: 'UTC' })], run: () => 'ran' })
const flaky = task('flaky', {
  input,
  retry: { attempts: 3 },
  run({ n }, { attempt }) {
    if (n === 0) throw fail('no such customer')
    if (attempt < n) throw new Error('not yet')
  },
})
let url: string
const remote = task('remote', {
  input,
  async run(_, { fetch }) {
    await check(await fetch(url))
  },
})

let t: TestSluice
let there: Vendor
beforeAll(async () => {
  there = vendor({ rules: [{ algorithm: 'sliding log', limit: 1, windowMs: 3_600_000 }] })
  url = await there.listen()
  t = await testSluice({ tasks: [calls, daily, flaky, remote] })
})
beforeEach(() => ran.splice(0).length)
afterAll(async () => {
  await t.close()
  await there.close()
})
const elapsed = async (body: () => Promise<unknown>) => {
  const from = (await t.clock.now()).getTime()
  await body()
  return (await t.clock.now()).getTime() - from
}

it('drain runs what may start now, and with advance all of it, at the instants that the limit allows', async () => {
  await calls.sendMany(numbered(12))
  expect(await t.drain()).toBe(1)
  const limited = await t.limited<{ n: number }>(calls)
  expect(limited).toHaveLength(11)
  expect(limited[0]).toMatchObject({ limit: 'crm', key: 'a1', notBefore: expect.any(Date) })
  const ms = await elapsed(async () => expect(await t.drain({ advance: true })).toBe(11))
  expect(ran).toEqual(Array.from({ length: 12 }, (_, n) => n))
  expect(ms).toBeGreaterThan(11 * 200)
  expect(ms).toBeLessThan(11 * 300)
  expect(await t.limited(calls)).toEqual([])
})

it('a grant does not grow old while the clock stands, however busy the machine is', async () => {
  let passedMs = 0
  for (const name of ['monotonicMs', 'bootMs'] as const)
    vi.spyOn(systemClock, name).mockImplementation(() => performance.now() + passedMs)
  const open = vendor({ rules: [{ algorithm: 'sliding log', limit: 10, windowMs: 1_000 }] })
  const address = await open.listen()
  const late = task('late', {
    limits: [limit('late', { rate: '10/s' })],
    async run(_: object, { fetch }) {
      passedMs += 5_000
      await check(await fetch(address))
    },
  })
  const kit = await testSluice({ tasks: [late] })
  onTestFinished(async () => {
    vi.restoreAllMocks()
    await kit.close()
    await open.close()
  })
  await late.send({})
  expect(await kit.drain()).toBe(1)
  expect(open.arrivals()).toHaveLength(1)
  // None was given back for another one.
  expect(await kit.sluice.limits.usage({ limit: 'late' })).toMatchObject([{ units: 1, refunded: 0 }])
})

it('a job that the vendor refused is limited until the vendor’s wait is over', async () => {
  const each = limit('each', { rate: '60/min', by: 'n' })
  const refusing = task('refusing', {
    input,
    limits: [each],
    run: (_, { attempt }) => {
      if (attempt === 1) throw rateLimited('10min')
    },
  })
  const kit = await testSluice({ tasks: [refusing] })
  onTestFinished(() => kit.close())
  await refusing.send({ n: 1 })
  const from = (await kit.clock.now()).getTime()
  await kit.drain()
  const [job] = await kit.limited(refusing)
  expect(job).toMatchObject({ limit: 'each', key: '1' })
  expect(job?.notBefore?.getTime()).toBeGreaterThanOrEqual(from + 600_000)
})

it('drain advances within a span, whose end the clock shows then', async () => {
  await t.clock.advance('1h')
  await calls.sendMany(numbered(14))
  expect(await elapsed(() => t.drain({ advance: '2s' }))).toBe(2_000)
  expect(ran.length).toBeGreaterThan(5)
  expect(ran.length).toBeLessThan(14)
  await t.drain({ advance: true })
})

it('drain advances over delays, retries and calendar days', async () => {
  await flaky.send({ n: 3 }, { delay: '2h' })
  await daily.sendMany(numbered(3))
  const ms = await elapsed(async () => expect(await t.drain({ advance: true })).toBe(6))
  expect(ms).toBeGreaterThan(86_400_000)
  expect(ms).toBeLessThan(3 * 86_400_000)
})

it('a job that its handler has put off has begun, so that a later send with its key does not replace it', async () => {
  const seen: number[] = []
  const polls = task('polls', {
    input,
    run({ n }) {
      seen.push(n)
      if (seen.length === 1) throw snooze('1min')
    },
  })
  const own = await testSluice({ tasks: [polls] })
  onTestFinished(() => own.close())
  const key = { idempotencyKey: 'k', replace: true }
  const first = await polls.send({ n: 1 }, key)
  await own.drain()
  const second = await polls.send({ n: 2 }, key)
  expect(second).not.toBe(first)
  expect(await polls.send({ n: 3 }, key)).toBe(second)
  await own.drain({ advance: true })
  expect(seen).toEqual([1, 3, 1])
})

it('runUntil stops the clock when it is true, and rejects when that cannot become true', async () => {
  await t.clock.advance('1h')
  await calls.sendMany(numbered(12))
  await t.runUntil(() => ran.length >= 6)
  expect(ran).toHaveLength(6)
  await expect(t.runUntil(() => ran.length > 12)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  expect(ran).toHaveLength(12)
})

it('refused lists what failed, with its error, and whether it is tried again', async () => {
  await t.clock.advance('1h')
  await flaky.sendMany([{ n: 0 }, { n: 2 }])
  await remote.sendMany(numbered(2))
  await t.drain()
  expect((await t.refused(flaky)).filter(({ input }) => (input as { n: number }).n !== 3)).toMatchObject([
    { input: { n: 0 }, state: 'failed', error: { message: 'no such customer' } },
    { input: { n: 2 }, state: 'scheduled', error: { message: 'not yet' } },
  ])
  expect(await t.refused(remote)).toMatchObject([{ state: 'scheduled', error: { code: 'SLUICE_VENDOR_LIMITED' } }])
})

it('a kit follows its clock from another start, back and forth, in what a send may name', async () => {
  const later = await testSluice({ tasks: [flaky], start: new Date('2030-01-01T00:00:00Z') })
  onTestFinished(() => later.close())
  const made = newId()
  expect(await flaky.send({ n: 1 }, { id: made, at: new Date('2030-01-02T00:00:00Z') })).toBe(made)
  await later.clock.set(new Date('2028-01-01T00:00:00Z'))
  await flaky.send({ n: 1 }, { at: new Date('2028-12-01T00:00:00Z') })
  await expect(flaky.send({ n: 1 }, { at: new Date('2030-01-02T00:00:00Z') })).rejects.toMatchObject({
    code: 'SLUICE_BAD_OPTION',
  })
})

it.each<[what: string, options: object, text: string]>([
  ['an option', { taks: [calls] }, 'no "taks"'],
  ['no tasks', {}, 'a worker takes a list'],
  ['one task', { tasks: calls }, 'a worker takes a list'],
  ['a start that is no time', { tasks: [calls], start: new Date('soon') }, 'Invalid Date is no time'],
  ['no time at all', { tasks: [calls], timeout: 0 }, '`timeout` is 0'],
  ['one schedule', { tasks: [calls], schedules: {} }, '`schedules` must be a list'],
])('a kit is refused that would run nothing: %s', async (_what, options, text) => {
  const refused = { message: expect.stringContaining(text) }
  await expect(testSluice(options as never)).rejects.toMatchObject(refused)
})

it('a kit that cannot begin closes its store', async () => {
  const close = vi.spyOn(Sluice.prototype, 'close')
  onTestFinished(() => close.mockRestore())
  // PostgreSQL has no such year.
  await expect(testSluice({ tasks: [calls], start: new Date(-8.64e15) })).rejects.toThrow()
  expect(close).toHaveBeenCalledOnce()
})

it('a kit begins at a time that is given as a number', async () => {
  const own = await testSluice({ tasks: [calls], start: Date.UTC(2030, 0, 1) as never })
  onTestFinished(() => own.close())
  expect(await own.clock.now()).toEqual(new Date('2030-01-01T00:00:00Z'))
})

it.each<[what: string, call: () => unknown, text: string]>([
  ['the name of a task', () => t.sent('calls' as never), "'calls' is no task"],
  ['a condition that is no function', () => t.runUntil(true as never), 'needs a function'],
  ['a time that is none', () => t.clock.set('soon' as never), "'soon' is no time"],
])('a kit refuses what would pass a test, or fail it elsewhere: %s', async (_what, call, text) => {
  await expect((async () => call())()).rejects.toMatchObject({ message: expect.stringContaining(text) })
})

it('drain refuses what it does not read', async () => {
  await expect(t.drain({ advanced: true } as never)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
})

it('drain moves to the time at which jobs may start, also beside a job that time does not start', async () => {
  const nightly = task('nightly', { input, run: ({ n }) => void ran.push(n) })
  const rules = [
    rule('night', { at: 'dispatch', tasks: ['nightly'], open: { from: '22:00', to: '23:00', zone: 'UTC' } }),
  ]
  const own = await testSluice({ tasks: [nightly], rules, start: new Date('2030-01-01T12:00:00Z') })
  onTestFinished(() => own.close())
  await nightly.sendMany(numbered(2))
  await own.sluice.db.query(
    `update sluice.job set due_at = 'infinity' where id = (select min(id::text)::uuid from sluice.job)`,
  )
  expect(await own.drain({ advance: true })).toBe(1)
})
