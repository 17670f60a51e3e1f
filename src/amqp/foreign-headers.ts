/**
 * Headers that amqplib does not read, because of their types or their depth. One such header, for example an integer beyond 32 bits
 * from Python, would end the connection; the server would deliver the message again, and that would go on for ever.
 */

/** Bytes of a value, by its type; the others carry their length. */
const sizes: Record<string, number> = { t: 1, b: 1, B: 1, s: 2, u: 2, I: 4, i: 4, l: 8, d: 8, f: 4, D: 5, T: 8, V: 0 }
const frameHead = 7
const headerFrame = 2

/**
 * Returns the bytes with readable headers if they begin with a content header whose table amqplib cannot read: an integer of
 * py-amqp's type `L` is changed to the same of type `l`; a header of an unknown type is left out, and those behind it, whose
 * beginning cannot be found. Undefined: it is something else.
 */
export function withReadableHeaders(bytes: Buffer): Buffer | undefined {
  if (bytes.length < frameHead || bytes[0] !== headerFrame) return undefined
  const size = bytes.readUInt32BE(3)
  const payload = bytes.subarray(frameHead, frameHead + size)
  const flags = payload.readUInt16BE(12)
  if ((flags & 0x2000) === 0) return undefined
  // Content type and encoding stand before the headers.
  let at = 14
  for (const flag of [0x8000, 0x4000]) if ((flags & flag) !== 0) at += 1 + payload.readUInt8(at)
  const end = at + 4 + payload.readUInt32BE(at)
  const table = makeReadable(payload.subarray(at + 4, end))
  const length = Buffer.alloc(4)
  length.writeUInt32BE(table.length)
  const head = Buffer.from(bytes.subarray(0, frameHead))
  const changed = Buffer.concat([payload.subarray(0, at), length, table, payload.subarray(end)])
  head.writeUInt32BE(changed.length, 3)
  return Buffer.concat([head, changed, bytes.subarray(frameHead + size)])
}

/** A copy of a table that amqplib reads. */
function makeReadable(given: Buffer): Buffer {
  const table = Buffer.from(given)
  const kept: Buffer[] = []
  for (let at = 0; at < table.length;) {
    const value = at + 1 + table.readUInt8(at)
    const end = endOf(table, value)
    if (end === undefined) break
    if (isKnown(table, value)) kept.push(table.subarray(at, end))
    at = end
  }
  return Buffer.concat(kept)
}

/** Where the value that begins here ends; undefined: its type is unknown. Changes the type `L`. */
function endOf(table: Buffer, at: number): number | undefined {
  if (table[at] === 0x4c) table[at] = 0x6c
  const type = String.fromCharCode(table.readUInt8(at))
  if ('SxFA'.includes(type)) return at + 5 + table.readUInt32BE(at + 1)
  const size = sizes[type]
  return size === undefined ? undefined : at + 1 + size
}

/** Values that are nested deeper are left out: amqplib calls itself for each level, and fails some thousand levels deep. */
const levelsMax = 100

/** True if all values inside of a table or an array have known types, too. */
function isKnown(table: Buffer, at: number, levels = levelsMax): boolean {
  const type = String.fromCharCode(table.readUInt8(at))
  if (type !== 'F' && type !== 'A') return true
  if (levels === 0) return false
  const inner = table.subarray(at + 5, at + 5 + table.readUInt32BE(at + 1))
  for (let next = 0; next < inner.length;) {
    const value = type === 'F' ? next + 1 + inner.readUInt8(next) : next
    const end = endOf(inner, value)
    if (end === undefined || !isKnown(inner, value, levels - 1)) return false
    next = end
  }
  return true
}
