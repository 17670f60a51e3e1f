import { loadClient } from './client.ts'

/** A streamed body. Until its first part is read it can be sent with another request. */
export class StreamBody implements AsyncIterable<Uint8Array> {
  readonly #source: AsyncIterable<Uint8Array>
  #isBegun = false
  #failure: { readonly error: unknown } | undefined

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source
  }

  /** True once a part was requested; the parts that were read are gone. */
  get isBegun(): boolean {
    return this.#isBegun
  }

  /** Set once the source has failed. */
  get failure(): { readonly error: unknown } | undefined {
    return this.#failure
  }

  // A generator does nothing before its first part is requested; if it is closed before that, the source is not touched.
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    this.#isBegun = true
    const source = this.#source
    try {
      yield* source
    } catch (error) {
      this.#failure = { error }
      throw error
    }
  }
}

/** A request body, ready to be sent: bytes can be sent again, a stream only once. */
export interface Body {
  readonly bytes?: Buffer
  readonly stream?: StreamBody
  /** The media type that the kind of body implies; undefined when it implies none. */
  readonly contentType?: string
}

function isStream(body: unknown): body is AsyncIterable<Uint8Array> {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body
}

async function encodeForm(body: object): Promise<Body> {
  // A process has two classes of this name, the runtime's and the package's; each reads only its own.
  const { FormData: ClientFormData, Response: ClientResponse } = loadClient()
  const response = body instanceof ClientFormData ? new ClientResponse(body) : new Response(body as FormData)
  const bytes = Buffer.from(await response.arrayBuffer())
  return { bytes, contentType: response.headers.get('content-type') ?? 'multipart/form-data' }
}

/** Converts what `fetch` accepts as a body into bytes where possible, so that it can be sent again unchanged. */
export async function encodeBody(body: unknown): Promise<Body> {
  if (body === null || body === undefined) return {}
  if (body instanceof URLSearchParams) {
    return { bytes: Buffer.from(body.toString()), contentType: 'application/x-www-form-urlencoded;charset=UTF-8' }
  }
  if (body instanceof ArrayBuffer || body instanceof SharedArrayBuffer)
    return { bytes: Buffer.from(new Uint8Array(body)) }
  // Copied: the caller may reuse its memory while the request waits for a grant.
  if (ArrayBuffer.isView(body)) {
    return { bytes: Buffer.from(new Uint8Array(body.buffer, body.byteOffset, body.byteLength)) }
  }
  if (body instanceof Blob) {
    const bytes = Buffer.from(await body.arrayBuffer())
    return body.type === '' ? { bytes } : { bytes, contentType: body.type }
  }
  if (Object.prototype.toString.call(body) === '[object FormData]') return encodeForm(body)
  if (isStream(body)) return { stream: new StreamBody(body) }
  // The standard would send "[object Object]", which is never intended.
  if (typeof body !== 'string') throw new TypeError(`A body of type ${typeof body} cannot be sent: use JSON.stringify`)
  return { bytes: Buffer.from(body), contentType: 'text/plain;charset=UTF-8' }
}
