/** The watch of workers without a store over the epoch of the limits, without any Redis. */
import { expect, it } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import { EpochWatch } from '../../src/direct/epoch.ts'
import { until } from '../until.ts'

/** A watch that has looked once, and what its clocks, and Redis, show. `seen`: the epoch by which it granted at each of its pauses. */
async function stage() {
  const at = { monotonicMs: 1_000, bootMs: 1_000, redisUs: 5e15, id: 'first', begun: 0, resets: 0 }
  const server = { role: 'master', policy: 'noeviction', evicted: 0, isWhole: true, errors: [] as Error[] }
  const seen: (string | undefined)[] = []
  const moveOn = (ms: number) => {
    at.monotonicMs += ms
    at.bootMs += ms
    at.redisUs += ms * 1_000
  }
  const clock: Clock = {
    ...systemClock,
    monotonicMs: () => at.monotonicMs,
    bootMs: () => at.bootMs,
    async sleep(ms) {
      seen.push(watch.current)
      moveOn(ms)
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
  const info = () =>
    `redis_version:7.0.0\r\nrole:${server.role}\r\nmaxmemory:1\r\nmaxmemory_policy:${server.policy}\r\nevicted_keys:${server.evicted}\r\n`
  const watch = new EpochWatch({
    limiter: {
      async readEpoch() {
        const { id, redisUs: nowUs } = at
        return { id, isWhole: server.isWhole, owner: 'direct', mine: id, stores: 1, nowUs }
      },
      begin: async ({ epoch }: { epoch: string }) => {
        const error = server.errors.shift()
        if (error !== undefined) throw error
        at.begun++
        at.id = epoch
        return { isDecided: true, atUs: at.redisUs }
      },
    } as never,
    redis: {
      reset: () => void at.resets++,
      open: async () => {},
      send: async (command: string) => (command === 'INFO' ? info() : command === 'TIME' ? ['1', '0'] : [1, 1, 1]),
    } as never,
    definitions: { define: async () => {}, restore: async () => {}, refresh: async () => {} } as never,
    clock,
    log: silent,
    onBack() {},
    onReading() {},
  })
  await watch.look()
  expect(watch.current).toBe('first')
  /** Lets so many ms pass by each clock, and looks again. */
  const pass = async (ms: { monotonic: number; boot: number; redis: number }) => {
    at.monotonicMs += ms.monotonic
    at.bootMs += ms.boot
    at.redisUs += ms.redis * 1_000
    await watch.look()
  }
  return { at, server, seen, watch, pass }
}

it('the watch over the epoch goes on when time passes, and when its own machine has slept', async () => {
  const { at, watch, pass } = await stage()
  await pass({ monotonic: 5_000, boot: 5_000, redis: 5_000 })
  await pass({ monotonic: 1_000, boot: 61_000, redis: 61_000 })
  expect(watch.current).toBe('first')
  expect(at.begun).toBe(0)
})

it.each([
  ['forward', 65_000, []],
  ['forward, and the first try fails', 65_000, [new Error('the connection was lost')]],
  ['back', -60_000, []],
])('the watch over the epoch begins anew when the clock of Redis was set %s, once', async (_, redis, errors) => {
  const { at, server, watch, pass } = await stage()
  server.errors = [...errors]
  await pass({ monotonic: 5_000, boot: 5_000, redis })
  expect(watch.current).toBe(errors.length === 0 ? at.id : undefined)
  await pass({ monotonic: 5_000, boot: 5_000, redis: 5_000 })
  await pass({ monotonic: 5_000, boot: 5_000, redis: 5_000 })
  expect(watch.current).toBe(at.id)
  expect(at.begun).toBe(1)
})

it('the watch over the epoch grants nothing while Redis evicts keys, and begins anew then', async ({
  onTestFinished,
}) => {
  const { at, server, seen, watch } = await stage()
  onTestFinished(() => watch.close())
  await watch.start()
  Object.assign(server, { policy: 'allkeys-lru', evicted: 7 })
  await until(() => watch.current === undefined, 'it has noticed that')
  seen.length = 0
  await until(() => seen.length > 300, 'it has looked again, for more than a minute of its clock')
  expect(new Set(seen)).toEqual(new Set([undefined]))
  server.policy = 'noeviction'
  await until(() => watch.current !== undefined, 'it grants again')
  expect(at.begun).toBe(1)
  expect(watch.current).toBe(at.id)
})

it.each([
  { shown: 'a check', now: { role: 'slave' } },
  {
    shown: 'a refusal',
    now: {
      isWhole: false,
      errors: [new StoreError('SLUICE_REDIS_REFUSED', 'Redis refused (READONLY): it is a replica')],
    },
  },
])('the watch over the epoch connects anew when $shown shows that the server is a replica by now', async ({ now }) => {
  const { at, server, watch, pass } = await stage()
  Object.assign(server, now)
  await pass({ monotonic: 31_000, boot: 31_000, redis: 31_000 })
  expect(watch.current).toBeUndefined()
  expect(at.resets).toBe(1)
})

it('the watch over the epoch leaves the epoch alone that another worker has begun after the same step', async () => {
  const { at, watch, pass } = await stage()
  at.id = 'second'
  await pass({ monotonic: 5_000, boot: 5_000, redis: 65_000 })
  expect(watch.current).toBe('second')
  expect(at.begun).toBe(0)
})
