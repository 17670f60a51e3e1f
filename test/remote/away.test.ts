/** Stock workers behind a broker that is away. */
import { expect, it } from 'vitest'
import type { Broker } from '../../src/amqp/broker.ts'
import type { Carrier, Inbox } from '../../src/celery/carrier.ts'
import { resultMessage } from '../../src/celery/result.ts'
import { rpcResults } from '../../src/celery/results.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { silent as log } from '../../src/core/log.ts'
import { unclaimedJob } from '../../src/claim/claimed-job.ts'
import type { Reports } from '../../src/claim/outlet.ts'
import type { Store } from '../../src/db/store.ts'
import { limit, remoteTask } from '../../src/index.ts'
import { CeleryOutlet } from '../../src/remote/celery-outlet.ts'
import { messageIdOf } from '../../src/remote/sent.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { StockWorkers } from '../../src/remote/stock-workers.ts'
import { z } from 'zod'
import { World } from '../outlet/simulated-world.ts'

it('stock workers have no room while the broker is away, or the clock of one is off; who waits for room learns when it is back', async () => {
  const world = new World()
  let changes = 0
  let canRead = true
  const faults: unknown[] = []
  const warnings: string[] = []
  let hear: (incoming: unknown) => unknown = () => undefined
  const answers: Record<string, unknown> = {
    stats: { 'celery@a': { pid: 7, pool: { 'max-concurrency': 4 } } },
    active_queues: { 'celery@a': [{ name: 'mail' }] },
    registered: { 'celery@a': ['send [track_started=True]'] },
  }
  const broker = {
    isUp: true,
    declare: async () => {},
    consume: async (_queue: string, _options: unknown, on: typeof hear) => void (hear = on),
  }
  const workers = new StockWorkers({
    broker: broker as unknown as Broker,
    control: { request: async (name: string) => answers[name] ?? {} } as never,
    canRead: () => canRead,
    tasks: new Map([
      ['send', 'mail'],
      ['forgotten', 'mail'],
      ['elsewhere', 'slow'],
    ]),
    backend: 'rpc://',
    clock: world.clock(0, 1),
    log: { ...log, error: (_text, details) => void faults.push(details), warn: (text) => void warnings.push(text) },
    onChange: () => void changes++,
    onCut() {},
    onLost() {},
  })
  await workers.open('events')
  const event = { type: 'worker-heartbeat', hostname: 'celery@a', pid: 7, timestamp: 0, utcoffset: 0, clock: 1 }
  const properties = { contentType: 'application/json', contentEncoding: 'utf-8', headers: {} }
  await hear({ body: Buffer.from(JSON.stringify(event)), properties, fields: {} })
  expect(workers.slots('mail')).toBe(4)
  expect(workers.hasTask('mail', 'send')).toBe(true)
  expect(faults).toEqual([{ worker: 'celery@a', tasks: ['forgotten'] }])
  for (const isUp of [false, true, undefined, true]) {
    await world.runUntil(world.nowMs + 1_100)
    const before = changes
    // Undefined: it is there, and what workers report cannot be read.
    broker.isUp = isUp !== false
    canRead = isUp === true
    expect(workers.slots('mail')).toBe(isUp === true ? 4 : 0)
    await world.runUntil(world.nowMs + 600)
    expect(changes).toBe(before + 1)
  }
  const warning = 'Celery workers get no jobs until the queue of their replies can be read again'
  expect(warnings).toEqual([warning])
  // The broker comes back alone.
  for (const isUp of [false, true]) {
    broker.isUp = isUp
    canRead = false
    await world.runUntil(world.nowMs + 5_000)
  }
  expect(warnings).toEqual([warning, warning])
  canRead = true
  const clock = world.clock(0, 1)
  const beats = async (aheadMs: number) => {
    for (let n = 0; n < 3; n++) {
      await world.runUntil(world.nowMs + 2_000)
      const timestamp = (clock.wallMs() + aheadMs) / 1_000
      await hear({ body: Buffer.from(JSON.stringify({ ...event, timestamp })), properties, fields: {} })
    }
  }
  await beats(249)
  expect(workers.slots('mail')).toBe(4)
  for (const aheadMs of [252, -252]) {
    await beats(aheadMs)
    expect(workers.slots('mail')).toBe(0)
    expect(faults.at(-1)).toEqual({ worker: 'celery@a', byMs: 252, most: 250 })
  }
  await beats(-249)
  expect(workers.slots('mail')).toBe(4)
  workers.close()
})

/** An outlet that has sent a job to a worker, which has begun it or not. `ends`: what became of it; `stored`: calls to the store; `answer` ends them. */
async function send({ hasBegun, isTrial = false }: { hasBegun: boolean; isTrial?: boolean }) {
  const world = new World()
  const clock = world.clock(0, 1)
  const published: unknown[] = []
  let hear: (incoming: unknown) => unknown = () => undefined
  let inbox: Inbox | undefined
  let report: (message: WireMessage) => unknown = () => undefined
  const worker = 'celery@a'
  const answers: Record<string, unknown> = {
    stats: { [worker]: { pid: 7, pool: { 'max-concurrency': 4 } } },
    active_queues: { [worker]: [{ name: 'far' }] },
    registered: { [worker]: ['far [track_started=True]'] },
    query_task: { [worker]: {} },
  }
  const broker = {
    isUp: true,
    declare: async () => {},
    consume: async (_queue: string, _options: unknown, on: typeof hear) => void (hear = on),
    publish: async (message: unknown) => void published.push(message),
  }
  const stored: unknown[] = []
  const carrier: Pick<Carrier, 'receive'> = {
    async receive(into, on) {
      inbox = into
      report = on
      return async () => {}
    },
  }
  let answer = () => {}
  const called = new Promise<unknown[]>((resolve) => (answer = () => resolve([])))
  const outlet = new CeleryOutlet({
    store: { clock, log, call: (...given: unknown[]) => (stored.push(given), called) } as unknown as Store,
    rulebook: new Rulebook(),
    peer: undefined,
    broker: broker as unknown as Broker,
    control: { request: async (name: string) => (hasBegun && answers[name]) || {}, revoke: async () => {} } as never,
    results: await rpcResults(carrier as Carrier, log, { isKept: true }),
    backend: 'rpc://',
    tasks: [
      remoteTask('far', { input: z.object({}), queue: 'far', slots: 1, limits: [limit('crm', { rate: '9/s' })] }),
    ],
    others: new Set(),
    kin: 'r',
  })
  const ends: string[] = []
  const note = (end: string) => () => void ends.push(end)
  const ended = (_: unknown, { kind }: { kind: string }) => void ends.push(kind)
  const reports = { refused: note('uncalled'), lost: note('lost'), ended, begun() {}, changed() {} }
  outlet.for(reports as unknown as Reports, () => '1')
  await outlet.open()
  const beat = async (pid = 7) => {
    const event = { type: 'worker-heartbeat', hostname: worker, pid, timestamp: clock.wallMs() / 1_000 }
    const properties = { contentType: 'application/json', contentEncoding: 'utf-8', headers: {} }
    const body = Buffer.from(JSON.stringify({ ...event, utcoffset: 0, clock: 1 }))
    await hear({ body, properties, fields: {} })
  }
  if (hasBegun) await beat()
  const none = { attempt: 0, failed: 0, throttled: 0, crashes: 0, isDoubtful: false }
  const own = {
    id: 'j',
    task: 'far',
    queue: 'default',
    grantedMs: clock.monotonicMs(),
    createdMs: 0,
    input: {},
    buckets: ['crm', 'outlet.far'],
  }
  const job = { ...unclaimedJob(none, own), isTrial }
  outlet.start([job])
  await expect.poll(() => published.length, { timeout: 2_000 }).toBe(1)
  const tell = (state: string, value: unknown) =>
    report(resultMessage({ id: messageIdOf(job), state, value, traceback: undefined }))
  if (hasBegun) void tell('STARTED', { hostname: worker, pid: 8 })
  return {
    broker,
    outlet,
    ends,
    stored,
    attach: (isAttached: boolean) => inbox?.onAttached?.(isAttached),
    answer,
    tell,
    beat,
    wait: (ms: number) => world.runUntil(world.nowMs + ms),
  }
}

it.for([
  ['nothing', false, 'uncalled'],
  ['the broker', false, 'lost'],
  ['the queue of replies', false, 'lost'],
  ['nothing', true, 'retry'],
  ['the broker', true, 'lost'],
  ['the queue of replies', true, 'lost'],
] as const)(
  'stock workers may have made a call of which no end was reported: %s was away (begun: %s)',
  async ([away, hasBegun, end]) => {
    const { broker, outlet, ends, attach, wait } = await send({ hasBegun })
    await wait(1_000)
    broker.isUp = away !== 'the broker'
    if (away === 'the queue of replies') for (const isAttached of [false, true]) attach(isAttached)
    await wait(1_000)
    broker.isUp = true
    await wait(20_000)
    expect(ends).toEqual([end])
    await outlet.close()
  },
)

it('stock workers are not taken for idle while nobody can read what they report', async () => {
  const { attach, outlet, ends, wait } = await send({ hasBegun: false })
  await wait(1_000)
  attach(false)
  await wait(20_000)
  expect(ends).toEqual([])
  attach(true)
  await wait(20_000)
  expect(ends).toEqual(['lost'])
  await outlet.close()
})

const expired = { type: 'TaskRevokedError', module: 'celery.exceptions', args: ['expired'] }

it.for([
  ['SUCCESS', null, 'done'],
  ['FAILURE', { type: 'VendorAnswer', module: 'shop', args: [429, {}] }, 'throttled'],
] as const)(
  'stock workers report how a call ends whose message came back too late, and whose worker does not name it: %s',
  async ([state, value, end]) => {
    const { outlet, ends, tell, beat, answer, wait } = await send({ hasBegun: true })
    void tell('REVOKED', expired)
    for (let beats = 0; beats < 10; beats++) {
      await wait(2_000)
      await beat()
    }
    expect(ends).toEqual([])
    void tell(state, value)
    answer()
    await expect.poll(() => ends, { timeout: 2_000 }).toEqual([end])
    await outlet.close()
  },
)

it('stock workers have lost a call whose message came back too late when its worker is lost', async () => {
  const { outlet, ends, tell, beat, wait } = await send({ hasBegun: true })
  void tell('REVOKED', expired)
  await wait(20_000)
  expect(ends).toEqual([])
  await beat(9)
  await wait(2_000)
  expect(ends).toEqual(['lost'])
  await outlet.close()
})

it('stock workers have had a call that a vendor refused, however long it takes to hold its limit', async () => {
  const { outlet, ends, tell, answer, wait } = await send({ hasBegun: true })
  void tell('FAILURE', { type: 'VendorAnswer', module: 'shop', args: [429, { 'Retry-After': '30' }] })
  await wait(20_000)
  expect(ends).toEqual([])
  answer()
  await expect.poll(() => ends, { timeout: 2_000 }).toEqual(['throttled'])
  await outlet.close()
})

it('stock workers have shown that the vendor serves a trial, though its result is too large to be stored', async () => {
  const { outlet, ends, stored, tell } = await send({ hasBegun: true, isTrial: true })
  void tell('SUCCESS', 'x'.repeat(300_000))
  expect(ends).toEqual(['failed'])
  expect(stored).toHaveLength(1)
  await outlet.close()
})
