/** Stock workers behind a broker that is away. */
import { expect, it } from 'vitest'
import type { Broker } from '../../src/amqp/broker.ts'
import { silent as log } from '../../src/core/log.ts'
import { unclaimedJob } from '../../src/claim/claimed-job.ts'
import type { Reports } from '../../src/claim/outlet.ts'
import type { Store } from '../../src/db/store.ts'
import { remoteTask } from '../../src/index.ts'
import { CeleryOutlet } from '../../src/remote/celery-outlet.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { StockWorkers } from '../../src/remote/stock-workers.ts'
import { z } from 'zod'
import { World } from '../outlet/simulated-world.ts'

it('have no room while the broker is away, and those who wait for room learn when it is back', async () => {
  const world = new World()
  let changes = 0
  const faults: unknown[] = []
  let hear: (delivery: unknown) => unknown = () => undefined
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
    tasks: new Map([
      ['send', 'mail'],
      ['forgotten', 'mail'],
      ['elsewhere', 'slow'],
    ]),
    backend: 'rpc://',
    clock: world.clock(0, 1),
    log: { ...log, error: (_text, details) => void faults.push(details) },
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
  for (const isUp of [false, true]) {
    await world.runUntil(world.nowMs + 1_100)
    const before = changes
    broker.isUp = isUp
    expect(workers.slots('mail')).toBe(isUp ? 4 : 0)
    await world.runUntil(world.nowMs + 600)
    expect(changes).toBe(before + 1)
  }
  workers.close()
})

it.for(['nothing', 'the broker', 'the Redis of results'])(
  'have begun a call, or may have, of which no report came: %s was away',
  async (away) => {
    const world = new World()
    const clock = world.clock(0, 1)
    const published: unknown[] = []
    let gap = () => {}
    const broker = {
      isUp: true,
      declare: async () => {},
      consume: async () => {},
      publish: async (message: unknown) => void published.push(message),
    }
    const outlet = new CeleryOutlet({
      store: { clock, log } as unknown as Store,
      rulebook: new Rulebook(),
      peer: undefined,
      broker: broker as unknown as Broker,
      control: { request: async () => ({}), revoke: async () => {} } as never,
      results: {
        replyTo: 'r',
        watch() {},
        watchGaps: (tell: () => void) => (gap = tell),
        forget() {},
        close: async () => {},
      } as never,
      backend: 'rpc://',
      tasks: [remoteTask('far', { input: z.object({}), queue: 'far', slots: 1 })],
      others: new Set(),
      kin: 'r',
    })
    const ends: string[] = []
    const note = (end: string) => () => void ends.push(end)
    outlet.for({ refused: note('uncalled'), lost: note('lost'), changed() {} } as unknown as Reports, () => '1')
    await outlet.open()
    const none = { attempt: 0, failed: 0, throttled: 0, crashes: 0, isDoubtful: false }
    const own = {
      id: 'j',
      task: 'far',
      queue: 'default',
      grantedMs: clock.monotonicMs(),
      createdMs: 0,
      input: {},
      buckets: ['outlet.far'],
    }
    outlet.start([unclaimedJob(none, own)])
    await expect.poll(() => published.length, { timeout: 2_000 }).toBe(1)
    await world.runUntil(world.nowMs + 1_000)
    broker.isUp = away !== 'the broker'
    if (away === 'the Redis of results') gap()
    await world.runUntil(world.nowMs + 1_000)
    broker.isUp = true
    await world.runUntil(world.nowMs + 20_000)
    expect(ends).toEqual([away === 'nothing' ? 'uncalled' : 'lost'])
    await outlet.close()
  },
)
