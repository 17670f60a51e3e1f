/** Frames of PostgreSQL's wire protocol: one letter, a length that includes itself, a body. Pure. */

/** The largest frame that is accepted, in bytes. */
export const maxFrameBytes = 64 * 1024 * 1024

/** One frame; `raw` includes the header, `body` does not. Both are views, not copies. */
export interface Frame {
  type: string
  raw: Buffer
  body: Buffer
}

/** Builds a frame. */
export function frame(type: string, ...parts: Buffer[]): Buffer {
  const head = Buffer.allocUnsafe(5)
  head.write(type, 'latin1')
  head.writeInt32BE(4 + parts.reduce((sum, part) => sum + part.length, 0), 1)
  return Buffer.concat([head, ...parts])
}

/** Encodes a string as in the protocol: UTF-8, terminated by a zero byte. */
export function text(value: string): Buffer {
  return Buffer.from(`${value}\0`)
}

/** Yields the complete frames in `bytes`; stops before an incomplete one. */
export function* frames(bytes: Buffer): Generator<Frame> {
  for (let at = 0; bytes.length - at >= 5;) {
    const end = at + 1 + bytes.readUInt32BE(at + 1)
    if (end > bytes.length) return
    yield { type: String.fromCharCode(bytes[at]!), raw: bytes.subarray(at, end), body: bytes.subarray(at + 5, end) }
    at = end
  }
}

/** Reads a string from `at`; returns it and the offset of the next field. Throws when the terminator is missing. */
export function readText(body: Buffer, at: number): [value: string, next: number] {
  const end = body.indexOf(0, at)
  if (end < 0) throw new RangeError('a string in the frame has no end')
  return [body.toString('utf8', at, end), end + 1]
}

/** Splits a stream of chunks into frames. A frame may span any number of chunks. */
export class Cutter {
  #chunks: Buffer[] = []
  #length = 0
  #need = 0

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#length += chunk.length
  }

  /**
   * Returns the next complete frame, or undefined. @throws RangeError for a length that is impossible or above the
   * maximum.
   */
  next(): Frame | undefined {
    return this.#cut(1)
  }

  /** Like `next`, for the first packet of a connection, which has no letter: `type` is ''. */
  nextStartup(): Frame | undefined {
    return this.#cut(0)
  }

  #cut(letter: 0 | 1): Frame | undefined {
    if (this.#length < Math.max(this.#need, 4 + letter)) return undefined
    const all = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks)
    this.#chunks = [all]
    const length = all.readUInt32BE(letter)
    if (length < 4 || length > (letter === 0 ? 10_000 : maxFrameBytes))
      throw new RangeError(`a frame of ${length} bytes`)
    const end = letter + length
    if (all.length < end) {
      // Joining the chunks again for each new one would cost the square of the frame's length.
      this.#need = end
      return undefined
    }
    this.#need = 0
    this.#chunks = all.length === end ? [] : [all.subarray(end)]
    this.#length = all.length - end
    return {
      type: letter === 0 ? '' : String.fromCharCode(all[0]!),
      raw: all.subarray(0, end),
      body: all.subarray(letter + 4, end),
    }
  }
}

/** Returns an error as the server would send it. */
export function errorFrame(severity: 'ERROR' | 'FATAL', code: string, message: string): Buffer {
  return frame('E', text(`S${severity}`), text(`V${severity}`), text(`C${code}`), text(`M${message}`), Buffer.from([0]))
}

/** Returns the frame of a simple query. */
export function query(sql: string): Buffer {
  return frame('Q', text(sql))
}
