import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Granted } from '../../src/redis/call.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { findPython } from '../examples/interpreter.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis, type Connection } from '../servers/resp.ts'
import { until } from '../until.ts'
import { Caller } from './caller.ts'

const units = 20
const seconds = 7
// A busy machine may stop a process between its reading of the clock and its record of it.
const { name, rules, grantUs } = limit('crm', { window: `${units}/s`, transit: 400 })
const crm = { name, rules, version: 1, isKeyed: false, grantUs }

/** A process in Node that connects again, and begins an epoch when it finds that the state is lost. */
class Node {
  readonly arrivals: number[] = []
  begun = 0
  readonly #port: number
  #client: Connection | undefined
  #limiter: RedisLimiter | undefined

  constructor(port: number) {
    this.#port = port
  }

  async run(endMs: number): Promise<void> {
    while (systemClock.monotonicMs() < endMs) {
      await this.#once().catch(() => {
        this.#client?.close()
        this.#limiter = undefined
      })
      const nextMs = systemClock.monotonicMs() + 10
      await until(() => systemClock.monotonicMs() >= nextMs, 'the next call is due')
    }
    this.#client?.close()
  }

  async #once(): Promise<void> {
    if (this.#limiter === undefined) {
      this.#client = await connectRedis(this.#port)
      this.#limiter = new RedisLimiter(this.#client, { prefix: 'app:', domain: 'crm', timeoutMs: 500 })
    }
    const sentMs = systemClock.monotonicMs()
    const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
    const answer = await this.#limiter.reserve({ id: randomUUID(), buckets: [crm], items })
    if (answer.isDecided) {
      const { granted } = answer.results[0] as Granted
      const isFresh = systemClock.monotonicMs() - sentMs < grantUs / 1_000
      if (granted === 1 && isFresh) this.arrivals.push(Number(process.hrtime.bigint()))
    } else if (answer.why === 'lost') {
      await this.#limiter.publish(crm)
      const begun = await this.#limiter.begin({ owner: 'sluice', epoch: randomUUID(), instead: answer.epoch })
      if (begun.isDecided) this.begun++
    }
  }
}

const losses: Record<string, (server: RedisServer, to: Connection, granted: () => number) => Promise<void>> = {
  'is killed, and starts empty': async (server) => {
    await server.kill()
    await server.start()
  },
  'is killed, and starts from what it wrote before': async (server, to, granted) => {
    await to.send('SAVE', [])
    const before = granted()
    await until(() => granted() > before + units, 'what is not in the file fills a window')
    await server.kill()
    await server.start()
  },
  'is flushed': async (_, to) => void (await to.send('FLUSHALL', [])),
}

it.concurrent.for(Object.entries(losses))(
  'no window holds too many calls when Redis %s',
  async ([, lose], { onTestFinished }) => {
    const server = await startRedis()
    onTestFinished(() => server.close())
    const to = await connectRedis(server.port)
    onTestFinished(() => to.close())
    const python = new Caller(await findPython('redis'), server.url)
    onTestFinished(() => python.end())
    const nodes = [1, 2, 3].map(() => new Node(server.port))
    const startMs = systemClock.monotonicMs()
    const runs = nodes.map((one) => one.run(startMs + seconds * 1_000))
    const inPython = python.ask('run', [[name]], seconds)
    const granted = () => nodes.flatMap((one) => one.arrivals).length
    await until(() => granted() > units, 'the first epoch has granted')
    const lostNs = Number(process.hrtime.bigint())
    await lose(server, to, granted)
    await Promise.all(runs)
    const told = (await inPython).value as number[]
    const all = [...nodes.flatMap(({ arrivals }) => arrivals), ...told].sort((a, b) => a - b)
    const shortestMs = Math.min(...all.slice(units).map((at, i) => at - (all[i] ?? 0))) / 1e6
    console.info(`${all.length} arrivals, ${told.length} of them Python's; ${units + 1} in ${shortestMs} ms at least`)
    expect(shortestMs).toBeGreaterThanOrEqual(1_000)
    // One of three has begun each epoch: the first, and the one after the loss. And it went on.
    expect(nodes.reduce((sum, one) => sum + one.begun, 0)).toBe(2)
    expect(all.filter((at) => at > lostNs + 1e9).length).toBeGreaterThan(units)
  },
)
