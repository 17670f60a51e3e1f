/** The built-in task that makes one HTTP request. */
import {
  type RequestInput,
  type requestSchema,
  requestSchemaWith,
  type RequestResult,
  sendRequest,
} from '../http/request.ts'
import { type SecretOptions, Secrets } from '../http/secret.ts'
import type { Limit } from '../limits/limit.ts'
import { isPath, urlAt } from '../limits/pool.ts'
import type { TaskOptions } from './task-options.ts'
import { limitsOf, type Task, task } from './task.ts'

/** Options of an HTTP task: those of any task, without `input` and `run`. */
export interface HttpTaskOptions extends Omit<
  TaskOptions<typeof requestSchema, RequestResult>,
  'input' | 'run' | 'thread'
> {
  /**
   * Secrets that its requests may refer to, by names of your own. A job stores only the name; the worker inserts the
   * value just before the request, only for the hosts listed here, and redacts it in results and errors.
   */
  secrets?: Readonly<Record<string, SecretOptions>> | undefined
}

/**
 * Defines a task whose input is a request (method, url, headers, query, json | form | text, timeoutMs, maxResponseBytes)
 * and whose result is the response (status, headers, body). Sends `Idempotency-Key` with the job's id. 408, 425, 429, 5xx
 * and network errors are retried; statuses other than 2xx fail at once.
 * @example
 * const crm = httpTask('crm', {
 *   limits: [limit('crm', { rate: '100/min' })],
 *   secrets: { crm: { env: 'CRM_TOKEN', hosts: ['api.crm.example'] } },
 * })
 * await crm.send({ url, headers: { authorization: { $secret: 'crm', prefix: 'Bearer ' } } })
 * @throws UsageError SLUICE_BAD_TASK, SLUICE_BAD_RETRY, SLUICE_BAD_OPTION
 */
export function httpTask(name: string, options: HttpTaskOptions = {}): Task<RequestInput, RequestResult> {
  const { secrets: given, ...rest } = options
  const secrets = new Secrets(name, given)
  return task(name, {
    ...rest,
    input: requestSchemaWith(secrets, basesOf(limitsOf(name, rest.limits))),
    run: async (input, { fetch, signal, job, pool }) => {
      const options = { fetch, signal, jobId: job.id, secrets }
      const member = Object.values(pool).find(({ baseUrl }) => baseUrl !== undefined)
      if (member === undefined || !isPath(input.url)) return sendRequest(input, options)
      const at = { ...input, url: urlAt(member.baseUrl as string, input.url) }
      return sendRequest(at, { ...options, headers: await member.headers() })
    },
  })
}

/**
 * Returns the base URLs for paths: those of the members of a pool, if all members of one pool, and of no other, have one.
 */
function basesOf(limits: readonly Pick<Limit, 'pool'>[]): string[] {
  const pools = limits.flatMap(({ pool }) => (pool?.some(({ baseUrl }) => baseUrl !== undefined) ? [pool] : []))
  const urls = (pools.length === 1 ? (pools[0] ?? []) : []).map(({ baseUrl }) => baseUrl)
  return urls.every((url) => url !== undefined) ? [...new Set(urls)] : []
}

/** The task `http`: one request, no limits. */
export const http: Task<RequestInput, RequestResult> = httpTask('http')
