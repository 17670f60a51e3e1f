/** The interface of a Redis client, and how it runs scripts. */
import { createHash } from 'node:crypto'
import { type Clock, systemClock } from '../core/clock.ts'
import { StoreError } from '../core/errors.ts'
import { span } from '../core/figures.ts'

/**
 * A connection to Redis (or Valkey) that the caller opened. One line makes one of any client: with ioredis
 * `{ send: (command, args) => redis.call(command, ...args) }`, with node-redis
 * `{ send: (command, args) => redis.sendCommand([command, ...args]) }`.
 * It may send a command again whose reply was lost, because the scripts carry out each call once. A client that begins epochs
 * should not: if state is lost in between, the repeated command would begin the same epoch again, with seeds that are out of date.
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
   * Runs the script by its name, or by its text if Redis does not know the name (after a restart or SCRIPT FLUSH).
   * @param timeoutMs longest wait for an answer; after it, whether the script ran is unknown
   * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
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
      // The code may stand after the word with which all errors of scripts begin.
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
export function sendCommand(
  client: RedisClient,
  command: string,
  args: readonly string[],
  timeoutMs: number,
  clock: Clock = systemClock,
): Promise<unknown> {
  return within(client.send(command, args).catch(refuse), timeoutMs, clock)
}

/** Redis's codes for commands that it does not carry out, and what to do about each. */
const refusals: Record<string, string> = {
  BUSY: 'another script runs for too long: Redis continues when it ends, or after SCRIPT KILL',
  CLUSTERDOWN: 'the cluster is not complete: repair its nodes; then it continues by itself',
  LOADING: 'it has just started: it continues by itself when it has read its data',
  MASTERDOWN: 'it is a replica without its master: give the address of the current master',
  MISCONF: 'it cannot write its data to disk, so it rejects writes: see its log',
  MOVED: 'it is one node of a cluster: give the URL of a cluster (redis+cluster://), or a client of clusters',
  ASK: 'it is one node of a cluster: give the URL of a cluster (redis+cluster://), or a client of clusters',
  CROSSSLOT:
    'a proxy or a cluster does not respect the hash tags of keys: connect without the proxy, or by another one',
  TRYAGAIN: 'the slot of these keys is moving to another node: it continues by itself',
  NOAUTH: 'give the user and the password in its URL',
  WRONGPASS: 'give the right user and password in its URL',
  NOPERM: 'its user may not do this; docs/redis.md lists the rights that it needs',
  NOREPLICAS: 'it has fewer replicas than it requires: repair them; then it continues by itself',
  OOM: 'its memory is full: give it more, or remove what else it holds; then it continues by itself',
  READONLY: 'it is a replica: give the address of the current master',
  UNKILLABLE: 'another script runs for too long and cannot be killed',
}
const refusal = new RegExp(`(?:^|[\\s-])(${Object.keys(refusals).join('|')})(?:\\s|$)`)

/** Returns true if a server refused a command because it is a replica now. */
export function isOfReplica(error: unknown): boolean {
  return error instanceof Error && /\((?:READONLY|MASTERDOWN)\)/.test(error.message)
}

/** Rethrows an error of the client. @throws StoreError SLUICE_REDIS_REFUSED if nothing was carried out; else the client's error */
function refuse(error: unknown): never {
  const code = error instanceof Error ? refusal.exec(error.message)?.[1] : undefined
  if (code === undefined) throw error
  throw new StoreError('SLUICE_REDIS_REFUSED', `Redis refused (${code}): ${refusals[code]}`, {
    cause: error,
  })
}

/**
 * True if this connection may have lost a reply, so that it has to be replaced. The client gives every later reply to the
 * command before the one that it answers. So no command gets its own reply in time.
 */
export function hasLostReply(error: unknown): boolean {
  return error instanceof StoreError && ['SLUICE_REDIS_SILENT', 'SLUICE_REDIS_ANSWER'].includes(error.code)
}

/**
 * Compares the id that a script's reply names with that of its call. Replies have no ids of their own: when one is lost on an open
 * connection, clients take the next one for it.
 * @throws StoreError SLUICE_REDIS_ANSWER
 */
export function checkReply(named: unknown, id: string): void {
  if (String(named) !== id) throw mixedError()
}

/** The error for a reply that is not one to its command. */
export function mixedError(): StoreError {
  return new StoreError(
    'SLUICE_REDIS_ANSWER',
    'Redis returned the reply to another command: replies of this connection are mixed up, so close it; sending the command again with the same id is safe, except for the beginning of an epoch',
  )
}

async function within(answer: Promise<unknown>, timeoutMs: number, clock: Clock): Promise<unknown> {
  const silentError = () =>
    new StoreError(
      'SLUICE_REDIS_SILENT',
      `Redis did not answer within ${span(timeoutMs)}; whether the command was carried out is unknown; sending it again with the same id is safe, except for the beginning of an epoch`,
    )
  let cancel = () => {}
  // A process that was busy reads in its next turn what has arrived meanwhile.
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(timeoutMs, () => setImmediate(() => reject(silentError())))
  })
  try {
    return await Promise.race([answer, late])
  } finally {
    cancel()
  }
}
