import type { RequestListener, ServerResponse } from 'node:http'
import type { Answers } from '../../src/vendors/reader.ts'

/** A vendor that allows three calls, and refuses from the fourth on as the vendor's page documents it. */
export interface StandIn {
  readonly vendor: Answers
  readonly of: string
  readonly allows: RequestListener
  readonly refuses: RequestListener
  /** How long the refusal lasts, in seconds, by the vendor's own clock. */
  readonly seconds: number
  /** What the reason of the hold contains. */
  readonly reason: string
}

/** Calls that a stand-in allows. */
export const allowance = 3

const json = (response: ServerResponse, status: number, content: unknown, headers: Record<string, string> = {}) => {
  const text = JSON.stringify(content)
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers })
  // In two parts, without a length, as most of these vendors send.
  response.write(text.slice(0, 7))
  response.end(text.slice(7))
}
const fine: RequestListener = (_, response) => json(response, 200, { fine: true })

/** The vendor's clock is wrong by years; its `Date` header shows that. */
const nowMs = Date.UTC(2031, 4, 6, 7, 8, 9)
const clock = { date: new Date(nowMs).toUTCString() }
const at = (seconds: number) => String(nowMs / 1_000 + seconds)

/** What a user writes for a vendor that answers 200 to everything, and states in the body whether it did something. */
const yourOwn: Answers = ({ headers, body }) =>
  (body as { state?: string }).state === 'BUSY'
    ? { refused: { waitMs: 1_000 * Number(headers.get('x-busy-for')), reason: 'busy' } }
    : undefined

/** The stand-ins; they share no code with the reader. */
export const standIns: readonly StandIn[] = [
  {
    vendor: 'github',
    of: 'a primary limit',
    allows: (_, response) =>
      json(response, 200, { id: 1 }, { ...clock, 'X-RateLimit-Remaining': '1', 'X-RateLimit-Resource': 'search' }),
    refuses: (_, response) => {
      const headers = { 'X-RateLimit-Limit': '30', 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': at(41) }
      const body = { message: 'API rate limit exceeded', documentation_url: 'https://docs.github.com' }
      json(response, 403, body, { ...clock, ...headers, 'X-RateLimit-Resource': 'search' })
    },
    seconds: 41,
    reason: '403 (search)',
  },
  {
    vendor: 'github',
    of: 'a secondary limit',
    allows: fine,
    refuses: (_, response) => json(response, 403, { message: 'You have exceeded a secondary rate limit.' }),
    seconds: 60,
    reason: '403 (secondary)',
  },
  {
    vendor: 'openai',
    of: 'tokens',
    allows: fine,
    refuses: (_, response) => {
      const headers = { 'x-ratelimit-remaining-tokens': '12', 'x-ratelimit-reset-tokens': '1m3.5s' }
      json(response, 429, { error: { type: 'tokens', code: 'rate_limit_exceeded' } }, headers)
    },
    seconds: 63.5,
    reason: '429 (tokens)',
  },
  {
    vendor: 'openai',
    of: 'requests',
    allows: (_, response) =>
      json(response, 200, {}, { 'x-ratelimit-limit-requests': '500', 'x-ratelimit-remaining-requests': '1' }),
    refuses: (_, response) => {
      const requests = { 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '8.64s' }
      const tokens = { 'x-ratelimit-remaining-tokens': '149984', 'x-ratelimit-reset-tokens': '6ms' }
      json(response, 429, { error: { type: 'requests', code: 'rate_limit_exceeded' } }, { ...requests, ...tokens })
    },
    seconds: 8.64,
    reason: '429 (requests)',
  },
  {
    vendor: 'anthropic',
    of: 'requests',
    allows: fine,
    refuses: (_, response) => {
      const requests = { 'anthropic-ratelimit-requests-remaining': '0', 'retry-after': '13' }
      const tokens = { 'anthropic-ratelimit-input-tokens-remaining': '20000' }
      json(response, 429, { type: 'error', error: { type: 'rate_limit_error' } }, { ...requests, ...tokens })
    },
    seconds: 13,
    reason: '429 (requests)',
  },
  {
    vendor: 'anthropic',
    of: 'output tokens',
    allows: fine,
    refuses: (_, response) => {
      const reset = new Date(nowMs + 22_000).toISOString().replace('.000', '')
      const family = 'anthropic-ratelimit-output-tokens'
      const headers = { [`${family}-limit`]: '8000', [`${family}-remaining`]: '0', [`${family}-reset`]: reset }
      json(response, 429, { type: 'error', error: { type: 'rate_limit_error' } }, { ...clock, ...headers })
    },
    seconds: 22,
    reason: '429 (output-tokens)',
  },
  {
    vendor: 'shopify',
    of: 'REST calls',
    allows: (_, response) => json(response, 200, { shop: {} }, { 'X-Shopify-Shop-Api-Call-Limit': '39/40' }),
    refuses: (_, response) => json(response, 429, { errors: 'Exceeded 2 calls per second' }, { 'Retry-After': '2.0' }),
    seconds: 2,
    reason: '429',
  },
  {
    vendor: 'shopify',
    of: 'the cost of GraphQL queries',
    allows: (_, response) => {
      const throttleStatus = { maximumAvailable: 2000, currentlyAvailable: 1508, restoreRate: 100 }
      json(response, 200, { data: {}, extensions: { cost: { requestedQueryCost: 700, throttleStatus } } })
    },
    refuses: (_, response) => {
      const throttleStatus = { maximumAvailable: 2000, currentlyAvailable: 250, restoreRate: 100 }
      const errors = [{ message: 'Throttled', extensions: { code: 'THROTTLED' } }]
      json(response, 200, { errors, extensions: { cost: { requestedQueryCost: 700, throttleStatus } } })
    },
    seconds: 4.5,
    reason: '200 (query cost)',
  },
  {
    vendor: 'stripe',
    of: 'an endpoint',
    allows: fine,
    refuses: (_, response) =>
      json(response, 429, { error: { code: 'rate_limit' } }, { 'Stripe-Rate-Limited-Reason': 'endpoint-rate' }),
    seconds: 1,
    reason: '429 (endpoint-rate)',
  },
  {
    vendor: 'slack',
    of: 'a method',
    allows: fine,
    refuses: (_, response) => json(response, 429, { ok: false, error: 'ratelimited' }, { 'Retry-After': '30' }),
    seconds: 30,
    reason: '429',
  },
  {
    vendor: 'twilio',
    of: 'concurrency',
    allows: fine,
    refuses: (_, response) => json(response, 429, { code: 20429, message: 'Too Many Requests' }),
    seconds: 1,
    reason: '429 (20429)',
  },
  {
    vendor: 'hubspot',
    of: 'ten seconds',
    allows: fine,
    refuses: (_, response) =>
      json(response, 429, { errorType: 'RATE_LIMIT', policyName: 'TEN_SECONDLY_ROLLING' }, { 'Retry-After': '9' }),
    seconds: 9,
    reason: '429 (TEN_SECONDLY_ROLLING)',
  },
  {
    vendor: 'salesforce',
    of: 'requests of a day',
    allows: (_, response) => json(response, 200, {}, { 'Sforce-Limit-Info': 'api-usage=14999/15000' }),
    refuses: (_, response) => json(response, 403, [{ errorCode: 'REQUEST_LIMIT_EXCEEDED', message: 'TotalRequests' }]),
    seconds: 1,
    reason: '403 (REQUEST_LIMIT_EXCEEDED)',
  },
  {
    vendor: 'google',
    of: 'a quota with a delay',
    allows: fine,
    refuses: (_, response) => {
      const details = [
        { '@type': 'type.googleapis.com/google.rpc.QuotaFailure', violations: [{ quotaId: 'PerDayPerProject' }] },
        { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '12.25s' },
      ]
      json(response, 429, { error: { code: 429, status: 'RESOURCE_EXHAUSTED', details } })
    },
    seconds: 12.25,
    reason: '429 (PerDayPerProject)',
  },
  {
    vendor: 'google',
    of: 'a rate, as 403',
    allows: fine,
    refuses: (_, response) => {
      const errors = [{ domain: 'usageLimits', reason: 'rateLimitExceeded', message: 'Rate Limit Exceeded' }]
      json(response, 403, { error: { code: 403, errors } }, { 'Retry-After': '6' })
    },
    seconds: 6,
    reason: '403 (rateLimitExceeded)',
  },
  {
    vendor: 'aws',
    of: 'a throughput',
    allows: fine,
    refuses: (_, response) =>
      json(
        response,
        400,
        { __type: 'com.amazon.coral#ThrottlingException' },
        {
          'content-type': 'application/x-amz-json-1.1',
        },
      ),
    seconds: 1,
    reason: '400 (com.amazon.coral#ThrottlingException)',
  },
  {
    vendor: 'discord',
    of: 'a route',
    allows: fine,
    refuses: (_, response) =>
      json(
        response,
        429,
        { message: 'You are being rate limited.', retry_after: 0.3, global: false },
        {
          'X-RateLimit-Bucket': 'abcd',
          'X-RateLimit-Remaining': '0',
          'X-RateLimit-Reset-After': '3.105',
          'Retry-After': '4',
        },
      ),
    seconds: 4,
    reason: '429 (abcd)',
  },
  {
    vendor: yourOwn,
    of: 'a vendor of your own',
    allows: (_, response) => json(response, 200, { state: 'DONE' }),
    refuses: (_, response) => json(response, 200, { state: 'BUSY' }, { 'X-Busy-For': '11' }),
    seconds: 11,
    reason: 'busy',
  },
]

/** Returns a vendor that allows three calls, and counts all. */
export function counting({ allows, refuses }: Pick<StandIn, 'allows' | 'refuses'>) {
  const seen = { calls: 0 }
  const listener: RequestListener = (request, response) => {
    request.resume()
    ;(++seen.calls > allowance ? refuses : allows)(request, response)
  }
  return { seen, listener }
}
