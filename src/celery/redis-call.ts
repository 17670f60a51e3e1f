/**
 * Calls to a Redis of Celery's. A connection that may have lost a reply is replaced, because every later reply on it would be taken
 * for that of the command before. So is one that leads to a replica: its address may lead to the master by now.
 */
import { checkReply, hasLostReply, isOfReplica, type Script, sendCommand } from '../redis/client.ts'
import type { RedisConnection } from '../redis/connect.ts'

const answerMaxMs = 10_000

/** Sends one command. The errors are those of `sendCommand`. */
export function callRedis(redis: RedisConnection, command: string, args: readonly string[]): Promise<unknown> {
  return replacing(redis, sendCommand(redis, command, args, answerMaxMs))
}

/**
 * Runs a script. Resolves to what its reply has behind `name`, which names the call. The errors are those of `Script.run`, and
 * StoreError SLUICE_REDIS_ANSWER: the reply is that of another call.
 */
export function callScript(
  redis: RedisConnection,
  script: Script,
  keys: readonly string[],
  args: readonly string[],
  name: string,
): Promise<unknown[]> {
  const run = async () => {
    const [named, ...values] = [await script.run(redis, keys, args, answerMaxMs)].flat() as unknown[]
    checkReply(named, name)
    return values
  }
  return replacing(redis, run())
}

async function replacing<T>(redis: RedisConnection, answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    if (hasLostReply(error) || isOfReplica(error)) redis.reset()
    throw error
  }
}
