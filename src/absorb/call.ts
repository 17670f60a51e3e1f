/** What a message of a Celery producer means, and what the end of its job means to the producer. */
import { randomUUID } from 'node:crypto'
import type { Address } from '../celery/carrier.ts'
import { readJson } from '../celery/json.ts'
import type { TaskResult } from '../celery/result.ts'
import type { Signature } from '../celery/signature.ts'
import { blank, type TaskMessage } from '../celery/task-message.ts'
import { waitMaxMs } from '../core/retry.ts'

/** What is kept of a call until its job has ended. */
export interface Call extends Pick<TaskMessage, 'rootId' | 'ignoreResult' | 'callbacks' | 'errbacks' | 'chain'> {
  readonly replyTo: string | null
  readonly priority: number
  /** What Celery keeps beside a result. */
  readonly about: Readonly<Record<string, unknown>>
  /** The queue that it came from, to which go tasks that follow it and name none. */
  readonly queue: string
}

/** How a job ended, as the store has it. */
export interface Ended {
  readonly state: string
  readonly reason: string | null
  /** JSON. */
  readonly result: string | null
  /** JSON. */
  readonly error: string | null
}

/** A task that follows another one, and where it goes. */
export interface Follower {
  readonly message: TaskMessage
  readonly address: Address
}

/** Returns what is kept of a message. */
export function callOf(message: TaskMessage, queue: string): Call {
  const { rootId, ignoreResult, callbacks, errbacks, chain, replyTo = null, priority, parentId, groupId } = message
  const about = { parent_id: parentId, group_id: groupId }
  return { rootId, ignoreResult, callbacks, errbacks, chain, replyTo, priority, about, queue }
}

/** Returns when the job may begin, and how long it may wait then; undefined: its time to begin is over. */
export function timesOf(
  { etaMs, expiresMs }: Pick<TaskMessage, 'etaMs' | 'expiresMs'>,
  nowMs: number,
): { at?: Date; maxWait?: number } | undefined {
  const fromMs = Math.max(nowMs, etaMs ?? 0)
  if (expiresMs !== undefined && expiresMs <= fromMs) return undefined
  return {
    ...(fromMs > nowMs ? { at: new Date(fromMs) } : {}),
    ...(expiresMs === undefined ? {} : { maxWait: Math.min(waitMaxMs, Math.ceil(expiresMs - fromMs)) }),
  }
}

/** The result of a call that was revoked, or has expired. */
export function revokedResult(id: string, why: string): TaskResult {
  const value = { type: 'TaskRevokedError', module: 'celery.exceptions', args: [why] }
  return { id, state: 'REVOKED', value, traceback: undefined }
}

/** Returns Celery's result of an ended job. */
export function resultOf(id: string, { state, reason, result, error }: Ended): TaskResult {
  if (state === 'done') return { id, state: 'SUCCESS', value: read(result) ?? null, traceback: undefined }
  if (state === 'cancelled') return revokedResult(id, 'revoked')
  if (reason === 'expired') return revokedResult(id, 'expired')
  const { name, code, message, stack } = (read(error) ?? {}) as Partial<Record<string, unknown>>
  const type = typeof name === 'string' ? name : typeof code === 'string' ? code : 'Error'
  const value = { type, module: 'sluice.errors', args: [typeof message === 'string' ? message : (reason ?? state)] }
  return { id, state: 'FAILURE', value, traceback: typeof stack === 'string' ? stack : undefined }
}

function read(text: string | null): unknown {
  return text === null ? undefined : readJson(text)
}

/** Returns the tasks that follow a call with this result, as a worker of Celery sends them. */
export function followersOf(id: string, call: Call, { state, value }: TaskResult): Follower[] {
  const { callbacks, errbacks, chain } = call
  if (state === 'FAILURE') return errbacks.map((one) => follower(id, call, one, [id], []))
  if (state !== 'SUCCESS') return []
  const [next, ...rest] = chain
  const all = callbacks.map((one) => follower(id, call, one, [value], []))
  return next === undefined ? all : [...all, follower(id, call, next, [value], rest)]
}

function follower(
  parentId: string,
  { rootId, priority, queue }: Call,
  { task, args, kwargs, immutable, options }: Signature,
  given: readonly unknown[],
  chain: readonly Signature[],
): Follower {
  const text = (name: string) => (typeof options[name] === 'string' ? options[name] : undefined)
  const list = (name: string) => (Array.isArray(options[name]) ? (options[name] as Signature[]) : [])
  const number = (name: string) => (typeof options[name] === 'number' ? options[name] : undefined)
  const message: TaskMessage = {
    ...blank,
    id: text('task_id') ?? randomUUID(),
    task,
    args: immutable ? args : [...given, ...args],
    kwargs,
    rootId,
    parentId,
    groupId: text('group_id'),
    groupIndex: number('group_index'),
    replyTo: text('reply_to'),
    priority: number('priority') ?? priority,
    ignoreResult: options['ignore_result'] === true,
    callbacks: list('link'),
    errbacks: list('link_error'),
    chain: [...chain, ...list('chain').toReversed()],
  }
  const address = { exchange: text('exchange') ?? '', routingKey: text('routing_key') ?? text('queue') ?? queue }
  return { message, address }
}
