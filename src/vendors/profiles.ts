/** The table: which headers count, and which answers refuse, by vendor. Each row follows the page that its profile names. */
import type { CountUnit } from './answer.ts'
import type { Source } from './source.ts'

/** The place of a count in an answer. */
export interface CountRow {
  readonly unit: CountUnit
  /** The vendor's name of the limit; `policyAt`: where it stands. */
  readonly policy?: string
  readonly policyAt?: Source
  readonly windowMs?: number
  /** As in `Count`. */
  readonly isFixed?: true
  /** The place of the window's length, in ms. */
  readonly windowAt?: Source
  readonly limit?: Source
  readonly remaining?: Source
  /** When the count begins anew, in any form that `readReset` reads. */
  readonly reset?: Source
  /** Units that come back each second; the count is full again when all that was used has come back. */
  readonly perSecond?: Source
  /** One text with used units and limit, as groups `used` and `limit`; in place of `limit` and `remaining`. */
  readonly usage?: { readonly at: Source; readonly form: RegExp }
}

/** An answer that refuses for now. */
export interface RefusalRow {
  readonly status: readonly number[]
  /** All of these must hold: the source has a text that matches. */
  readonly where?: Readonly<Record<Source, RegExp>>
  /** `time`: it states how long to wait; `exhausted`: nothing remains in one of its counts. */
  readonly needs?: 'time' | 'exhausted'
  /** The place of a wait, beside `Retry-After`. */
  readonly wait?: readonly Source[]
  /** The wait until what the request needs has come back. */
  readonly refill?: { readonly needed: Source; readonly available: Source; readonly perSecond: Source }
  /** The vendor's name of the limit; `policyAt`: where it stands, the first that is there. */
  readonly policy?: string
  readonly policyAt?: readonly Source[]
  /** The wait when the answer states none, in ms, if the vendor's page names one. */
  readonly otherwiseMs?: number
}

/** The form of one vendor's answers, beside what holds for all vendors. */
export interface Profile {
  /** The vendor's page. */
  readonly page: string
  /** In place of the headers that are read of an unknown vendor. */
  readonly counts: readonly CountRow[]
  /** Beside those of an unknown vendor: 429, and 503 with `Retry-After`. */
  readonly refusals: readonly RefusalRow[]
  /** Answers that reject the credential itself, beside 401: a 403 mostly rejects one request. */
  readonly rejections?: readonly Pick<RefusalRow, 'status' | 'where'>[]
}

const minute = 60_000
const day = 86_400_000
const windows = { second: 1_000, minute, hour: 3_600_000, day } as const

function countHeaders(prefix: string, suffix = ''): Pick<CountRow, 'limit' | 'remaining' | 'reset'> {
  return {
    limit: `${prefix}-limit${suffix}`,
    remaining: `${prefix}-remaining${suffix}`,
    reset: `${prefix}-reset${suffix}`,
  }
}

const plain: CountRow = { unit: 'requests', ...countHeaders('x-ratelimit') }
const ofRequests: CountRow = { unit: 'requests', policy: 'requests', ...countHeaders('x-ratelimit', '-requests') }
const ofTokens: CountRow = { unit: 'tokens', policy: 'tokens', ...countHeaders('x-ratelimit', '-tokens') }

/** Headers of a vendor without a profile, beside `RateLimit` of the current draft and of draft 07. */
export const generalCounts: readonly CountRow[] = [
  // Up to draft 06.
  { unit: 'requests', ...countHeaders('ratelimit') },
  plain,
  { unit: 'requests', ...countHeaders('x-rate-limit') },
  ofRequests,
  ofTokens,
  ...Object.entries(windows).map(([name, windowMs]): CountRow => {
    return { unit: 'requests', policy: name, windowMs, ...countHeaders('x-ratelimit', `-${name}`) }
  }),
]

/** Refusals of every vendor, after those of its profile. */
export const generalRefusals: readonly RefusalRow[] = [
  { status: [429], wait: ['x-ratelimit-retry-after'] },
  { status: [503], needs: 'time' },
]

function anthropicCount(unit: CountUnit): CountRow {
  const header = `anthropic-ratelimit-${unit}`
  return { unit, policy: unit, limit: `${header}-limit`, remaining: `${header}-remaining`, reset: `${header}-reset` }
}

const shopifyCost = '#/extensions/cost'
const shopifyBucket = `${shopifyCost}/throttleStatus`
const shopifyThrottled: Omit<RefusalRow, 'where'> = {
  status: [200],
  policy: 'query cost',
  refill: {
    needed: `${shopifyCost}/requestedQueryCost`,
    available: `${shopifyBucket}/currentlyAvailable`,
    perSecond: `${shopifyBucket}/restoreRate`,
  },
}

const googleRefusal: Omit<RefusalRow, 'status'> = {
  wait: ['#/error/details/*/retryDelay'],
  policyAt: [
    '#/error/details/*/metadata/quota_limit',
    '#/error/details/*/violations/*/quotaId',
    '#/error/errors/*/reason',
  ],
}

/**
 * Error codes by which AWS throttles: those that its SDKs retry as throttling, without LimitExceededException and
 * TransactionInProgressException, which also mean what no waiting ends.
 */
const awsCodes =
  /^(?:.*[#/])?(?:Throttling|ThrottlingException|ThrottledException|RequestThrottled|RequestThrottledException|TooManyRequestsException|ProvisionedThroughputExceededException|RequestLimitExceeded|BandwidthLimitExceeded|SlowDown|PriorRequestNotComplete|EC2ThrottledException)(?::.*)?$/

/** Error codes by which AWS rejects who signed, or how: https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html */
const awsRejections =
  /^(?:.*[#/])?(?:ExpiredToken|ExpiredTokenException|IncompleteSignature|InvalidAccessKeyId|InvalidClientTokenId|InvalidSignatureException|SignatureDoesNotMatch|UnrecognizedClientException)(?::.*)?$/

/** The profiles by name. */
export const profiles = {
  github: {
    page: 'https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api',
    counts: [{ ...plain, policyAt: 'x-ratelimit-resource', isFixed: true }],
    refusals: [
      { status: [403, 429], needs: 'exhausted' },
      { status: [403, 429], where: { 'retry-after': /./ }, policy: 'secondary' },
      {
        status: [403],
        where: { '#/message': /rate limit|abuse detection/i },
        policy: 'secondary',
        otherwiseMs: minute,
      },
      // GraphQL. A commit that is read has a `message` too, so only errors count in a success.
      { status: [200], where: { '#/errors/*/type': /^RATE_LIMIT(?:ED)?$/ }, otherwiseMs: minute },
      {
        status: [200],
        where: { '#/errors/*/message': /secondary rate limit/i },
        policy: 'secondary',
        otherwiseMs: minute,
      },
      { status: [429], policy: 'secondary', otherwiseMs: minute },
    ],
  },
  openai: {
    page: 'https://platform.openai.com/docs/guides/rate-limits',
    counts: [ofRequests, ofTokens],
    refusals: [{ status: [429], wait: ['retry-after-ms'], policyAt: ['#/error/type'] }],
  },
  anthropic: {
    page: 'https://docs.anthropic.com/en/api/rate-limits',
    counts: (['requests', 'tokens', 'input-tokens', 'output-tokens'] as const).map(anthropicCount),
    refusals: [{ status: [529], needs: 'time', policy: 'overloaded' }],
  },
  shopify: {
    page: 'https://shopify.dev/docs/api/usage/limits',
    counts: [
      {
        unit: 'requests',
        policy: 'calls',
        usage: { at: 'x-shopify-shop-api-call-limit', form: /^\s*(?<used>\d+)\/(?<limit>\d+)\s*$/ },
      },
      {
        unit: 'points',
        policy: 'query cost',
        limit: `${shopifyBucket}/maximumAvailable`,
        remaining: `${shopifyBucket}/currentlyAvailable`,
        perSecond: `${shopifyBucket}/restoreRate`,
      },
    ],
    refusals: [
      { ...shopifyThrottled, where: { '#/errors/*/extensions/code': /^THROTTLED$/ } },
      { ...shopifyThrottled, where: { '#/errors/*/message': /^Throttled$/ } },
    ],
  },
  stripe: {
    page: 'https://docs.stripe.com/rate-limits',
    counts: [],
    refusals: [{ status: [429], policyAt: ['stripe-rate-limited-reason'] }],
  },
  slack: {
    page: 'https://docs.slack.dev/apis/web-api/rate-limits',
    counts: [],
    refusals: [],
  },
  twilio: {
    page: 'https://www.twilio.com/docs/api/errors/20429',
    counts: [],
    refusals: [{ status: [429], policyAt: ['#/code'] }],
  },
  hubspot: {
    page: 'https://developers.hubspot.com/docs/api/usage-details',
    counts: [
      {
        unit: 'requests',
        policy: 'DAILY',
        windowMs: day,
        limit: 'x-hubspot-ratelimit-daily',
        remaining: 'x-hubspot-ratelimit-daily-remaining',
      },
      {
        unit: 'requests',
        policy: 'SECONDLY',
        windowMs: 1_000,
        limit: 'x-hubspot-ratelimit-secondly',
        remaining: 'x-hubspot-ratelimit-secondly-remaining',
      },
      {
        unit: 'requests',
        policy: 'TEN_SECONDLY_ROLLING',
        windowAt: 'x-hubspot-ratelimit-interval-milliseconds',
        limit: 'x-hubspot-ratelimit-max',
        remaining: 'x-hubspot-ratelimit-remaining',
      },
    ],
    refusals: [{ status: [429], policyAt: ['#/policyName'] }],
  },
  salesforce: {
    page: 'https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/headers_api_usage.htm',
    counts: [
      {
        unit: 'requests',
        policy: 'api-usage',
        windowMs: day,
        usage: { at: 'sforce-limit-info', form: /(?:^|[;,\s])api-usage=(?<used>\d+)\/(?<limit>\d+)/ },
      },
    ],
    refusals: [{ status: [403], where: { '#/*/errorCode': /^REQUEST_LIMIT_EXCEEDED$/ }, policyAt: ['#/*/errorCode'] }],
  },
  google: {
    page: 'https://cloud.google.com/apis/design/errors',
    counts: [],
    refusals: [
      { status: [429], ...googleRefusal },
      {
        status: [403],
        where: {
          '#/error/errors/*/reason':
            /^(?:rateLimitExceeded|userRateLimitExceeded|quotaExceeded|dailyLimitExceeded(?:Unreg)?)$/,
        },
        ...googleRefusal,
      },
      { status: [403], where: { '#/error/status': /^RESOURCE_EXHAUSTED$/ }, ...googleRefusal },
    ],
  },
  aws: {
    page: 'https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html',
    counts: [],
    refusals: [
      { status: [400, 403, 429, 503], where: { 'x-amzn-errortype': awsCodes }, policyAt: ['x-amzn-errortype'] },
      { status: [400, 403, 429, 503], where: { '#/__type': awsCodes }, policyAt: ['#/__type'] },
      { status: [400, 403, 429, 503], where: { '#/code': awsCodes }, policyAt: ['#/code'] },
      // S3 and EC2 throttle with it, and name their codes in XML.
      { status: [503] },
    ],
    rejections: ['x-amzn-errortype', '#/__type', '#/code'].map((source) => ({
      status: [400, 403],
      where: { [source]: awsRejections },
    })),
  },
  discord: {
    page: 'https://docs.discord.com/developers/topics/rate-limits',
    counts: [
      {
        unit: 'requests',
        policyAt: 'x-ratelimit-bucket',
        ...countHeaders('x-ratelimit'),
        reset: 'x-ratelimit-reset-after',
        isFixed: true,
      },
    ],
    refusals: [
      { status: [429], where: { 'x-ratelimit-global': /^true$/i }, wait: ['#/retry_after'], policy: 'global' },
      { status: [429], wait: ['#/retry_after'], policyAt: ['x-ratelimit-bucket'] },
    ],
  },
} as const satisfies Readonly<Record<string, Profile>>

/** A vendor whose answers Sluice knows how to read. */
export type VendorName = keyof typeof profiles
