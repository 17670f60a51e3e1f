import { AttemptError, UsageError } from '../core/errors.ts'
import { redactText } from '../core/redact.ts'
import { readBody, refusalBodyMs } from './capped.ts'
import { limitedBy, rateLimited } from './feedback.ts'

/**
 * The vendor answered with a status that is no success. Code `SLUICE_HTTP_STATUS`; retryable for 408, 425, 429 and 5xx.
 */
export class HttpStatusError extends AttemptError {
  readonly status: number
  /** The first 500 characters of the response's body, without secrets; also part of the message. */
  readonly body: string
  constructor(where: string, status: number, body: string, how: { retryable: boolean; retryAfterMs?: number }) {
    const next = how.retryable ? 'Another attempt may succeed.' : 'Repeating it as it is cannot help.'
    const answer = body === '' ? '' : ` The response began: ${body}`
    super('SLUICE_HTTP_STATUS', `${where} answered ${status}. ${next}${answer}`, how)
    this.status = status
    this.body = body
  }
}

const shownCharacters = 500
/** More than is shown: a secret that was cut off would not be recognised. */
const readBytes = 8_192

function isRetryable(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || (status >= 500 && status <= 599)
}

/** Returns the beginning of the body, without secrets; if the body breaks off or stalls, of what was read until then. */
async function readStart(response: Response): Promise<string> {
  const { bytes } = await readBody(response, readBytes - 1, refusalBodyMs)
  return redactText(new TextDecoder().decode(bytes.subarray(0, readBytes))).slice(0, shownCharacters)
}

/**
 * Returns the error for a response that is no success: `HttpStatusError`, or that of `rateLimited` if the vendor demands a
 * pause. @param where the request, for the message
 */
export async function statusError(response: Response, where: string): Promise<AttemptError> {
  const limited = limitedBy(response)
  // Read before anything is thrown, so that the connection becomes free.
  const body = await readStart(response)
  if (limited !== undefined) return rateLimited(response)
  return new HttpStatusError(where, response.status, body, { retryable: isRetryable(response.status) })
}

/**
 * Returns a response of 2xx or 3xx; for any other it throws what its status means for the job:
 * - 429, 503 with Retry-After, and what else the profile of the limit's vendor knows as a refusal (GitHub's 403, Shopify's
 * 200): retried, not before the vendor's time (`SLUICE_VENDOR_LIMITED`, as `rateLimited`);
 * - 408, 425 and other 5xx: retried by the task's `retry` (`SLUICE_HTTP_STATUS`);
 * - everything else: the job has failed for good, since a repetition would get the same answer (`SLUICE_HTTP_STATUS`).
 *
 * The error has the status and the first 500 characters of the body, without secrets. The body of a response that is
 * returned is not read. Any `fetch` response will do; only that of `ctx.fetch` has held the limit for other jobs.
 * @example
 * const response = await check(await fetch(url))
 * @throws AttemptError SLUICE_HTTP_STATUS (then an HttpStatusError), SLUICE_VENDOR_LIMITED; UsageError SLUICE_BAD_OPTION for what is
 * no response
 */
export async function check(response: Response): Promise<Response> {
  // A promise, mostly: as an error of the program it would be tried again, with another call each time.
  if (typeof response?.status !== 'number')
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      'what was given to `check` is no response: write `await check(await fetch(url))`',
    )
  if (response.status >= 200 && response.status <= 399 && limitedBy(response) === undefined) return response
  throw await statusError(response, whereOf(response))
}

/** Returns origin and path of the request: its query may contain personal data. */
function whereOf({ url }: Response): string {
  if (!URL.canParse(url)) return 'The vendor'
  const { origin, pathname } = new URL(url)
  return `${origin}${pathname}`
}
