/** Secrets that a job's data only refers to by name: the code defines what they are, and where they may be sent. */
import { UsageError } from '../core/errors.ts'
import { type SecretSource, secretValue } from '../core/secret.ts'

/** Parts of a request that may hold secrets. */
export type SecretPlace = 'headers' | 'query' | 'form' | 'json'

/** One secret: where its value comes from, and where it may be sent. */
export interface SecretOptions extends SecretSource {
  /**
   * Hosts that may receive it: `api.crm.example` (by https, port 443), `api.crm.example:8443`, or a whole origin
   * (`http://127.0.0.1:8080`). The data chooses the URL, so without this list it could send the secret anywhere.
   */
  readonly hosts: readonly string[]
  /**
   * Parts of a request that may contain it; default `['headers']`. Beware of `json`: a stranger whose data gets into it
   * can place the secret in a field that the vendor may show again.
   */
  readonly in?: readonly SecretPlace[] | undefined
}

/** Refers to a secret in a request: `{ "$secret": "crm", "prefix": "Bearer " }`. */
export interface SecretRef {
  readonly $secret: string
  /** Text before the value; default none. */
  readonly prefix?: string
}

/** The parts of a request that may contain secrets. */
export interface Fillable {
  readonly url: string
  readonly headers?: Readonly<Record<string, string | SecretRef>>
  readonly query?: Readonly<Record<string, string | SecretRef>>
  readonly form?: Readonly<Record<string, string | SecretRef>>
  readonly json?: unknown
}

/** An error in a reference, and its place. */
export interface ReferenceIssue {
  readonly message: string
  readonly path: readonly string[]
}

interface Found {
  readonly place: SecretPlace
  readonly path: readonly string[]
  readonly ref: SecretRef
}

const textPlaces = ['headers', 'query', 'form'] as const
const places: readonly string[] = [...textPlaces, 'json']

/** True for a reference to a secret, well-formed or not. */
export function isReference(value: unknown): value is SecretRef {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, '$secret')
}

/** The secrets of one task. */
export class Secrets {
  readonly #secrets: ReadonlyMap<string, SecretOptions & { origins: ReadonlySet<string> }>

  /** @throws UsageError SLUICE_BAD_TASK */
  constructor(task: string, secrets: Readonly<Record<string, SecretOptions>> = {}) {
    const entries = Object.entries(secrets)
    this.#secrets = new Map(entries.map(([name, one]) => [name, { ...one, origins: originsOf(task, name, one) }]))
  }

  /** Returns the errors in the references of a request whose other parts are valid. */
  check(input: Fillable): ReferenceIssue[] {
    const { origin } = new URL(input.url)
    return this.#references(input).flatMap(({ place, path, ref }) => {
      const wrong = this.#refusal(ref, place, origin)
      return wrong === undefined ? [] : [{ message: `${path.join('.')} ${wrong}`, path }]
    })
  }

  /**
   * Returns the request with the values in place of the references; undefined when it has none. Redacts the values from
   * now on.
   * @throws AttemptError SLUICE_SECRET_UNAVAILABLE, retryable: another worker may have it
   */
  async fill<Input extends Fillable>(input: Input): Promise<Input | undefined> {
    const found = this.#references(input)
    if (found.length === 0) return undefined
    const values = new Map<string, string>()
    for (const name of new Set(found.map(({ ref }) => ref.$secret)))
      values.set(name, await secretValue(name, this.#secrets.get(name) ?? {}))
    const fillReference = (_: string, value: unknown): unknown =>
      isReference(value) ? `${value.prefix ?? ''}${values.get(value.$secret)}` : value
    // The input is plain JSON, as it came from the store.
    return JSON.parse(JSON.stringify(input), fillReference) as Input
  }

  #refusal(ref: SecretRef, place: SecretPlace, origin: string): string | undefined {
    const { $secret: name, prefix, ...rest } = ref as SecretRef & Record<string, unknown>
    if (typeof name !== 'string' || !['string', 'undefined'].includes(typeof prefix) || Object.keys(rest).length > 0)
      return 'must be { "$secret": name } or { "$secret": name, "prefix": text }'
    const secret = this.#secrets.get(name)
    if (secret === undefined) return `names the secret ${name}, which this task does not have`
    const allowed = secret.in ?? ['headers']
    if (!allowed.includes(place)) return `names the secret ${name}, which goes only into ${allowed.join(', ')}`
    if (secret.origins.has(origin)) return undefined
    return `names the secret ${name}, which goes only to ${[...secret.origins].join(', ')}, not to ${origin}`
  }

  #references(input: Fillable): Found[] {
    const inTexts = textPlaces.flatMap((place) =>
      Object.entries(input[place] ?? {}).flatMap(([name, value]) =>
        isReference(value) ? [{ place, path: [place, name], ref: value }] : [],
      ),
    )
    // In a task without secrets such an object is data like any other.
    return this.#secrets.size === 0 ? inTexts : [...inTexts, ...inJson(input.json, ['json'])]
  }
}

function inJson(value: unknown, path: readonly string[]): Found[] {
  if (isReference(value)) return [{ place: 'json', path, ref: value }]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, inner]) => inJson(inner, [...path, name]))
}

function originsOf(task: string, name: string, { env, read, hosts, in: within }: SecretOptions): ReadonlySet<string> {
  const refuse = (why: string): never => {
    throw new UsageError('SLUICE_BAD_TASK', `task "${task}", secret ${name}: ${why}`)
  }
  if ((env === undefined) === (read === undefined)) refuse('give `env`, a variable, or `read`, a function: one of them')
  if (!Array.isArray(hosts) || hosts.length === 0) refuse('`hosts` must list the hosts that may receive it')
  if (within !== undefined && (!Array.isArray(within) || within.some((place) => !places.includes(place))))
    refuse(`\`in\` is a list of ${places.join(', ')}`)
  return new Set(
    hosts.map((host) => {
      const text = host.includes('://') ? host : `https://${host}`
      const url = URL.canParse(text) ? new URL(text) : undefined
      const isOrigin = url !== undefined && /^https?:$/.test(url.protocol) && url.href === `${url.origin}/`
      // A wildcard would be a name like any other, and never match.
      return isOrigin && !host.includes('*') ? url.origin : refuse(`"${host}" is not a host, host:port or origin`)
    }),
  )
}
