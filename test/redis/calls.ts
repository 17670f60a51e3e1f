/** Functions that tests of limits in Redis share. */
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import type { RedisBucket, Seed } from '../../src/redis/definition.ts'
import type { Decided } from '../../src/redis/call.ts'

/** A bucket under a definition. */
export function bucket(name: string, options: LimitOptions, version = 1): RedisBucket {
  const { rules } = limit('a', options)
  return { name, rules, version, ...(options.concurrency === undefined ? {} : { countedFrom: 1 }) }
}

/** The seed of a bucket that was never used, with these fields changed. */
export function seedOf(one: RedisBucket, more: Partial<Seed> = {}): Seed {
  const none = one.rules.map(() => [])
  return { bucket: one, holdUs: 0, debt: one.rules.map(() => 0), parts: none, spent: none, ...more }
}

/** The results of a call that was decided. */
export function decided<T>(answer: Decided<T>): T[] {
  if (!answer.isDecided) throw new Error(`not decided: ${JSON.stringify(answer)}`)
  return answer.results
}
