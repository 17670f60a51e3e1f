/** Plays histories on Redis, with the shipped scripts; only the line that reads Redis's clock reads a key instead. */
import { createHash, randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { expect } from 'vitest'
import type { RedisClient } from '../../src/redis/client.ts'
import { toJson, type RedisBucket } from '../../src/redis/definition.ts'
import type { SettleAct } from '../../src/redis/call.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { type Act, type History, needs } from '../limits/acts.ts'
import { Twin } from '../limits/history.ts'

type Definition = Pick<RedisBucket, 'rules' | 'version'> & { countedFrom: number | undefined; isFull: boolean }
/** The fields of a scene; its kind decides which it has. */
interface Command {
  kind: string
  buckets?: string[]
  us: number
  name: string
  spec: { rules: Rule[]; refund?: string }
  grant: string
  claim: string
  /** A list, or a number for a refund and an overrun. */
  units: number[] & number
  places: number[]
}

/** Longer than any history: rows that a ledger would have deleted are not forgotten here. */
const keepUs = 100 * 366 * 86_400_000_000
const time = "redis.call('TIME')"
const look = readFileSync(new URL('look.lua', import.meta.url), 'utf8')
/** A script that gets its time from `setClock`. */
export const onStage = (text: string): string => {
  expect(text.split(time)).toHaveLength(2)
  return text.replace(time, "redis.call('LRANGE', 'test:clock', 0, 1)")
}
const lookText = onStage(scriptOf('reserve').replace(/-- Grants what fits[^]*/, look))

/** Packs states anew as older versions did: fewer fields, and not all numbers as doubles. */
const olderText = `for _, key in ipairs(KEYS) do
  local state = redis.call('HGET', key, 's')
  local values = state and cmsgpack.unpack(state)
  if values then redis.call('HSET', key, 's', cmsgpack.pack({ unpack(values, 1, 18) })) end
end`

/** Sets the clock of scripts on stage. */
export async function setClock(client: RedisClient, us: number): Promise<void> {
  await client.send('DEL', ['test:clock'])
  await client.send('RPUSH', ['test:clock', String(Math.floor(us / 1e6)), String(us % 1e6)])
}

/** A store of limits on Redis, with a clock that tests set. */
export class RedisStage {
  readonly #client: RedisClient
  readonly #limiter: RedisLimiter
  readonly #definitions = new Map<string, Definition>()
  readonly #names = new Map<string, string>()
  #nowUs = 0

  constructor(client: RedisClient) {
    this.#client = client
    this.#limiter = new RedisLimiter(client, { timeoutMs: 60_000 }, (name) => onStage(scriptOf(name)))
  }

  /** Plays a history act by act, each sent twice, and compares. Resolves to how many acts there were. */
  async compare(played: History): Promise<number> {
    // A ledger forgets by maintenance; here keys expire, which `look.lua` plays.
    const acts = played.acts.map((act): Act => (act.kind === 'retire' ? { kind: 'pass', us: act.us } : act))
    const history = { ...played, acts }
    const twin = new Twin(history)
    // Sent once; an absent bucket counts as never used.
    await this.#clock(1)
    expect(await this.#limiter.begin({ owner: 'sluice', epoch: 'stage', closeUs: 0 })).toMatchObject({
      isDecided: true,
    })
    const { ids, names } = twin.buckets
    for (const [i, id] of ids.entries()) this.#names.set(id, names[i] ?? '')
    for (const [i, { command, answer, state }] of twin.scenes.entries()) {
      // Processes of an older version may have written it.
      if (i % 3 === 0)
        await this.#client.send('EVAL', [olderText, String(ids.length), ...ids.map((id) => this.#limiter.keyOf(id))])
      const said = await this.#play(command as unknown as Command)
      const lines = state === null ? [] : await this.#look(command.buckets ?? ids, ids)
      const digest = createHash('md5').update(lines.join('\n')).digest('hex')
      if ((said === undefined || said === answer) && (state === null || state === digest)) continue
      const ahead = 1 + history.limits.length
      const again = new Twin({ ...history, acts: history.acts.slice(0, Math.max(0, i + 1 - ahead)) })
      const where = { act: i - ahead, what: command }
      const looked = command.buckets?.map((id) => again.buckets.ids[ids.indexOf(id)] ?? '')
      expect({ ...where, said, lines }).toEqual({ ...where, said: said && answer, lines: again.rows(looked) })
      throw new Error(`act ${i - ahead} differed, and did not when it was looked at again`)
    }
    return twin.scenes.length
  }

  /** The result of a command; undefined: there is nothing to compare. */
  async #play(command: Command): Promise<string | undefined> {
    const { kind, grant, claim, units, places } = command
    if (kind === 'clock') return this.#clock(command.us)
    if (kind === 'define') return this.#define(command.name, command.spec)
    const buckets = (command.buckets ?? []).map((id) => this.#bucket(id))
    if (kind === 'take') return this.#take(grant, buckets, units)
    if (kind === 'charge') return this.#charge(claim, buckets, units, places)
    const acts = buckets.map((_, bucket): SettleAct => {
      if (kind === 'release') return { bucket, ended: units[bucket] ?? 0 }
      if (kind === 'hold') return { bucket, holdUs: command.us }
      return { bucket, grant: claim, more: Number(units) * (kind === 'refund' ? -1 : 1) }
    })
    await this.#twice((id) => this.#limiter.settle({ id, buckets, acts }))
    return undefined
  }

  async #twice<T>(call: (id: string) => Promise<T>, id: string = randomUUID()): Promise<T> {
    const first = await call(id)
    expect(await call(id)).toEqual(first)
    return first
  }

  async #take(grant: string, buckets: RedisBucket[], units: number[]): Promise<string> {
    const items = [{ want: 1, takes: units.map((one, bucket) => ({ bucket, units: one })) }]
    const answer = await this.#twice((id) => this.#limiter.reserve({ id, buckets, items, isFurther: true }), grant)
    const [one] = answer.isDecided ? answer.results : []
    return `${one?.granted === 1} ${one?.waitUs}`
  }

  /** Units and numbers of jobs for each bucket: jobs of two sizes, for each bucket by itself. */
  async #charge(claim: string, buckets: RedisBucket[], units: number[], places: number[]): Promise<undefined> {
    const items = buckets.flatMap((_, bucket) => {
      const [all = 0, jobs = 0] = [units[bucket], places[bucket]]
      const size = jobs > 0 ? Math.floor(all / jobs) : 0
      const larger = all - size * jobs
      return [
        { want: jobs - larger, takes: [{ bucket, units: size }] },
        { want: larger, takes: [{ bucket, units: size + 1 }] },
      ]
    })
    const answer = await this.#twice((id) => this.#limiter.reserve({ id, buckets, items }), claim)
    const granted = answer.isDecided ? answer.results.map((one) => one.granted) : answer
    expect(granted).toEqual(items.map(({ want }) => want))
  }

  async #clock(us: number): Promise<undefined> {
    this.#nowUs = us
    await setClock(this.#client, us)
  }

  #define(name: string, { rules, refund }: Command['spec']): undefined {
    const old = this.#definitions.get(name)
    const version = (old?.version ?? 0) + (isDeepStrictEqual(old?.rules, rules) ? 0 : 1)
    const isCounted = rules.some((rule) => rule.kind === 'concurrency')
    const countedFrom = isCounted ? (old?.countedFrom ?? version) : undefined
    this.#definitions.set(name, { rules, version, countedFrom, isFull: refund === 'full' })
  }

  #bucket(id: string): RedisBucket {
    const definition = this.#definitions.get(this.#names.get(id) ?? '')
    if (definition === undefined) throw new Error(`no definition of ${id}`)
    const { countedFrom, ...rest } = definition
    return { name: id, ...rest, ...(countedFrom === undefined ? {} : { countedFrom }), keepUs }
  }

  async #look(looked: readonly string[], ids: readonly string[]): Promise<string[]> {
    const need = looked.map((id) => needs[ids.indexOf(id)] ?? 1)
    const keys = ['sluice:{limits}:epoch', ...looked.map((id) => this.#limiter.keyOf(id))]
    let asked: number[] = []
    for (let tries = 0; tries < 4; tries++) {
      const buckets = looked.map((id, i) => toJson(this.#bucket(id), [this.#nowUs, ...(asked[i] ? [asked[i]] : [])]))
      const argument = JSON.stringify({ id: '', buckets, need })
      const reply = await this.#client.send('EVAL', [lookText, String(keys.length), ...keys, argument])
      const [kind, ...rest] = reply as string[]
      if (kind === 'decided') return rest
      asked = rest.slice(3).map(Number)
    }
    throw new Error('it asks for calendars without end')
  }
}
