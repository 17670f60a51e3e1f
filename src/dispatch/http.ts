/** The built-in task that makes one HTTP request. */
import {
  type RequestInput,
  type requestSchema,
  requestSchemaWith,
  type RequestResult,
  sendRequest,
} from '../http/request.ts'
import { type SecretOptions, Secrets } from '../http/secret.ts'
import { type Task, task, type TaskOptions } from './task.ts'

/** How a task of this kind is defined: like any other, without input and run. */
export interface HttpTaskOptions extends Omit<
  TaskOptions<typeof requestSchema, RequestResult>,
  'input' | 'run' | 'thread'
> {
  /**
   * Secrets that its requests may name, by names of your own. A job holds only the name; the worker puts the value in just
   * before the request, for the hosts listed here only, and its value is redacted from results and errors.
   */
  secrets?: Readonly<Record<string, SecretOptions>>
}

/**
 * Defines a task whose input is a request (method, url, headers, query, json | form | text, timeoutMs, maxResponseBytes) and
 * whose result is the response (status, headers, body). Sends `Idempotency-Key` with the job's id. 408, 425, 429, 5xx
 * and network errors are tried again; other statuses than 2xx fail at once.
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
    input: requestSchemaWith(secrets),
    run: (input, { fetch, signal, job }) => sendRequest(input, { fetch, signal, jobId: job.id, secrets }),
  })
}

/** The task `http`: one request, no limits. */
export const http: Task<RequestInput, RequestResult> = httpTask('http')
