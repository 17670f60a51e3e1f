/** Identities: the same 64-bit hashes that `sluice.hash64` computes in SQL, and time-ordered job ids. */
import { createHash } from 'node:crypto'
import { v7, validate, version } from 'uuid'

/** The first 8 bytes of SHA-256 of `name`, as the decimal text of a signed 64-bit integer. */
export function hash64(name: string): string {
  return createHash('sha256').update(name, 'utf8').digest().readBigInt64BE(0).toString()
}

/** A new id: a UUIDv7, so that ids sort by creation and history can be partitioned by them. */
export function newId(): string {
  return v7()
}

/** True for a UUIDv7. */
export function isId(text: string): boolean {
  return validate(text) && version(text) === 7
}

/** The creation time inside a UUIDv7, in ms since 1970. */
export function idMs(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16)
}
