import type { Headers } from 'undici'
import { AttemptError } from '../core/errors.ts'
import { loadClient } from './client.ts'
import type { StreamBody } from './body.ts'

/** One request of a chain of redirects. */
export interface Hop {
  readonly url: URL
  readonly method: string
  readonly headers: Headers
  readonly bytes: Buffer | undefined
  readonly stream: StreamBody | undefined
}

/** The most hops that are followed, as in browsers. */
export const maxRedirects = 20

const redirectStatuses: ReadonlySet<number> = new Set([301, 302, 303, 307, 308])
const bodyHeaders = ['content-encoding', 'content-language', 'content-length', 'content-location', 'content-type']
// The Fetch standard drops Authorization; outside of browsers the others are set by hand and are as secret.
const secretHeaders = ['authorization', 'proxy-authorization', 'cookie', 'host']

/** Returns the error of a redirect that is not followed: final, because the same request would be redirected again. */
export function redirectError(hop: Hop, why: string): AttemptError {
  return new AttemptError(
    'SLUICE_REDIRECT',
    `${hop.method} ${hop.url.origin}${hop.url.pathname} was redirected and not followed: ${why}`,
    { retryable: false },
  )
}

/**
 * Returns the request that a response redirects to, by the rules of the Fetch standard (method and body rewriting,
 * headers dropped across origins); undefined when the response is no redirect. @throws AttemptError SLUICE_REDIRECT when
 * it may not be followed
 */
export function redirectTo(hop: Hop, status: number, location: string | null): Hop | undefined {
  if (!redirectStatuses.has(status) || location === null) return undefined
  // Header values arrive as Latin-1; vendors send UTF-8 in them.
  const target = Buffer.from(location, 'latin1').toString('utf8')
  if (!URL.canParse(target, hop.url.href)) throw redirectError(hop, 'its Location is not a URL')
  const url = new URL(target, hop.url)
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw redirectError(hop, `to a ${url.protocol} URL`)
  const crossOrigin = url.origin !== hop.url.origin
  if (crossOrigin && (url.username !== '' || url.password !== '')) {
    throw redirectError(hop, 'its Location carries a user name or password')
  }
  // `fetch` rejects a URL with credentials; the standard uses them only on request, so they are removed.
  url.username = ''
  url.password = ''
  if (status !== 303 && hop.stream !== undefined) {
    throw redirectError(hop, 'its body is a stream, which can be sent only once; use a string, bytes or a Blob')
  }
  const headers = new (loadClient().Headers)(hop.headers)
  if (crossOrigin) for (const name of secretHeaders) headers.delete(name)
  const toGet =
    (hop.method === 'POST' && (status === 301 || status === 302)) ||
    (status === 303 && hop.method !== 'GET' && hop.method !== 'HEAD')
  if (!toGet) return { url, method: hop.method, headers, bytes: hop.bytes, stream: undefined }
  for (const name of bodyHeaders) headers.delete(name)
  return { url, method: 'GET', headers, bytes: undefined, stream: undefined }
}
