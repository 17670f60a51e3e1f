/** A real PostgreSQL and a real Redis for tests of limits that are shared in Redis, in one process. */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { z } from 'zod'
import { type AnyTask, type Context, type Limit, limit, Sluice, task } from '../../src/index.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import type { Owner } from '../fleet/children.ts'
import { freshDatabase } from '../servers/database.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'

/** The input of the tasks. */
export const input = z.object({ n: z.number() })
/** A limit that is so slow that nothing drains during a test. */
export const slow = (published: boolean) => limit('slow', { rate: '10/h', burst: 10, published })

/** A Sluice on a database of its own, and the errors that it logs. */
export interface Opened {
  sluice: Sluice
  store: string
  errors: string[]
}

/** A Redis of one test's own, and those that use it; all of them end with the test. */
export async function redisFor({ onTestFinished }: Owner) {
  const redis = await startRedis()
  onTestFinished(() => redis.close())
  const connect = async () => {
    const client = await connectRedis(redis.port)
    onTestFinished(() => client.close())
    return client
  }
  return {
    redis,
    /** A client of its own. */
    connect,
    /** Opens a Sluice. */
    async open(where: string | RedisClient = redis.url, store?: string, redisPrefix?: string): Promise<Opened> {
      const url = store ?? (await freshDatabase()).url
      const errors: string[] = []
      const error = (text: string, about?: object) => void errors.push(`${text} ${JSON.stringify(about)}`)
      const log = { debug() {}, info() {}, warn() {}, error }
      const prefix = redisPrefix === undefined ? {} : { redisPrefix }
      const sluice = await Sluice.open({ store: url, redis: where, allowPrivate: ['127.0.0.1'], log, ...prefix })
      onTestFinished(() => sluice.close())
      return { sluice, store: url, errors }
    },
    /** A program that takes in Redis and uses nothing of Sluice except the published definitions. */
    async foreigner(of: Limit) {
      const client = await connect()
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
    },
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

/** The URL of a server that gives these answers until the test ends. */
export async function answering(
  { onTestFinished }: Owner,
  answer: (response: ServerResponse) => void,
): Promise<string> {
  const server = createServer((_, response) => answer(response))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

/** Returns inputs from 0 on. */
