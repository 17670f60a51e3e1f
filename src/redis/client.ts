/** What is asked of a Redis client, and how scripts are run by it. */
import { createHash } from 'node:crypto'
import { type Clock, systemClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'

/**
 * A connection to Redis (or Valkey) that somebody else opened. One line makes any client one: of ioredis
 * `{ send: (command, args) => redis.call(command, ...args) }`, of node-redis
 * `{ send: (command, args) => redis.sendCommand([command, ...args]) }`.
 * It may send a command again whose reply was lost: the scripts carry out each once. Of one that begins epochs it is better if it
 * does not: what it sends again after state was lost in between would begin the same one again, by seeds that are out of date.
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
    argument: string | readonly string[],
    timeoutMs: number,
    clock: Clock = systemClock,
  ): Promise<unknown> {
    const args = [String(keys.length), ...keys, ...[argument].flat()]
    const answer = client.send('EVALSHA', [this.#sha, ...args]).catch((error: unknown) => {
      // The code may stand behind the word that all errors of scripts begin with.
      if (!(error instanceof Error) || !error.message.includes('NOSCRIPT')) throw error
      return client.send('EVAL', [this.#text, ...args])
    })
    return within(answer.catch(refuse), timeoutMs, clock)
  }
}

/**
 * Sends one command.
 * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
 */
export function ask(
  client: RedisClient,
  command: string,
  args: readonly string[],
  timeoutMs: number,
  clock: Clock = systemClock,
): Promise<unknown> {
  return within(client.send(command, args).catch(refuse), timeoutMs, clock)
}

/** Redis's codes of what it does not carry out, and what to do about it. */
const refusals: Record<string, string> = {
  BUSY: "somebody's script runs for too long: it goes on when that ends, or after SCRIPT KILL",
  CLUSTERDOWN: 'the cluster is not whole: see to its nodes; it goes on by itself',
  LOADING: 'it has just been started: it goes on by itself when its data is read',
  MASTERDOWN: 'it is a replica without its master: give the address of the one that is the master now',
  MISCONF: 'it cannot write its data to disk, and so takes none: see its log',
  MOVED: 'it is one node of a cluster: give a client of clusters',
  ASK: 'it is one node of a cluster: give a client of clusters',
  CROSSSLOT: 'a proxy or a cluster does not keep the hash tags of keys: reach it without, or by another way',
  TRYAGAIN: 'the slot of these keys is on its way to another node: it goes on by itself',
  NOAUTH: 'give the user and the password in its URL',
  WRONGPASS: 'give the right user and password in its URL',
  NOPERM: 'its user may not do this; docs/redis.md lists what it needs',
  NOREPLICAS: 'it has fewer replicas than it asks for: see to them; it goes on by itself',
  OOM: 'its memory is full: give it more, or take out what else it holds; it goes on by itself',
  READONLY: 'it is a replica: give the address of the one that is the master now',
  UNKILLABLE: "somebody's script runs for too long and cannot be killed",
}
const refusal = new RegExp(`(?:^|[\\s-])(${Object.keys(refusals).join('|')})(?:\\s|$)`)

/** Rethrows what a client says. @throws StoreError SLUICE_REDIS_REFUSED: nothing was granted; else the client's error */
function refuse(error: unknown): never {
  const code = error instanceof Error ? refusal.exec(error.message)?.[1] : undefined
  if (code === undefined) throw error
  throw new StoreError('SLUICE_REDIS_REFUSED', `Redis refused (${code}): ${refusals[code]}`, {
    cause: error,
  })
}

async function within(answer: Promise<unknown>, timeoutMs: number, clock: Clock): Promise<unknown> {
  const silent = () =>
    new StoreError(
      'SLUICE_REDIS_SILENT',
      `Redis did not answer within ${timeoutMs} ms; whether the command was carried out is unknown, and asking again with the same id is safe, but for the beginning of an epoch`,
    )
  let cancel = () => {}
  const late = new Promise<never>((_, reject) => (cancel = clock.after(timeoutMs, () => reject(silent()))))
  try {
    return await Promise.race([answer, late])
  } finally {
    cancel()
  }
}
