/** Counts members of chords in the Redis of the results, beside workers of Celery. */
import { callRedis, callScript } from '../celery/redis-call.ts'
import { chordKey, groupKey, type RemoteError, resultKeptS, writeResult } from '../celery/result.ts'
import { readJson, writeJson } from '../celery/json.ts'
import { scripts } from '../generated/lua.ts'
import { Script } from '../redis/client.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { BegunChord, Part } from './call.ts'
import { runOnRedis } from './redis-command.ts'

/** How the members of a chord have ended: with their results, in order, or one with an error. */
export type ChordOutcome = { results: readonly unknown[] } | { error: RemoteError }

/** The chords of one Redis. */
export class Chords {
  readonly #redis: RedisConnection
  readonly #add = new Script(scripts['absorb/add_chord_part'] ?? '')

  constructor(redis: RedisConnection) {
    this.#redis = redis
  }

  /** Records how many members a chord has. */
  async begin({ groupId, size }: BegunChord): Promise<void> {
    await runOnRedis(() => callRedis(this.#redis, 'SETEX', [chordKey(groupId, '.s'), resultKeptS, String(size)]))
  }

  /** Adds the result of a member. Returns the outcome if it is the last one; the same member may be added again. */
  async add({ groupId, index, result }: Part): Promise<ChordOutcome | undefined> {
    const { result: value } = readJson(writeResult(result)) as { result: unknown }
    const member = writeJson([1, result.id, result.state, value], `the result of ${result.id}`)
    const keys = [...['.j', '.s', '.t'].map((part) => chordKey(groupId, part)), groupKey(groupId)]
    const args = [member, index === undefined ? '+inf' : String(index), resultKeptS]
    const added = await runOnRedis(() => callScript(this.#redis, this.#add, keys, args, groupKey(groupId)))
    const [isLast, isNested, found] = added as [number, number, string[]]
    if (isLast !== 1) return undefined
    const members = found.map((text) => readJson(text) as [number, string, string, unknown])
    if (isNested === 1) return chordError('a group inside of a chord is counted only by workers of Celery')
    const lost = members.find(([, , state]) => state === 'FAILURE' || state === 'REVOKED')
    if (lost === undefined) return { results: members.map(([, , , one]) => one) }
    const { exc_type: type, exc_message: why } = lost[3] as { exc_type?: string; exc_message?: unknown[] }
    return chordError(
      `Dependency ${lost[1]} raised ${type}(${(why ?? []).map((one) => JSON.stringify(one)).join(', ')})`,
    )
  }

  /** Forgets a chord whose last task was sent. */
  async end({ groupId }: Part): Promise<void> {
    const keys = ['.j', '.s', '.t'].map((part) => chordKey(groupId, part))
    await runOnRedis(() => callRedis(this.#redis, 'DEL', keys))
  }
}

const chordError = (why: string) => ({ error: { type: 'ChordError', module: 'celery.exceptions', args: [why] } })
