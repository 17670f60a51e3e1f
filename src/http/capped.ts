/** Reads the bodies of responses up to a bound. */
import type { Response as UndiciResponse } from 'undici'
import { systemClock } from '../core/clock.ts'

/** How long the body of an answer that refuses, or may refuse, is awaited. Mostly its status is enough. */
export const refusalBodyMs = 2_000

/** What was read of a body. */
export interface ReadBody {
  readonly bytes: Buffer
  /** False: the body is longer, did not end in time, or broke off. */
  readonly isWhole: boolean
  /** The error with which it broke off; undefined: it did not. */
  readonly failure: unknown
}

/**
 * Reads a body until it ends, is longer than `maxBytes` (below 0: at once), or `withinMs` are over; then it stops reading. Never
 * rejects. Counts a body that somebody else reads as empty.
 */
export async function readBody(
  response: Response | UndiciResponse,
  maxBytes: number,
  withinMs = Infinity,
): Promise<ReadBody> {
  const reader = response.body?.locked === true ? undefined : response.body?.getReader()
  const chunks: Uint8Array[] = []
  let isWhole = true
  let failure: unknown
  const stop = () => {
    isWhole = false
    // It is not awaited: the cancel of a copy waits for the other one, which the handler reads later.
    void reader?.cancel().catch(() => {})
  }
  // If this process was busy until now, the body may have arrived: it is read first.
  const disarm = systemClock.after(withinMs, () => setImmediate(stop))
  try {
    for (let left = maxBytes; reader !== undefined;) {
      if (left < 0) stop()
      const { done, value } = await reader.read()
      if (done) break
      left -= value.byteLength
      chunks.push(value)
    }
  } catch (error) {
    isWhole = false
    failure = error
  } finally {
    disarm()
  }
  return { bytes: Buffer.concat(chunks), isWhole, failure }
}
