/** Redis's clock steps while jobs use a limit in it. The scripts are the shipped ones; only the reply to TIME is moved. */
import { expect, it } from 'vitest'
import { z } from 'zod'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { type AnyTask, limit, Sluice, task } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis, type Connection } from '../servers/resp.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'

const moved = `(function()
  local time = redis.call('TIME')
  return { tostring(time[1] + tonumber(redis.call('GET', 'test:step') or '0')), time[2] }
end)()`

/** A client of a server whose clock is off by a number of seconds, which the key `test:step` holds. */
const off = (client: Connection): RedisClient => ({
  async send(command, args) {
    // Always by its text, because the script is a changed one.
    if (command === 'EVALSHA') throw new Error('NOSCRIPT')
    if (command === 'TIME') {
      const [seconds, micros] = (await client.send(command, args)) as string[]
      return [String(Number(seconds) + Number((await client.send('GET', ['test:step'])) ?? 0)), micros]
    }
    if (command !== 'EVAL') return client.send(command, args)
    return client.send(command, [String(args[0]).replaceAll("redis.call('TIME')", moved), ...args.slice(1)])
  },
})

const { sleep } = systemClock
/** A clock by which the check of Redis's clock, every 5 s or so, never comes. */
const blind: Clock = {
  ...systemClock,
  sleep: (ms, signal, ref) => sleep(ms >= 3_750 && ms <= 6_250 ? 3_600_000 : ms, signal, ref),
}

it.concurrent.for([
  { seconds: 3_600, clock: systemClock, seen: 'looked for' },
  { seconds: -3_600, clock: systemClock, seen: 'looked for' },
  { seconds: -3_600, clock: blind, seen: 'met by a job' },
])('a step by $seconds s, $seen, exceeds no limit, and jobs go on', async ({ seconds, clock }, { onTestFinished }) => {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const client = await connectRedis(redis.port)
  onTestFinished(() => client.close())
  const warnings: string[] = []
  const log = { debug() {}, info() {}, warn: (text: string) => void warnings.push(text), error() {} }
  const { url: store } = await freshDatabase()
  const ran: number[] = []
  const call = task('call', {
    input: z.object({}),
    limits: [limit('paced', { window: '20/2s', transit: '1s' })],
    run: () => void ran.push(performance.now()),
  }) as unknown as AnyTask
  // Two workers, because one of them begins the epoch, and the other only joins it.
  const both = await Promise.all([1, 2].map(() => Sluice.open({ store, redis: off(client), log, clock })))
  for (const sluice of both) {
    onTestFinished(() => sluice.close())
    await sluice.work([call], { concurrency: 20 })
  }
  await both[0]?.sendMany(call, copies(240))
  await until(() => ran.length > 30)
  await client.send('SET', ['test:step', String(seconds)])
  const before = ran.length
  await until(() => warnings.join().includes('clock stepped'))
  await until(() => ran.length > before + 60)
  // Of 21 jobs in a row the last came two seconds after the first, or later.
  const spans = ran.slice(20).map((at, i) => at - (ran[i] ?? 0))
  expect(Math.min(...spans)).toBeGreaterThanOrEqual(2_000)
})
