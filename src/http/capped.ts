/** Reads the bodies of responses up to a bound. */
import type { Response as UndiciResponse } from 'undici'

/** Reads a body of at most `maxBytes`; if there is more, stops reading and returns undefined. */
export async function readCapped(response: Response | UndiciResponse, maxBytes: number): Promise<Buffer | undefined> {
  if (Number(response.headers.get('content-length') ?? 0) > maxBytes) {
    await response.body?.cancel().catch(() => {})
    return undefined
  }
  const reader = response.body?.getReader()
  const chunks: Uint8Array[] = []
  let bytes = 0
  while (reader !== undefined) {
    const { done, value } = await reader.read()
    if (done) break
    bytes += value.byteLength
    if (bytes > maxBytes) {
      // It is not awaited: the cancel of a copy waits for the other one, which the handler reads later.
      void reader.cancel().catch(() => {})
      return undefined
    }
    chunks.push(value)
  }
  return Buffer.concat(chunks)
}
