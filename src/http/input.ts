import type { StandardSchemaV1 } from '@standard-schema/spec'
import { isPath, urlAt } from '../limits/pool.ts'
import { isReference, type SecretRef, Secrets } from './secret.ts'

/**
 * The input of the built-in `http` task. At most one of `json`, `form` and `text`. A value of `headers`, `query` or
 * `form`, and anything in `json`, may be a reference to a secret of the task (`{ "$secret": "crm" }`).
 */
export interface RequestInput {
  /** Default `POST` with a body, else `GET`. */
  readonly method?: string
  /**
   * `http:` or `https:`, without user name and password: put credentials into a header. If the task has a pool whose
   * members have a `baseUrl`, it may be a path (`/contacts`).
   */
  readonly url: string
  /** Sent unchanged; `Idempotency-Key` is added when absent. */
  readonly headers?: Readonly<Record<string, string | SecretRef>>
  /** Added to the query of the URL. */
  readonly query?: Readonly<Record<string, string | SecretRef>>
  /** Sent as `application/json`. */
  readonly json?: unknown
  /** Sent as `application/x-www-form-urlencoded`. */
  readonly form?: Readonly<Record<string, string | SecretRef>>
  /** Sent as `text/plain` unless `headers` has a content type. */
  readonly text?: string
  /**
   * Time from the start to the last byte of the response, including waits for further grants: 1 to 600000, default 30000.
   */
  readonly timeoutMs?: number
  /** The largest response body that is read, in bytes: 1 to 1 GiB, default 1 MiB. */
  readonly maxResponseBytes?: number
}

/** The longest timeout of a request, in ms. */
const maxTimeoutMs = 600_000
const maxResponseBytes = 1_073_741_824

const fields = ['method', 'url', 'headers', 'query', 'json', 'form', 'text', 'timeoutMs', 'maxResponseBytes']
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
// CR, LF and NUL would split the head; characters beyond Latin-1 cannot be written in it.
const headerValue = /^[\t\x20-\x7e\x80-\xff]*$/

interface Issue {
  readonly message: string
  readonly path?: readonly string[]
}

type Fields = Readonly<Record<string, unknown>>

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function checkUrl(url: unknown): Issue[] {
  const path = ['url']
  if (typeof url !== 'string') return [{ message: 'url is missing: give an absolute http or https URL', path }]
  if (!URL.canParse(url)) return [{ message: 'url is not an absolute URL', path }]
  const parsed = new URL(url)
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') {
    return [{ message: `url must be http or https, not ${parsed.protocol}`, path }]
  }
  if (parsed.username !== '' || parsed.password !== '') {
    return [{ message: 'url must not carry a user name or password: send an Authorization header', path }]
  }
  return []
}

function checkMethod(method: unknown, hasBody: boolean): Issue[] {
  const path = ['method']
  if (method === undefined) return []
  if (typeof method !== 'string' || !token.test(method))
    return [{ message: 'method must be an HTTP method, like POST', path }]
  const upper = method.toUpperCase()
  if (['CONNECT', 'TRACE', 'TRACK'].includes(upper)) return [{ message: `method ${upper} cannot be sent`, path }]
  if (hasBody && (upper === 'GET' || upper === 'HEAD')) {
    return [{ message: `a ${upper} request cannot have a body: drop json, form or text, or use another method`, path }]
  }
  return []
}

function checkStrings(value: unknown, field: string): Issue[] {
  if (value === undefined) return []
  if (!isRecord(value)) return [{ message: `${field} must be an object of strings`, path: [field] }]
  return Object.entries(value)
    .filter(([, text]) => typeof text !== 'string' && !isReference(text))
    .map(([name]) => ({ message: `${field}.${name} must be a string`, path: [field, name] }))
}

function checkHeaders(value: unknown): Issue[] {
  const issues = checkStrings(value, 'headers')
  if (issues.length > 0 || value === undefined) return issues
  return Object.entries(value as Record<string, string | SecretRef>)
    .map(([name, text]) => [name, isReference(text) ? String(text.prefix ?? '') : text] as const)
    .filter(([name, text]) => !token.test(name) || !headerValue.test(text))
    .map(([name]) => ({
      message: `headers.${name} holds characters that no header can carry`,
      path: ['headers', name],
    }))
}

function checkInteger(value: unknown, field: string, max: number): Issue[] {
  if (value === undefined) return []
  const good = typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max
  return good ? [] : [{ message: `${field} must be a whole number from 1 to ${max}`, path: [field] }]
}

function checkBody(input: Fields): Issue[] {
  const given = ['json', 'form', 'text'].filter((field) => input[field] !== undefined)
  const issues: Issue[] = []
  if (given.length > 1) issues.push({ message: `give only one of ${given.join(', ')}`, path: [given[1] ?? ''] })
  if (input['text'] !== undefined && typeof input['text'] !== 'string') {
    issues.push({ message: 'text must be a string', path: ['text'] })
  }
  return [...issues, ...checkStrings(input['form'], 'form')]
}

function check(input: unknown, takesPath: boolean): Issue[] {
  if (!isRecord(input)) return [{ message: 'the input of http must be an object with a url' }]
  const unknown = Object.keys(input)
    .filter((field) => !fields.includes(field))
    .map((field) => ({ message: `${field} is not a field of http: known are ${fields.join(', ')}`, path: [field] }))
  const hasBody = input['json'] !== undefined || input['form'] !== undefined || input['text'] !== undefined
  return [
    ...unknown,
    ...(takesPath && isPath(input['url']) ? [] : checkUrl(input['url'])),
    ...checkMethod(input['method'], hasBody),
    ...checkHeaders(input['headers']),
    ...checkStrings(input['query'], 'query'),
    ...checkBody(input),
    ...checkInteger(input['timeoutMs'], 'timeoutMs', maxTimeoutMs),
    ...checkInteger(input['maxResponseBytes'], 'maxResponseBytes', maxResponseBytes),
  ]
}

/**
 * Checks the input of an `http` task with these secrets (Standard Schema v1); every error is reported, with its path.
 * @param bases base URLs that a path may be appended to
 */
export function requestSchemaWith(secrets: Secrets, bases: readonly string[] = []): StandardSchemaV1<RequestInput> {
  return {
    '~standard': {
      version: 1,
      vendor: 'sluice',
      validate: (input) => {
        const issues = check(input, bases.length > 0)
        if (issues.length === 0)
          issues.push(...withEachBase(input as RequestInput, bases).flatMap((one) => secrets.check(one)))
        return issues.length > 0 ? { issues } : { value: input as RequestInput }
      },
    },
  }
}

/** Returns the request as it would be sent with each of the pool's members. */
function withEachBase(input: RequestInput, bases: readonly string[]): RequestInput[] {
  return isPath(input.url) ? bases.map((base) => ({ ...input, url: urlAt(base, input.url) })) : [input]
}

/** Checks the input of the built-in `http` task, which has no secrets. */
export const requestSchema: StandardSchemaV1<RequestInput> = requestSchemaWith(new Secrets('http'))
