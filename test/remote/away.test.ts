/** Stock workers behind a broker that is away. */
import { expect, it } from 'vitest'
import type { Broker } from '../../src/amqp/broker.ts'
import { silent as log } from '../../src/core/log.ts'
import { StockWorkers } from '../../src/remote/stock-workers.ts'
import { World } from '../outlet/simulated-world.ts'

it('have no room while the broker is away, and those who wait for room learn when it is back', async () => {
  const world = new World()
  const broker = { isUp: true }
  let changes = 0
  let hear: (delivery: unknown) => unknown = () => undefined
  const answers: Record<string, unknown> = {
    stats: { 'celery@a': { pid: 7, pool: { 'max-concurrency': 4 } } },
    active_queues: { 'celery@a': [{ name: 'mail' }] },
    registered: { 'celery@a': ['send [track_started=True]'] },
  }
  const workers = new StockWorkers({
    broker: {
      status: () => broker,
      declare: async () => {},
      consume: async (_queue: string, _options: unknown, on: typeof hear) => void (hear = on),
    } as unknown as Broker,
    control: { request: async (name: string) => answers[name] ?? {} } as never,
    queues: new Set(['mail']),
    clock: world.clock(0, 1),
    log,
    changed: () => void changes++,
    lost() {},
  })
  await workers.open('events')
  const event = { type: 'worker-heartbeat', hostname: 'celery@a', pid: 7, timestamp: 0, utcoffset: 0, clock: 1 }
  const properties = { contentType: 'application/json', contentEncoding: 'utf-8', headers: {} }
  await hear({ body: Buffer.from(JSON.stringify(event)), properties, fields: {} })
  expect(workers.slots('mail')).toBe(4)
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
