/** The watch over a Redis, on a clock and a server that are made up. */
import { expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { RedisHealth } from '../../src/redis/health.ts'
import { until } from '../until.ts'

/** A watch by whose clock a pause takes no time. Its epochs are numbers; when one begins, `later` keys are evicted. */
async function stage() {
  const at = { nowMs: 1_000, epoch: 0, isLost: true, evicted: 0, later: 0, server: 0 }
  const clock: Clock = {
    ...systemClock,
    monotonicMs: () => at.nowMs,
    bootMs: () => at.nowMs,
    async sleep(ms) {
      at.nowMs += ms
      await new Promise((resolve) => setImmediate(resolve))
    },
  }
  const info = () =>
    `redis_version:7.0.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\nevicted_keys:${at.evicted}\r\n`
  const epochs = {
    get current() {
      return String(at.epoch)
    },
    restore: async (forced: string | undefined) => {
      if (!at.isLost && forced !== String(at.epoch)) return
      at.epoch++
      at.isLost = false
      at.evicted += at.later
      at.later = 0
    },
    readEpoch: async () => ({ mine: String(at.epoch), nowUs: at.nowMs * 1_000 }),
  }
  const nothing = async () => {}
  const health = new RedisHealth({
    store: { clock, log: silent, report: { emit() {} }, run: nothing } as never,
    connection: {
      reset() {},
      send: async (command: string) => {
        if (command === 'INFO') at.server++
        return command === 'INFO' ? info() : command === 'TIME' ? ['1', '0'] : [1, 1, 1]
      },
    } as never,
    limiter: { write: nothing } as never,
    definitions: { publish: nothing } as never,
    epochs: epochs as never,
    onRestored() {},
    onLook() {},
    onClockRead() {},
  })
  onTestFinished(() => health.close())
  health.start()
  await health.waitUntilPresent(1)
  await until(() => !health.isAway, 'the first epoch has begun')
  /** Loses the state, and resolves when the next epoch has begun. */
  const lose = async () => {
    at.isLost = true
    health.recordFailure(undefined)
    await until(() => !health.isAway, 'the next epoch has begun')
  }
  /** Resolves when the server has been checked twice more. */
  const check = async () => {
    const { server } = at
    await until(() => at.server >= server + 2 && !health.isAway, 'the server was checked')
  }
  return { at, lose, check }
}

it('the watch over a Redis begins another epoch where keys were evicted soon after an epoch had begun', async () => {
  const { at, lose, check } = await stage()
  at.later = 5
  await lose()
  await check()
  expect(at.epoch).toBe(3)
})

it('the watch over a Redis begins no other epoch where keys were evicted before an epoch began', async () => {
  const { at, lose, check } = await stage()
  at.evicted = 5
  await lose()
  expect(at.epoch).toBe(2)
  await check()
  expect(at.epoch).toBe(2)
})
