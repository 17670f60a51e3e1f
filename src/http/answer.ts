/** The answer in a response, with its body where the reader needs that. */
import type { Response } from 'undici'
import type { Answer } from '../vendors/answer.ts'
import type { Reader } from '../vendors/reader.ts'
import { readBody, refusalBodyMs } from './capped.ts'

/** A larger body is not read: answers that refuse are small. */
const bodyMax = 65_536

/** AWS has media types of its own. */
const json = /^\s*application\/(?:json|x-amz-json-1\.[01]|[\w.-]+\+json)\s*(?:;|$)/i

/**
 * Returns what can be read of a response, which stays unread: of a body that the reader needs, that is JSON, has at most
 * 64 KiB and comes within 2 s, a copy is read.
 */
export async function answerOf(response: Response, reader: Reader): Promise<Answer> {
  const { status, headers } = response
  const isReadable =
    json.test(headers.get('content-type') ?? '') && Number(headers.get('content-length') ?? 0) <= bodyMax
  if (!isReadable || response.body === null || !reader.needsBody({ status, headers })) return { status, headers }
  return { status, headers, body: await readCopy(response) }
}

async function readCopy(response: Response): Promise<unknown> {
  const { bytes, isWhole } = await readBody(response.clone(), bodyMax, refusalBodyMs)
  try {
    return isWhole ? (JSON.parse(new TextDecoder().decode(bytes)) as unknown) : undefined
  } catch {
    return undefined
  }
}
