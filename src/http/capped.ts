/** Reads the bodies of responses up to a bound. */
import type { Response as UndiciResponse } from 'undici'
import { systemClock } from '../core/clock.ts'

/** How long the body of an answer that refuses, or may refuse, is awaited. Mostly its status is enough. */
export const refusalBodyMs = 2_000

/**
 * Reads a body of at most `maxBytes`; if there is more, or it has not ended after `withinMs`, stops reading and returns
 * undefined.
 */
export async function readCapped(
  response: Response | UndiciResponse,
  maxBytes: number,
  withinMs = Infinity,
): Promise<Buffer | undefined> {
  if (Number(response.headers.get('content-length') ?? 0) > maxBytes) {
    await response.body?.cancel().catch(() => {})
    return undefined
  }
  const reader = response.body?.getReader()
  const chunks: Uint8Array[] = []
  let bytes = 0
  let isStopped = false
  const stop = () => {
    isStopped = true
    // It is not awaited: the cancel of a copy waits for the other one, which the handler reads later.
    void reader?.cancel().catch(() => {})
  }
  // If this process was busy until now, the body may have arrived: it is read first.
  const disarm = withinMs === Infinity ? undefined : systemClock.after(withinMs, () => setImmediate(stop))
  try {
    while (reader !== undefined) {
      const { done, value } = await reader.read()
      if (done) break
      bytes += value.byteLength
      if (bytes > maxBytes) stop()
      else chunks.push(value)
    }
  } finally {
    disarm?.()
  }
  return isStopped ? undefined : Buffer.concat(chunks)
}
