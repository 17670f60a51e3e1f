/** Keys that do not come from an input: labels of the worker, and pools, of which a claim chooses the member with most room. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type SecretSource, secretValue } from '../core/secret.ts'

/** A label of the worker as the key of a limit. Made by {@link label}. */
export interface Label {
  readonly label: string
}

/** One member of a pool; see the fields. All but the key stays in the code, and never gets into the database. */
export interface PoolMember {
  /** Identifies the member: an account, a key's name, an address; 1 to 512 characters. */
  readonly key: string
  /** Base of requests that name only a path (`ctx.fetch('/contacts')`); `http:` or `https:`. */
  readonly baseUrl?: string | undefined
  /** The source of `secret()` in the handler: an environment variable of the worker, or a function that returns it. */
  readonly secret?: SecretSource | undefined
  /** Headers of requests that name only a path, or a function that makes them from the secret. */
  readonly headers?:
    | Readonly<Record<string, string>>
    | ((secret: string) => Readonly<Record<string, string>>)
    | undefined
  /** Whatever else the handler needs of the member. */
  readonly data?: unknown
}

/** The member of a pool that an attempt was granted: the handler finds it in `ctx.pool`, under the limit's name. */
export interface Chosen extends Pick<PoolMember, 'key' | 'baseUrl' | 'data'> {
  /**
   * Returns its secret, which is redacted from results and errors from now on.
   * @throws AttemptError SLUICE_SECRET_UNAVAILABLE, retryable; UsageError SLUICE_BAD_LIMIT if it was defined without one
   */
  secret(): Promise<string>
  /** Returns its headers, with the secret in them. @throws AttemptError SLUICE_SECRET_UNAVAILABLE */
  headers(): Promise<Readonly<Record<string, string>>>
}

/** A claim reads all members, and cannot afford more. */
const poolMax = 64
const memberFields = ['key', 'baseUrl', 'secret', 'headers', 'data']

/**
 * A limit for each worker, host or address: its bucket is that of the worker's label, so more machines multiply the limit.
 * @param name every worker has `host` and `ip`; others are given by `sluice.work(tasks, { labels })`, `sluice work --label`
 * or SLUICE_LABELS. A worker without the label does not get the jobs.
 * @throws UsageError SLUICE_BAD_LABEL
 * @example limit('crm', { rate: '5/s', by: label('ip') })
 */
export function label(name: string): Label {
  return { label: checkLabel(name) }
}

/** Returns the name of a label if it is valid. @throws UsageError SLUICE_BAD_LABEL */
export function checkLabel(name: string): string {
  if (typeof name === 'string' && /^[a-z][a-z0-9._-]{0,62}$/.test(name)) return name
  throw new UsageError(
    'SLUICE_BAD_LABEL',
    `"${name}" cannot name a label: use a-z, 0-9, ".", "_", "-", beginning with a letter, up to 63 characters`,
  )
}

/** True for a value that {@link label} made. */
export function isLabel(by: unknown): by is Label {
  return typeof by === 'object' && by !== null && typeof (by as Label).label === 'string'
}

/**
 * Returns the members of a pool, each as an object.
 * @param checkKey returns a key if it is valid
 * @throws UsageError SLUICE_BAD_POOL, SLUICE_BAD_KEY
 */
export function membersOf(
  limit: string,
  pool: readonly (string | PoolMember)[],
  checkKey: (key: string) => string,
): readonly PoolMember[] {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_BAD_POOL', `limit "${limit}": ${why}`)
  }
  if (!Array.isArray(pool) || pool.length === 0)
    return refuse('its pool is empty; list its members: accounts, keys, addresses')
  if (pool.length > poolMax) return refuse(`its pool has ${pool.length} members; it may have ${poolMax}`)
  const members = pool.map((member) => {
    if (typeof member !== 'string' && (typeof member !== 'object' || member === null))
      return refuse('a member of its pool is a text, or an object with a `key`')
    if (typeof member !== 'string')
      checkFields('SLUICE_BAD_POOL', `limit "${limit}": a member of its pool`, member, memberFields)
    const whole: PoolMember = typeof member === 'string' ? { key: member } : member
    if (typeof whole.key !== 'string' || checkKey(whole.key) === '*')
      return refuse('a member of its pool needs a `key`, a text other than "*"')
    const { secret, baseUrl } = whole
    if (secret !== undefined && (secret.env === undefined) === (secret.read === undefined))
      return refuse(`the secret of ${whole.key}: give \`env\`, a variable, or \`read\`, a function: one of them`)
    if (baseUrl !== undefined && !(URL.canParse(baseUrl) && isPlain(new URL(baseUrl))))
      return refuse(
        `the baseUrl of ${whole.key} must be http or https, without user name, password, query and fragment`,
      )
    if (typeof whole.headers === 'function' && secret === undefined)
      return refuse(`the headers of ${whole.key} are made of a secret, and it has none`)
    return whole
  })
  const twice = members.find((member, i) => members.findIndex(({ key }) => key === member.key) < i)
  if (twice !== undefined) return refuse(`its pool has ${twice.key} twice`)
  return members
}

function isPlain({ protocol, username, password, search, hash }: URL): boolean {
  return /^https?:$/.test(protocol) && `${username}${password}${search}${hash}` === ''
}

/** Returns what a handler gets of a member. */
export function chosen(limit: string, { key, baseUrl, data, secret: source, headers = {} }: PoolMember): Chosen {
  const name = `${key} of pool ${limit}`
  const secret = async () => {
    if (source !== undefined) return secretValue(name, source)
    throw new UsageError('SLUICE_BAD_LIMIT', `member ${name} was defined without a secret`)
  }
  return {
    key,
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(data === undefined ? {} : { data }),
    secret,
    headers: async () => (typeof headers === 'function' ? headers(await secret()) : headers),
  }
}

/** Returns a path as a URL of the member. */
export function urlAt(base: string, path: string): string {
  return `${base.replace(/\/+$/, '')}${path}`
}

/** True for a path on the host of whichever member is granted: `/contacts`. */
export function isPath(url: unknown): url is string {
  return typeof url === 'string' && /^\/(?!\/)/.test(url)
}

/**
 * Returns the name of the bucket in which a waiting job needs room: `crm` or `crm:acct1`; or, if only the claim can know the
 * bucket, `crm@host` (by the worker's label host) or `crm*` (one of the pool).
 */
export function bucketName(
  { name, label: by, pool }: { name: string; label: string | undefined; pool: readonly unknown[] | undefined },
  key: string | undefined,
): string {
  if (by !== undefined) return `${name}@${by}`
  if (pool !== undefined) return `${name}*`
  return key === undefined ? name : `${name}:${key}`
}

/**
 * Returns the limit and the key of a bucket's name, also for a bucket beside it (share.ts). The key is undefined if
 * there is none, or if the claim chooses it.
 */
export function splitBucket(bucket: string): { limit: string; key: string | undefined } {
  const [, limit = bucket, key] = /^([^:@*/]*)(?:\/[^:]*)?(?::([^]*))?/.exec(bucket) ?? []
  return { limit, key }
}
