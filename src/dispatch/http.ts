/** The built-in task that makes one HTTP request. */
import { type RequestInput, requestSchema, type RequestResult, sendRequest } from '../http/request.ts'
import { type Task, task, type TaskOptions } from './task.ts'

/** How a task of this kind is defined: like any other, without input and run. */
export type HttpTaskOptions = Omit<TaskOptions<typeof requestSchema, RequestResult>, 'input' | 'run' | 'thread'>

/**
 * Defines a task whose input is a request (method, url, headers, json | form | text, timeoutMs, maxResponseBytes) and
 * whose result is the response (status, headers, body). Sends `Idempotency-Key` with the job's id. 408, 425, 429, 5xx
 * and network errors are tried again; other statuses than 2xx fail at once.
 * @example const webhook = httpTask('webhook', { limits: [limit('hooks', { rate: '5/s', by: 'url' })] })
 */
export function httpTask(name: string, options: HttpTaskOptions = {}): Task<RequestInput, RequestResult> {
  return task(name, {
    ...options,
    input: requestSchema,
    run: (input, { fetch, signal, job }) => sendRequest(input, { fetch, signal, jobId: job.id }),
  })
}

/** The task `http`: one request, no limits. */
export const http: Task<RequestInput, RequestResult> = httpTask('http')
