/** Handlers in threads. */
import { storeOn } from '../../src/db/store.ts'
import type { GuardedAgent } from '../../src/http/agent.ts'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { type AnyTask, AttemptError, limit, type Log, Sluice, task } from '../../src/index.ts'
import { createAttemptParts } from '../../src/worker/grant-source.ts'
import { Attempt } from '../../src/worker/attempt.ts'
import { GiveBackCounter } from '../../src/worker/give-backs.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { NoteBook } from '../../src/worker/notes.ts'
import { StuckHandlers } from '../../src/worker/stuck.ts'
import { Threads } from '../../src/worker/threads.ts'
import { mainEngines } from '../claim/engine.ts'
import { httpServer } from '../http/bench.ts'
import { later, until } from '../until.ts'
import { unitsUsed } from '../limits/engine.ts'
import { unhurried } from './patience.ts'

const anything = { '~standard': { version: 1 as const, vendor: 'test', validate: (value: unknown) => ({ value }) } }
const file = (name: string) => new URL(`fixtures/${name}`, import.meta.url)
const work = (options: object = {}) =>
  task('work', { input: anything, thread: file('work.ts'), ...options }) as unknown as AnyTask
const log = {
  debug: vi.fn<Log['debug']>(),
  info: vi.fn<Log['info']>(),
  warn: vi.fn<Log['warn']>(),
  error: vi.fn<Log['error']>(),
}
const handout = (input: object, job: Partial<ClaimedJob> = {}) =>
  ({
    id: 'a',
    claim: 'c',
    queue: 'q',
    attempt: 2,
    ambiguous: true,
    createdMs: 5,
    tags: ['t'],
    grantedMs: systemClock.monotonicMs(),
    buckets: null,
    failed: 0,
    admitted: 0,
    input,
    ...job,
  }) as ClaimedJob
let threads: Threads
const stuck = new StuckHandlers({ clock: systemClock, log, most: 1, changed() {} })
const rulebook = new Rulebook()
const around = (clock = systemClock) => ({
  ...createAttemptParts({
    store: storeOn({ checkOutside() {} } as unknown as Db, { clock, log }),
    storeClock: new StoreClock(),
    peer: undefined,
    rulebook,
  }),
  agent: {} as GuardedAgent,
  patience: new GiveBackCounter(),
  stuck,
  notes: new NoteBook(),
  rulebook,
  threads,
})
const attempt = (input: object, options?: object) => new Attempt(handout(input), work(options), around())
const errorOf = (outcome: object) => JSON.parse((outcome as { error: string }).error) as Record<string, unknown>
const shared = (length: number) => new Int32Array(new SharedArrayBuffer(4 * length))

beforeAll(async () => {
  // One thread, so that each test gets the state that the one before has left.
  threads = new Threads({ size: 1, heapMb: 48, log })
  await threads.open([work()])
})
afterAll(() => threads.close())

test('a handler in a thread returns its result, and gets its job', async () => {
  expect(await attempt({ kind: 'square', n: 7 }).run()).toMatchObject({ kind: 'done', result: '{"square":49}' })
  expect(await attempt({ kind: 'nothing' }).run()).toMatchObject({ kind: 'done', result: null })
  const { result } = (await attempt({ kind: 'what' }).run()) as unknown as { result: string }
  const job = { id: 'a', queue: 'q', createdAt: '1970-01-01T00:00:00.005Z', tags: ['t'] }
  expect(JSON.parse(result)).toEqual({ attempt: 2, ambiguous: true, job, isMain: false })
})

test.each([
  [
    'plain',
    'retry',
    {
      name: 'TypeError',
      message: 'as a library throws it',
      code: 'E_LIBRARY',
      stack: expect.stringContaining('work.ts'),
    },
  ],
  ['text', 'retry', { message: 'only a text' }],
  ['odd', 'retry', { message: expect.stringContaining('the handler threw something that is not an Error: ') }],
  ['unreadable', 'retry', { message: 'what was thrown cannot be read' }],
  ['refused', 'failed', { name: 'AttemptError', code: 'APP_REFUSED', message: 'never again' }],
  ['usage', 'failed', { name: 'UsageError', code: 'SLUICE_INVALID_INPUT' }],
  ['later', 'retry', { code: 'APP_LATER' }],
  ['unstorable', 'failed', { code: 'SLUICE_BAD_PAYLOAD', message: expect.stringContaining('result of "work" at big') }],
  ['exit', 'retry', { code: 'SLUICE_THREAD_DIED', message: expect.stringContaining('code: 3') }],
  ['stray', 'retry', { code: 'SLUICE_THREAD_DIED', message: expect.stringContaining('stray') }],
  ['hoard', 'retry', { code: 'SLUICE_THREAD_DIED', message: expect.stringContaining('memory') }],
] as const)('a handler in a thread that ends by "%s" is a %s, and the next job runs', async (kind, how, error) => {
  const outcome = await attempt({ kind }).run()
  expect(outcome).toMatchObject({ kind: how, ...(kind === 'later' ? { delayMs: 7_000_000 } : {}) })
  expect(errorOf(outcome)).toMatchObject(error)
  expect(await attempt({ kind: 'square', n: 2 }).run()).toMatchObject({ kind: 'done' })
})

test('a result of which JSON writes only a part is logged, and fails no job', async () => {
  log.error.mockClear()
  expect(await attempt({ kind: 'lossy' }).run()).toMatchObject({ kind: 'done', result: '{"seen":{}}' })
  expect(log.error.mock.calls.map(([message]) => message)).toEqual([
    expect.stringContaining('result of "work" at seen is of the class Map'),
  ])
})

test('a time-out and a cancel end the thread, so that nothing is left running', async () => {
  const counters = [shared(1), shared(1)] as const
  const counts = () => counters.map((counter) => Atomics.load(counter, 0))
  const first = attempt({ kind: 'busy', shared: counters[0] }, { timeout: 2_000 })
  expect(errorOf(await first.run())).toMatchObject({ code: 'SLUICE_TIMEOUT' })
  const second = attempt({ kind: 'busy', shared: counters[1] })
  const running = later(second.run())
  await until(() => counts()[1] !== 0)
  second.abort(new AttemptError('SLUICE_CANCELLED', 'the job was cancelled', { retryable: false }))
  expect(await running).toMatchObject({ kind: 'interrupt' })
  let before: number[]
  await until(async () => {
    before = counts()
    for (let n = 0; n < 10; n++) await attempt({ kind: 'nothing' }).run()
    return String(counts()) === String(before)
  }, 'both stand still')
  expect(stuck.count).toBe(0)
})

test('an attempt that waits for a thread is not timed out, is returned when its grant expires, and can be cancelled', async () => {
  const [flags, armed] = [shared(2), new Set<object>()]
  let nowMs = 0
  const clock = {
    ...systemClock,
    monotonicMs: () => nowMs,
    after: () => {
      const timer = {}
      armed.add(timer)
      return () => void armed.delete(timer)
    },
  }
  const patience = { spend: vi.fn<() => boolean>(() => false), forget() {} } as unknown as GiveBackCounter
  const run = (input: object, options: object, buckets: string[] | null) =>
    new Attempt(handout(input, { grantedMs: 0, buckets }), work(options), { ...around(clock), patience })
  const first = run({ kind: 'until', shared: flags }, {}, null).run()
  await until(() => Atomics.load(flags, 0) === 1)
  expect(armed.size).toBe(1)
  const waiting = run({ kind: 'square', n: 3 }, {}, null).run()
  const limited = run({ kind: 'square', n: 3 }, { limits: [limit('calls', { rate: '100/min' })] }, ['calls']).run()
  const cancelled = run({ kind: 'square', n: 3 }, {}, null)
  const gone = cancelled.run()
  await Promise.resolve()
  await until(() => armed.size === 1)
  cancelled.abort(new AttemptError('SLUICE_CANCELLED', 'the job was cancelled', { retryable: false }))
  expect(await gone).toEqual({ kind: 'unused' })
  nowMs = 1_000
  Atomics.store(flags, 1, 1)
  expect(await first).toMatchObject({ kind: 'done' })
  expect(await waiting).toMatchObject({ kind: 'done', result: '{"square":9}' })
  expect(await limited).toEqual({ kind: 'unused' })
  expect(patience.spend).not.toHaveBeenCalled()
  expect(armed.size).toBe(0)
})

test('a grant that expires while the thread starts is refunded, and the handler is not called', async () => {
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const own = around(clock)
  const slowly = vi.spyOn(threads, 'run').mockImplementationOnce(async (call) => {
    slowly.mockRestore()
    const begun = () => {
      call.begun()
      nowMs += 1_000
    }
    return threads.run({ ...call, begun })
  })
  const limited = work({ limits: [limit('calls', { rate: '100/min' })] })
  const outcome = await new Attempt(handout({ kind: 'exit' }, { grantedMs: 0, buckets: ['calls'] }), limited, own).run()
  expect(outcome).toEqual({ kind: 'unused' })
})

test('log lines of a thread arrive before its end, even those that cannot be sent unchanged', async () => {
  await attempt({ kind: 'log' }).run()
  expect(log.info).toHaveBeenCalledWith('from a thread', expect.objectContaining({ n: 1, attempt: 2 }))
  expect(log.warn).toHaveBeenCalledWith(
    'what cannot be sent',
    expect.objectContaining({ details: expect.stringContaining('f: [Function') as string }),
  )
})

test('an input that cannot be transferred and a module without a handler end the job', async () => {
  const unsendable = { '~standard': { version: 1 as const, vendor: 'test', validate: () => ({ value: () => 1 }) } }
  const first = await attempt({}, { input: unsendable }).run()
  expect(first).toMatchObject({ kind: 'failed', reason: 'refused' })
  expect(errorOf(first)).toMatchObject({ code: 'SLUICE_BAD_PAYLOAD' })
  const second = await attempt({}, { thread: file('empty.ts') }).run()
  expect(second).toMatchObject({ kind: 'failed', reason: 'refused' })
  expect(errorOf(second)).toMatchObject({
    code: 'SLUICE_BAD_TASK',
    message: expect.stringContaining('empty.ts') as string,
  })
})

test('a missing thread module is reported at the start, and a compiled one is found', async () => {
  const own = new Threads({ size: 1, heapMb: 48, log })
  await expect(own.open([work({ thread: file('nowhere.ts') })])).rejects.toMatchObject({ code: 'SLUICE_BAD_TASK' })
  await own.open([work({ thread: new URL('../../dist/core/version.js', import.meta.url) })])
  await own.close()
})

test('a request that a thread aborts while its body is read is not sent', async () => {
  const fetched = vi.fn<() => undefined>()
  const own = { ...around(), agent: { guard: { check: fetched } } as unknown as GuardedAgent }
  const outcome = await new Attempt(handout({ kind: 'abort', url: 'http://vendor.example/' }), work(), own).run()
  expect(outcome).toMatchObject({ kind: 'done', result: '"not wanted any more"' })
  expect(fetched).not.toHaveBeenCalled()
})

describe.each(mainEngines)('$name', ({ store }) => {
  test('each request of a thread takes a grant of its own, is answered, and fails as outside of a thread', async () => {
    const seen: string[] = []
    const silent = await httpServer(() => {})
    const url = await httpServer((request, response) => {
      let body = ''
      request.on('data', (chunk) => (body += String(chunk)))
      request.on('end', () => {
        seen.push(`${request.method} ${request.url} ${String(request.headers['x-own'])} ${body}`)
        if (request.url === '/away') response.writeHead(302, { location: silent }).end()
        else if (request.url === '/second') response.writeHead(204).end()
        else response.writeHead(201, { 'x-vendor': 'b' }).end('welcome')
      })
    })
    // No grant grows old on a busy machine: it would count twice, as taken and as given back.
    const sluice = await Sluice.open({ store: await store(), log, clock: unhurried() })
    const calls = task('calls', {
      retry: { attempts: 3, base: 1, max: 1 },
      input: anything,
      thread: file('work.ts'),
      limits: [limit('calls', { rate: '500/s' })],
    })
    await sluice.work([calls])
    const base = new URL('/', url).href
    const job = await sluice.waitFor(await sluice.send(calls, { kind: 'call', url: base }))
    expect(job).toMatchObject({
      state: 'done',
      result: { status: 201, header: 'b', url: `${base}first?q=1`, text: 'welcome', bare: 204 },
    })
    expect(seen).toEqual(['POST /first?q=1 a hello', 'GET /second undefined '])
    expect(await unitsUsed(sluice.db)).toEqual({ calls: 2 })
    const home = await sluice.waitFor(await sluice.send(calls, { kind: 'home', url: base }))
    expect(home).toMatchObject({ state: 'failed', error: { code: 'SLUICE_REDIRECT' } })
    const broken = await sluice.waitFor(await sluice.send(calls, { kind: 'broken', url: silent }))
    expect(broken).toMatchObject({ error: { message: expect.stringContaining('nothing was sent to') as string } })
    await sluice.close()
  })

  test('a refusal that only the profile of the limit knows is one in a thread too', async () => {
    const url = await httpServer((_, response) => response.writeHead(403, { 'retry-after': '7' }).end())
    const sluice = await Sluice.open({ store: await store(), log })
    const limits = [limit('code', { rate: '500/s', vendor: 'github' })]
    const checks = task('checks', { input: anything, thread: file('work.ts'), limits })
    await sluice.work([checks])
    const job = await sluice.waitFor(await sluice.send(checks, { kind: 'check', url }))
    expect(job).toMatchObject({ state: 'done', result: { code: 'SLUICE_VENDOR_LIMITED', retryAfterMs: 7_000 } })
    await sluice.close()
  })
})
