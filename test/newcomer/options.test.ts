/** Options that nothing reads, and values that nothing can use, are refused where they are given: plain JavaScript has no types. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  check,
  type Context,
  event,
  httpTask,
  limit,
  limitedBy,
  rateLimited,
  rule,
  schedule,
  Sluice,
  systemClock,
  task,
  useSluice,
} from '../../src/index.ts'

/** The API without its types. */
// oxlint-disable-next-line typescript/no-explicit-any -- these calls are what the types refuse
type Untyped = any

const run = () => undefined
const odd: Untyped = { check, event, httpTask, limit, limitedBy, rateLimited, rule, schedule, task, useSluice }
const quiet = task('quiet', { run })
const rate = '1/s'
const some = limit('some', { rate })

describe('a definition is refused', () => {
  it.each<[what: string, define: () => unknown, code: string, text: string]>([
    ['a limit without options', () => odd.limit('x'), 'SLUICE_BAD_LIMIT', 'limit "x" needs an object with its options'],
    ['an empty key', () => odd.limit('x', { rate, by: '' }), 'SLUICE_BAD_LIMIT', "by is ''; it is a field path"],
    ['several keys', () => odd.limit('x', { rate, by: ['a', 'b'] }), 'SLUICE_BAD_LIMIT', "by is [ 'a', 'b' ]"],
    ['no key', () => odd.limit('x', { rate, by: null }), 'SLUICE_BAD_LIMIT', 'by is null'],
    [
      'a rate in money',
      () => odd.limit('x', { rate: '5 USD/month' }),
      'SLUICE_BAD_RATE',
      '"5 USD/month" is not a rate',
    ],
    [
      'a rate by the week',
      () => odd.limit('x', { rate: '5/week' }),
      'SLUICE_BAD_RATE',
      'weeks and months are for a `q',
    ],
    ['no field as fair key', () => odd.task('x', { run, fair: '' }), 'SLUICE_BAD_TASK', 'fair is a field path'],
    ['a fair key by a function', () => odd.task('x', { run, fair: run }), 'SLUICE_BAD_TASK', 'fair is a field path'],
    [
      'a Sluice that was not awaited',
      () => odd.useSluice(Promise.resolve(5)),
      'SLUICE_BAD_OPTION',
      'needs a Sluice: useSluice(await Sluice.open(…))',
    ],
    ['a task without options', () => odd.task('x'), 'SLUICE_BAD_TASK', 'task "x" needs an object with its options'],
    ['a retry policy', () => odd.task('x', { run, retry: { atempts: 5 } }), 'SLUICE_BAD_RETRY', 'no "atempts"'],
    ['a number of retries', () => odd.task('x', { run, retry: 5 }), 'SLUICE_BAD_RETRY', '`retry` needs an object'],
    ['one former name', () => odd.task('x', { run, formerly: 'old' }), 'SLUICE_BAD_TASK', 'formerly must be a list'],
    ['onFailed', () => odd.task('x', { run, onFailed: 5 }), 'SLUICE_BAD_TASK', 'onFailed is a function'],
    ['no limit', () => odd.task('x', { run, limits: [null] }), 'SLUICE_BAD_TASK', 'null is no limit'],
    [
      'a schedule',
      () => odd.schedule('x', { task: quiet, every: '1h', catchup: 'all' }),
      'SLUICE_BAD_SCHEDULE',
      'no "catchup"',
    ],
    [
      'tasks of a rule',
      () => odd.rule('x', { tasks: 5, do: { priority: 1 } }),
      'SLUICE_BAD_RULE',
      '`tasks` and `queues`',
    ],
    [
      'a place of a secret',
      () => odd.httpTask('x', { secrets: { a: { env: 'A', hosts: ['a.example'], in: 'query' } } }),
      'SLUICE_BAD_TASK',
      '`in` is a list of',
    ],
    [
      'a vendor',
      () => odd.limitedBy(new Response(), { vendor: 'githb' }),
      'SLUICE_BAD_OPTION',
      'no vendor "githb"; did you mean "github"? there are: ',
    ],
    ['a pause', () => odd.rateLimited('30'), 'SLUICE_BAD_DURATION', '"30" is not a span of time: give the response'],
  ])('%s', (_what, define, code, text) => {
    expect(define).toThrow(expect.objectContaining({ code, message: expect.stringContaining(text) }))
  })
})

it('`check` of a request that was not awaited names what to write, and the job is not tried again', async () => {
  const refused = { code: 'SLUICE_BAD_OPTION', retryable: false, message: expect.stringContaining('await check(await') }
  await expect(odd.check(Promise.resolve(new Response()))).rejects.toMatchObject(refused)
})

it.each<[what: string, run: (context: Context) => unknown]>([
  ['a vendor', () => odd.rateLimited(new Response(null, { status: 429 }), { vendor: 'githb' })],
  ['a pause', () => odd.rateLimited('30')],
  ['a limit', ({ limits }) => limits.refused({ limit: 'crmm' })],
  ['a field', ({ limits }) => limits.refused({ retryAfter: 5 } as never)],
])('a mistake that is met only when a vendor refuses ends no job: %s', async (_what, run) => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const refused = task('refused', {
    limits: [limit('crm', { rate: '5/s' })],
    run: (_, context) => run(context) as void,
  })
  const id = await sluice.send(refused, {})
  await sluice.dispatchOnce([refused])
  expect(await sluice.jobs.get(id)).toMatchObject({
    // On a busy machine it is due again by now.
    state: expect.stringMatching(/^(scheduled|waiting)$/),
    error: { code: expect.stringMatching(/^SLUICE_BAD_/) },
  })
  await sluice.close()
})

describe('Sluice.open refuses', () => {
  it.each<[what: string, options: object, code: string, text: string]>([
    ['a store', { store: 5 }, 'SLUICE_BAD_OPTION', 'store is 5'],
    ['connections', { connections: 0 }, 'SLUICE_BAD_OPTION', 'connections is 0; it must be a whole number'],
    ['migrate', { migrate: 'no' }, 'SLUICE_BAD_OPTION', "migrate is 'no'"],
    ['one address', { allowPrivate: '10.0.0.1' }, 'SLUICE_BAD_OPTION', 'allowPrivate is '],
    ['what is no address', { allowPrivate: ['*'] }, 'SLUICE_BAD_OPTION', '"*" is not an address'],
    ['a log', { log: { info: run } }, 'SLUICE_BAD_OPTION', 'log is '],
    ['a retention', { retention: { doen: '3d' } }, 'SLUICE_BAD_OPTION', '`retention` has no "doen"'],
    ['a time to prune', { prune: { at: '03:00', zon: 'UTC' } }, 'SLUICE_BAD_OPTION', '`prune` has no "zon"'],
    ['a schema of the server', { schema: 'pg_mine' }, 'SLUICE_BAD_SCHEMA', 'not beginning with a digit or pg_'],
    ['a route', { routes: { a: 5 } }, 'SLUICE_BAD_RULE', 'the route of "a"'],
    ['routes', { routes: [] }, 'SLUICE_BAD_RULE', 'routes: an object'],
  ])('%s', async (_what, options, code, text) => {
    const open: Untyped = Sluice.open
    const opened = open({ store: 'memory:', ...options })
    await expect(opened).rejects.toMatchObject({ code, message: expect.stringContaining(text) })
  })
})

describe('a call is refused', () => {
  let sluice: Untyped
  beforeAll(async () => void (sluice = await Sluice.open({ store: 'memory:' })))
  afterAll(() => sluice.close())

  it.each<[what: string, call: () => unknown, code: string, text: string]>([
    ['an option of a worker', () => sluice.work([quiet], { concurency: 5 }), 'SLUICE_BAD_OPTION', 'no "concurency"'],
    [
      'one queue of Celery, and no list',
      () => sluice.work([quiet], { celery: 'celery' as never }),
      'SLUICE_BAD_OPTION',
      "celery: it is a list of queues, such as ['celery'], or an object with `queues`",
    ],
    [
      'an id of BullMQ',
      () => sluice.send(quiet, {}, { jobId: 'x' }),
      'SLUICE_BAD_OPTION',
      'a send has no "jobId"; here it is `idempotencyKey`; there are id, ',
    ],
    [
      'a queue of graphile-worker, whose jobs run one at a time',
      () => sluice.send(quiet, {}, { queueName: 'a1' }),
      'SLUICE_BAD_OPTION',
      'a limit with `concurrency: 1` on the task',
    ],
    [
      'attempts of one send',
      () => sluice.send(quiet, {}, { attempts: 3 }),
      'SLUICE_BAD_OPTION',
      'here it is `retry` of the task',
    ],
    [
      'a limit of BullMQ',
      () => limit('q', { max: 5, duration: 1_000 } as never),
      'SLUICE_BAD_LIMIT',
      "here it is `rate: '100/min'`",
    ],
    ['the key of a limit', () => limit('q', { rate: '5/s', key: 'a' } as never), 'SLUICE_BAD_LIMIT', 'here it is `by`'],
    ['a handler by another name', () => task('h', { handler: run } as never), 'SLUICE_BAD_TASK', 'here it is `run`'],
    [
      'retries of a task',
      () => task('h', { run, retries: 3 } as never),
      'SLUICE_BAD_TASK',
      'here it is `retry: { attempts: 5 }`',
    ],
    [
      'a backoff',
      () => task('h', { run, retry: { backoff: '1s' } } as never),
      'SLUICE_BAD_RETRY',
      'here it is `base` and `max`',
    ],
    ['one queue', () => sluice.work([quiet], { queues: 'mail' }), 'SLUICE_BAD_OPTION', '`queues` must be a list'],
    ['no list of tasks', () => sluice.work(quiet), 'SLUICE_BAD_TASK', 'a worker takes a list'],
    ['what is no task', () => sluice.work([run]), 'SLUICE_BAD_TASK', 'a worker takes a list'],
    [
      'no schedule',
      () => sluice.work([quiet], { schedules: [5] }),
      'SLUICE_BAD_SCHEDULE',
      '`schedules` must be a list',
    ],
    ['the bound of jobs', () => sluice.dispatchOnce([quiet], { mx: 5 }), 'SLUICE_BAD_OPTION', 'no "mx"'],
    ['no number of jobs', () => sluice.dispatchOnce([quiet], { max: NaN }), 'SLUICE_BAD_OPTION', 'max is NaN'],
    ['no signal', () => sluice.dispatchOnce([quiet], { signal: 5 }), 'SLUICE_BAD_OPTION', '`signal` must be'],
    ['a time as a signal', () => sluice.waitFor('', { signal: 5 }), 'SLUICE_BAD_OPTION', '`signal` must be'],
    ['a word for no', () => sluice.send(quiet, {}, { notify: 'no' }), 'SLUICE_BAD_OPTION', "`notify` is 'no'"],
    ['a word for yes', () => sluice.send(quiet, {}, { replace: 'yes' }), 'SLUICE_BAD_OPTION', "`replace` is 'yes'"],
    ['an empty page', () => sluice.list({ max: 0 }), 'SLUICE_BAD_OPTION', 'max is 0'],
    ['a page of all', () => sluice.jobs.list({ max: Infinity }), 'SLUICE_BAD_OPTION', 'max is Infinity'],
    ['the name of a task', () => sluice.send('quiet', {}), 'SLUICE_BAD_TASK', "'quiet' is no task"],
    ['the name of a task for rows', () => sluice.sendMany('quiet', [{}]), 'SLUICE_BAD_TASK', "'quiet' is no task"],
    [
      'one id for many',
      () => sluice.sendMany(quiet, [1, 2], { idempotencyKey: 'a' }),
      'SLUICE_BAD_OPTION',
      'no idempotencyKey',
    ],
    ['a text as a list', () => sluice.sendMany(quiet, 'abc'), 'SLUICE_BAD_OPTION', 'no list or stream'],
    [
      'a date that is none',
      () => sluice.send(quiet, { at: new Date(NaN) }),
      'SLUICE_BAD_PAYLOAD',
      'at at is an invalid Date',
    ],
    ['a pause without a reason', () => sluice.pause({ queue: 'a' }), 'SLUICE_BAD_PAUSE', 'give a reason'],
    [
      'the key of a pause',
      () => sluice.pause({ limit: 'crm', kye: 'a' }, { reason: 'x' }),
      'SLUICE_BAD_PAUSE',
      'no "kye"',
    ],
    ['no thing to pause', () => sluice.pause(), 'SLUICE_BAD_PAUSE', 'needs an object'],
    ['what to keep', () => sluice.prune({ keepdone: '3d' }), 'SLUICE_BAD_OPTION', 'no "keepdone"'],
    ['a time-out', () => sluice.waitFor('x', { timeOut: 5 }), 'SLUICE_BAD_OPTION', 'no "timeOut"'],
    ['how long a take waits', () => sluice.takes.take(some, { maxWait: 5 }), 'SLUICE_BAD_OPTION', 'no "maxWait"'],
    [
      'how long a request waits',
      () => sluice.takes.fetch(some, 'https://crm.example', { maxWait: '5s' }),
      'SLUICE_BAD_OPTION',
      'no "maxWait"',
    ],
    [
      'a response that was not awaited',
      () => sluice.takes.observe(some, Promise.resolve(new Response())),
      'SLUICE_BAD_OPTION',
      'await the request first',
    ],
    ['no options', () => sluice.send(quiet, {}, null), 'SLUICE_BAD_OPTION', 'a send needs an object'],
    [
      'a key to move to',
      () => sluice.limits.rekey('some', { from: 'a', too: 'b' }),
      'SLUICE_BAD_OPTION',
      'no "too"; did you mean "to"?',
    ],
    ['what is no limit', () => sluice.takes.tryTake(['crm']), 'SLUICE_BAD_OPTION', "'crm' is no limit"],
    ['no listener', async () => sluice.on('failed'), 'SLUICE_BAD_OPTION', 'is no function'],
  ])('%s', async (_what, call, code, text) => {
    await expect((async () => call())()).rejects.toMatchObject({ code, message: expect.stringContaining(text) })
  })
})

it('what is left of a budget may be none, or all, and what is undefined is not given', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  const some = task('some', { run: () => undefined })
  await sluice.sendMany(some, [{}, {}], { idempotencyKey: undefined } as never)
  expect(await sluice.dispatchOnce([some], { max: 0 })).toBe(0)
  expect(await sluice.dispatchOnce([some], { max: Infinity })).toBe(2)
  await sluice.close()
})

it('no event has an id that is none', async () => {
  const sluice = await Sluice.open({ store: 'memory:' })
  expect(await sluice.events.show('x')).toBeUndefined()
  await sluice.close()
})

it('a Sluice that is closed says so, and does not blame the store', async () => {
  let sleeps = 0
  const clock = new Proxy(systemClock, {
    get(it, name) {
      if (name === 'sleep') sleeps++
      return Reflect.get(it, name)
    },
  })
  const sluice = await Sluice.open({ store: 'memory:', clock })
  await sluice.takes.take(some)
  await sluice.close()
  sleeps = 0
  await expect(sluice.takes.take(some)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  expect(sleeps, 'times that it waits for a store that does not come back').toBe(0)
  await expect(sluice.jobs.status()).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  await expect(sluice.transaction(async () => undefined)).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
})
