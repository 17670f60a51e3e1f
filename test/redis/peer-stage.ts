/** A real PostgreSQL and a real Redis for tests of limits that are shared in Redis, in one process. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, beforeEach } from 'vitest'
import { z } from 'zod'
import { type AnyTask, type Context, type Limit, limit, Sluice, task } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { freshDatabase } from '../servers/database.ts'
import { type RedisServer, startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'

/** The input of the tasks. */
export const input = z.object({ n: z.number() })
/** A limit that is so slow that nothing drains during a test. */
export const slow = (published: boolean) => limit('slow', { rate: '10/h', burst: 10, published })

/** The Redis of the running test. */
export let redis: RedisServer
/** Called after the test, the last first. */
export const ends: (() => unknown)[] = []
/** Gives each test of the calling file a Redis of its own. Not done by import, because files of one process share their modules. */
export function startRedisForEach(): void {
  beforeEach(async () => {
    redis = await startRedis()
  })
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end()
    await redis.close()
  })
}

/** A Sluice on a database of its own, and the errors that it logs. */
export interface Opened {
  sluice: Sluice
  store: string
  errors: string[]
}

/** Opens a Sluice; it is closed after the test. */
export async function open(
  where: string | RedisClient = redis.url,
  store?: string,
  redisPrefix?: string,
): Promise<Opened> {
  const url = store ?? (await freshDatabase()).url
  const errors: string[] = []
  const error = (text: string, about?: object) => void errors.push(`${text} ${JSON.stringify(about)}`)
  const log = { debug() {}, info() {}, warn() {}, error }
  const prefix = redisPrefix === undefined ? {} : { redisPrefix }
  const sluice = await Sluice.open({ store: url, redis: where, allowPrivate: ['127.0.0.1'], log, ...prefix })
  ends.push(() => sluice.close())
  return { sluice, store: url, errors }
}

/** A program that takes in Redis and uses nothing of Sluice except the published definitions. */
export async function foreigner(of: Limit) {
  const client = await connectRedis(redis.port)
  ends.push(() => client.close())
  const limiter = new RedisLimiter(client)
  const key = 'sluice:{limits}:d:'
  const version = async () =>
    (JSON.parse(String(await client.send('GET', [key + of.name]))) as { version: number }).version
  return async (units = 1) => {
    const bucket = { name: of.name, rules: of.rules, version: await version() }
    const answer = await limiter.reserve({
      id: randomUUID(),
      buckets: [bucket],
      items: [{ want: units, takes: [{ bucket: 0, units: 1 }] }],
    })
    return answer.isDecided ? answer.results[0]?.granted : answer.why
  }
}

/** Returns a task under these limits, and the inputs of the jobs that ran. */
export function counted(
  limits: readonly Limit<{ n: number }>[],
  run: (context: Context, n: number) => unknown = () => undefined,
) {
  const ran: number[] = []
  const call = task('call', {
    input,
    limits,
    retry: { attempts: 1 },
    async run({ n }, context) {
      await run(context, n)
      ran.push(n)
    },
  })
  return { call: call as unknown as AnyTask, ran }
}

/** The URL of a server that gives these answers. */
export async function answering(answer: (response: ServerResponse) => void): Promise<string> {
  const server = createServer((_, response) => answer(response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  ends.push(() => server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

/** Returns inputs from 0 on. */
export const rows = (count: number) => Array.from({ length: count }, (_, n) => ({ n }))
