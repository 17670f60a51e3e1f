/** Hashes and ids: the same 64-bit hashes that `sluice.hash64` computes in SQL, and time-ordered job ids. */
import { createHash, randomFillSync } from 'node:crypto'
import { v5, v7, validate, version } from 'uuid'
import { type Clock, systemClock } from './clock.ts'

/** Returns the first 8 bytes of SHA-256 of `name`, as the decimal text of a signed 64-bit integer. */
export function hash64(name: string): string {
  return createHash('sha256').update(name, 'utf8').digest().readBigInt64BE(0).toString()
}

/**
 * Returns `hash64` from a cache: the identities of lanes and classes repeat, and hashing them would be most of the cost
 * of a send.
 */
export function hashed(identity: string): string {
  const known = remembered.get(identity)
  if (known !== undefined) return known
  if (remembered.size >= 10_000) remembered.clear()
  const id = hash64(identity)
  remembered.set(identity, id)
  return id
}

/** Returns a hash without its lowest bit, which is 1 for lanes of retries. */
export function even(hash: string): string {
  return (BigInt(hash) & -2n).toString()
}

const remembered = new Map<string, string>()

/** Random bytes for many ids: fetching those of one id at a time takes longer than everything else about making a job. */
const pool = Buffer.alloc(16 * 256)
let used = pool.length
let lastMs = 0
let lastSeq = 0

/**
 * Returns a new UUIDv7: ids sort by creation time, and history can be partitioned by them. Within one process ids only
 * increase.
 */
export function newId(): string {
  if (used === pool.length) {
    randomFillSync(pool)
    used = 0
  }
  const random = pool.subarray(used, (used += 16))
  const nowMs = systemClock.wallMs()
  // A 31-bit counter with a random start orders the ids of one millisecond, also after the clock was set back (RFC 9562,
  // 6.2).
  if (nowMs > lastMs) [lastMs, lastSeq] = [nowMs, random.readUInt32BE(6) >>> 2]
  else lastSeq++
  return v7({ random, msecs: lastMs, seq: lastSeq })
}

/** Returns a UUID that follows from a text: always the same one. */
export function idFrom(text: string): string {
  return v5(text, v5.URL)
}

/** True for a UUIDv7. */
export function isId(text: string): boolean {
  return validate(text) && version(text) === 7
}

/**
 * True for a UUIDv7 made within a day of now: by this clock, or by the machine's, which `newId` reads while a test moves the
 * other one.
 */
export function isRecentId(id: string, clock: Pick<Clock, 'wallMs'>): boolean {
  return isId(id) && [clock, systemClock].some((one) => Math.abs(idMs(id) - one.wallMs()) <= 86_400_000)
}

/** Returns the creation time inside a UUIDv7, in ms since 1970. */
export function idMs(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
}
