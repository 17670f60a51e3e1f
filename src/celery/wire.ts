/** A message of the broker, independent of any client, and its body: JSON, perhaps compressed. */
import { promisify } from 'node:util'
import { deflate, unzip } from 'node:zlib'
import { SluiceError, codeOf } from '../core/errors.ts'
import type { MaybePromise } from '../core/maybe-promise.ts'
import { isRecord, readJson } from './json.ts'

/** A message as a broker carries it. */
export interface WireMessage {
  contentType?: string | undefined
  contentEncoding?: string | undefined
  correlationId?: string | undefined
  replyTo?: string | undefined
  /** 1: lost when the broker restarts; 2: kept. */
  deliveryMode?: 1 | 2 | undefined
  priority?: number | undefined
  /** Ms as text, after which the broker drops what nobody has received. */
  expiration?: string | undefined
  /** Whole numbers have to go out as 32 bits: the AMQP client of Celery reads shorter ones as text. */
  headers: Record<string, unknown>
  body: Buffer
}

/** Longest body after decompression, in bytes: more would be a bomb. */
const bodyBytesMax = 64 * 1024 * 1024
/** The properties of a message whose body is JSON. */
export const inJson = { contentType: 'application/json', contentEncoding: 'utf-8' }
/** Celery's name of a zlib stream. */
const compression = 'application/x-gzip'

/** The message cannot be read, and will not be at another attempt: it belongs aside, and never back into its queue. */
export function unreadableError(why: string, cause?: unknown): SluiceError {
  return new SluiceError('SLUICE_CELERY_MESSAGE', `this message cannot be carried out: ${why}`, { cause })
}

/** Writes a body. */
export async function writeBody(
  text: string,
  isCompressed = false,
): Promise<Pick<WireMessage, 'body' | 'contentType' | 'contentEncoding'> & { compression?: string }> {
  if (!isCompressed) return { ...inJson, body: Buffer.from(text) }
  return { ...inJson, compression, body: await promisify(deflate)(text) }
}

/**
 * Reads a body. A promise only if it is compressed.
 * @param bytesMax longest body that is read, unpacked; default 64 MiB
 * @throws SluiceError SLUICE_CELERY_MESSAGE: not JSON, a compression that is not known, or too long
 */
export function readBody(
  { contentType, headers, body }: WireMessage,
  bytesMax: number = bodyBytesMax,
): MaybePromise<unknown> {
  if (contentType !== 'application/json') {
    const why = 'set task_serializer = "json" where it is sent; pickle runs code that the sender chooses'
    throw unreadableError(`its content type is ${contentType ?? 'missing'}, and only application/json is read (${why})`)
  }
  const packed = headers['compression'] ?? null
  if (packed !== null && packed !== compression)
    throw unreadableError(
      `its compression is ${JSON.stringify(packed)}, and only gzip (zlib) is read: set task_compression = "gzip"`,
    )
  if (body.length > bytesMax) throw tooLongError(bytesMax)
  return packed === null ? readText(body, 'its body is no JSON') : unpack(body, bytesMax)
}

async function unpack(body: Buffer, bytesMax: number): Promise<unknown> {
  const what = 'its body is no compressed JSON'
  const plain = await promisify(unzip)(body, { maxOutputLength: bytesMax }).catch((error: unknown) => {
    throw codeOf(error) === 'ERR_BUFFER_TOO_LARGE' ? tooLongError(bytesMax) : unreadableError(what, error)
  })
  return readText(plain, what)
}

function readText(plain: Buffer, otherwise: string): unknown {
  try {
    return readJson(plain.toString('utf8'))
  } catch (error) {
    throw unreadableError(otherwise, error)
  }
}

const tooLongError = (bytesMax: number) => unreadableError(`its body is longer than ${bytesMax / 2 ** 20} MiB`)

/** Reads a body that has to be an object. @throws SluiceError SLUICE_CELERY_MESSAGE */
export async function readRecord(message: WireMessage, what: string): Promise<Record<string, unknown>> {
  const found = await readBody(message)
  if (isRecord(found)) return found
  throw unreadableError(`${what} is an object, and this body is none`)
}
