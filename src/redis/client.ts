/** What is asked of a Redis client, and how scripts are run by it. */
import { createHash } from 'node:crypto'
import { type Clock, systemClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'

/**
 * A connection to Redis (or Valkey) that somebody else opened. One line makes any client one: of ioredis
 * `{ send: (command, args) => redis.call(command, ...args) }`, of node-redis
 * `{ send: (command, args) => redis.sendCommand([command, ...args]) }`.
 * It may send a command again whose reply was lost: the scripts carry out each once.
 */
export interface RedisClient {
  /**
   * Sends one command. Resolves to its reply: integers as numbers (below 2^53), texts as strings, lists as arrays. Rejects with
   * an Error whose message begins with Redis's own code (`NOSCRIPT`, `READONLY`, `OOM`).
   */
  send(command: string, args: readonly string[]): Promise<unknown>
}

/** A Lua script and its name in Redis. */
export class Script {
  readonly #text: string
  readonly #sha: string

  constructor(text: string) {
    this.#text = text
    this.#sha = createHash('sha1').update(text).digest('hex')
  }

  /**
   * Runs it, by its name; with its text when Redis does not know it (restarted, SCRIPT FLUSH).
   * @param timeoutMs a client may never answer; whether the script ran is then unknown
   * @throws StoreError SLUICE_REDIS_SILENT; the client's errors
   */
  async run(
    client: RedisClient,
    keys: readonly string[],
    argument: string,
    timeoutMs: number,
    clock: Clock = systemClock,
  ): Promise<unknown> {
    const args = [String(keys.length), ...keys, argument]
    const answer = client.send('EVALSHA', [this.#sha, ...args]).catch((error: unknown) => {
      // The code may stand behind the word that all errors of scripts begin with.
      if (!(error instanceof Error) || !error.message.includes('NOSCRIPT')) throw error
      return client.send('EVAL', [this.#text, ...args])
    })
    return within(answer, timeoutMs, clock)
  }
}

async function within(answer: Promise<unknown>, timeoutMs: number, clock: Clock): Promise<unknown> {
  const silent = () =>
    new StoreError(
      'SLUICE_REDIS_SILENT',
      `Redis did not answer within ${timeoutMs} ms; whether the command was carried out is unknown, and asking again with the same id is safe`,
    )
  let cancel = () => {}
  const late = new Promise<never>((_, reject) => (cancel = clock.after(timeoutMs, () => reject(silent()))))
  try {
    return await Promise.race([answer, late])
  } finally {
    cancel()
  }
}
