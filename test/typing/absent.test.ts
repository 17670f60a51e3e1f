/** Options that a program passes on from its environment or a request, where `exactOptionalPropertyTypes` is on, as it is here. */
import { expect, it, onTestFinished } from 'vitest'
import { openProducer } from '../../src/celery/index.ts'
import {
  type Duration,
  event,
  httpTask,
  limit,
  limitedBy,
  type Limit,
  remoteTask,
  rule,
  Sluice,
  task,
} from '../../src/index.ts'
import { testSluice, vendor } from '../../src/testing/index.ts'

const read = <T>(name: string): T | undefined => process.env[`SLUICE_NOT_SET_${name}`] as T | undefined

it('an option that is undefined counts as absent, and compiles', async () => {
  const [text, number, duration] = [read<string>('TEXT'), read<number>('NUMBER'), read<Duration>('DURATION')]
  const signal = read<AbortSignal>('SIGNAL')
  const crm = limit('crm', { rate: '100/s' })
  const twice = task('twice', {
    limits: [crm],
    queue: text,
    timeout: duration,
    maxWait: duration,
    retry: { attempts: number, base: duration },
    run: ({ n }: { n: number }) => 2 * n,
  })
  const sluice = await Sluice.open({
    store: read<string>('STORE') ?? 'memory:',
    schema: text,
    connections: number,
    redis: text,
    logLevel: read<'info'>('LEVEL'),
    alarms: { webhook: text },
    retention: { done: duration },
  })
  onTestFinished(() => sluice.close())
  await sluice.work([twice], { concurrency: number, queues: read<string[]>('QUEUES'), grace: duration })
  const options = {
    queue: text,
    priority: number,
    delay: duration,
    idempotencyKey: text,
    at: read<Date>('AT'),
    tx: undefined,
  }
  const id = await sluice.send(twice, { n: 21 }, options)
  expect((await sluice.waitFor(id, { timeout: duration, signal })).result).toBe(42)
  const lease = await sluice.takes.take(crm, { key: text, cost: number, maxWaitMs: number, signal })
  await lease.giveBack()
  expect(await sluice.limits.usage({ limit: text, key: text, by: read<'month'>('BY') })).toHaveLength(1)
})

it('of a limit, too', () => {
  const [text, number, duration] = [read<string>('TEXT'), read<number>('NUMBER'), read<Duration>('DURATION')]
  const bare = limit('crm', { rate: '100/s', pool: ['a1'] })
  const crm = limit('crm', {
    rate: '100/s',
    window: read<'5/s'>('WINDOW'),
    quota: read<'5/day'>('QUOTA'),
    concurrency: number,
    zone: text,
    anchor: text,
    alarmAt: read<number[]>('ALARM'),
    burst: number,
    refund: read<'full'>('REFUND'),
    adaptive: read<boolean>('ADAPTIVE'),
    transit: duration,
    onStoreError: read<'open'>('OPEN'),
    published: read<boolean>('PUBLISHED'),
    vendor: {
      limit: '100/s',
      algorithm: read<'bucket'>('ALGORITHM'),
      burst: number,
      answers: read<'github'>('VENDOR'),
    },
    circuit: number,
    pool: [{ key: 'a1', baseUrl: text, secret: undefined, headers: undefined, data: undefined }],
    weights: read<Record<string, number>>('WEIGHTS'),
    shares: read<Record<string, number>>('SHARES'),
    lendAfter: duration,
    by: undefined,
    cost: undefined,
  })
  const plain = ({ vendor: _vendor, pool: _pool, ...own }: Limit): unknown => JSON.parse(JSON.stringify(own))
  expect(plain(crm)).toEqual(plain(bare))
  expect(limit('found', { rate: '5/s', adaptive: { floor: number, ceiling: 50 } }).adaptive?.floor).toBe(1)
  // @ts-expect-error -- one of the rules has to be there
  expect(() => limit('none', { rate: read<'5/s'>('RATE') })).toThrow(
    expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }),
  )
})

it('of rules, handlers, requests and the test kit, too', async () => {
  const [text, number, duration] = [read<string>('TEXT'), read<number>('NUMBER'), read<Duration>('DURATION')]
  const queue = rule('queue', { do: { queue: 'mail', priority: number } })
  const priority = rule('priority', { tasks: text, queues: text, when: undefined, do: { priority: 5, queue: text } })
  const hold = rule('hold', { at: 'dispatch', do: { queue: text, hold: duration, discard: text } })
  const paid = event('orders.paid', undefined, { version: number, description: text, jsonSchema: undefined })
  const invoice = paid.on(() => {}, {
    name: text,
    formerly: undefined,
    group: text,
    order: text,
    since: duration,
    limits: undefined,
    retry: undefined,
    timeout: duration,
    queue: text,
    concurrency: number,
    allowPrivate: undefined,
  })
  expect(invoice).toMatchObject({ name: 'orders.paid', group: 'main', options: {} })
  const twice = task('twice', { input: undefined, limits: undefined, run: ({ n }: { n: number }) => 2 * n })
  httpTask('hooks', { secrets: { crm: { env: 'CRM', read: undefined, hosts: ['a.example'], in: undefined } } })
  remoteTask('shop.tasks.add', { queue: text, slots: 2 })
  const t = await testSluice({
    tasks: [twice, invoice],
    rules: [queue, priority, hold],
    schedules: undefined,
    service: text,
    start: undefined,
    store: text,
    schema: text,
    allowPrivate: undefined,
    timeout: duration,
  })
  onTestFinished(() => t.close())
  const job = await t.sluice.jobs.get(await twice.send({ n: 21 }))
  expect(job).toMatchObject({ queue: 'mail', priority: 5 })
  expect(await t.deliver(invoice, {}, { type: text, subject: text, version: number })).toMatchObject({ state: 'done' })
  expect(limitedBy(new Response(null, { status: 429 }), { vendor: undefined, body: undefined })).toBeDefined()
  const standIn = vendor({
    port: number,
    rules: [{ algorithm: 'sliding log', limit: 5, windowMs: 1_000, name: text, burst: number, key: undefined }],
    latencyMs: number,
    status: number,
    faults: { delayMs: number, retryAfter: undefined },
  })
  onTestFinished(() => standIn.close())
  expect((await fetch(await standIn.listen())).status).toBe(200)
  await expect(openProducer({ broker: 'http://x', keyPrefix: text, results: text, queue: text })).rejects.toMatchObject(
    {
      code: 'SLUICE_BAD_URL',
    },
  )
})
