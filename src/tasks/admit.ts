/** Admission: turns a task's input into a row that may be stored, or throws an error with the reason. */
import { inspect } from 'node:util'
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { isId, isRecentId, newId } from '../core/hash.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { encodePayload } from '../core/payload.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { TxLike } from '../db/tx.ts'
import { checkShare } from '../limits/share.ts'
import type { NewJob } from '../store/send.ts'
import { bucketsOf, keysOf, type Placement, placementOf, queueOf } from './placement.ts'
import { Rulebook, type Ruled, type SendChanges } from './rule.ts'
import { checkPriority, checkTags, maxWaitMs } from './checks.ts'
import type { SendOptions } from './send-options.ts'
import type { AnyTask } from './task.ts'

const dayMs = 86_400_000
const delayMaxMs = 366 * dayMs
const noRules = new Rulebook()
const sendFields = [
  'id',
  'tx',
  'priority',
  'delay',
  'at',
  'idempotencyKey',
  'replace',
  'tags',
  'queue',
  'maxWait',
  'share',
  'notify',
]

/** What options of a send are called in BullMQ, graphile-worker, pg-boss and Celery (docs/coming-from.md). */
const wordsOfOthers = Object.fromEntries(
  Object.entries({
    '`idempotencyKey`': ['jobId', 'jobKey', 'singletonKey', 'deduplication'],
    '`idempotencyKey` with `replace`': ['jobKeyMode', 'debounce'],
    '`at`, or `delay`': ['runAt', 'startAfter', 'eta', 'countdown'],
    '`queue`, or, so that one job runs at a time, a limit with `concurrency: 1` on the task': ['queueName'],
    '`priority`, higher first': ['lifo'],
    '`maxWait`': ['expires'],
    '`retry` of the task': [
      'attempts',
      'maxAttempts',
      'backoff',
      'retries',
      'retryLimit',
      'retryDelay',
      'retryBackoff',
    ],
    '`timeout` of the task': ['timeout', 'expireInSeconds'],
    '`schedule(…)`': ['repeat', 'cron'],
    '`retention`, for the whole store': ['removeOnComplete', 'removeOnFail'],
  }).flatMap(([here, others]) => others.map((word) => [word, here])),
)

/** @throws UsageError SLUICE_BAD_TASK unless this is a task: plain JavaScript may give its name */
export function checkTask(task: AnyTask): void {
  if (typeof task?.schema?.['~standard']?.validate === 'function') return
  const text = `${inspect(task, { depth: 0 })} is no task; send to what task(…) returned`
  throw new UsageError('SLUICE_BAD_TASK', text)
}

/**
 * Validates an input and computes what dispatch needs: results of rules, limit keys, fair key, lane.
 * @throws UsageError SLUICE_INVALID_INPUT (schema), SLUICE_BAD_PAYLOAD, SLUICE_PAYLOAD_TOO_LARGE, SLUICE_MISSING_KEY,
 * SLUICE_BAD_OPTION, SLUICE_BAD_ID, SLUICE_BAD_RULE, SLUICE_RULE_FAILED
 */
export async function admit(
  task: AnyTask,
  input: unknown,
  options: SendOptions<never>,
  clock: Clock,
  rulebook = noRules,
): Promise<NewJob> {
  checkTask(task)
  checkFields('SLUICE_BAD_OPTION', 'a send', options, sendFields, wordsOfOthers)
  for (const name of ['notify', 'replace'] as const)
    if (options[name] !== undefined && typeof options[name] !== 'boolean')
      throw new UsageError('SLUICE_BAD_OPTION', `\`${name}\` is ${inspect(options[name])}; it must be true or false`)
  const text = encodePayload(input, `input of "${task.name}"`, undefined, task.inputBounds)
  // Workers will see the stored form, so keys and schema are evaluated on it, not on live objects.
  const stored: unknown = JSON.parse(text)
  const validated = validate(task, stored)
  if (isPromise(validated)) await validated
  const route = rulebook.route(task.name)
  const seen = {
    queue: queueOf(task, options.queue, stored) ?? route.queue ?? queueOf(task, task.queue, stored) ?? 'default',
    priority: checkPriority(options.priority ?? route.priority ?? 0),
    tags: checkTags(options.tags),
  }
  const { share } = options
  if (share !== undefined) checkShare('SLUICE_BAD_OPTION', task.name, task.limits, share)
  const placed = ruledPlace(task, stored, seen, rulebook, share, options.tx)
  const { place, changes, ruled } = isPromise(placed) ? await placed : placed
  const times = due(options, clock)
  const { lane, queue, priority, weight, fair, buckets, costs } = place
  // Field by field: spreading the objects takes as long as all the rest.
  return {
    id: jobId(options.id, clock),
    given: options.id !== undefined,
    lane,
    queue,
    priority,
    weight,
    fair,
    buckets,
    costs,
    task: task.name,
    input: text,
    delayUs: changes.delay === undefined ? times.delayUs : delayUs(changes.delay),
    atUs: changes.delay === undefined ? times.atUs : null,
    tags: tagged(seen.tags, changes.tags),
    key: idempotencyKey(options),
    replaces: options.replace === true,
    waitUs: waitUs(task, options.maxWait),
    once: task.isOnce,
    onFailed: task.onFailed?.name ?? null,
    ruled: rulebook.hasSendRules ? ruled : null,
    formerly: (options.id !== undefined && task.formerly?.join('\u001f')) || null,
    discard: discarded(ruled),
    notifies: options.notify !== false,
  }
}

/** A place, and what rules did to it. */
interface RuledPlace {
  place: Placement
  changes: SendChanges
  ruled: Ruled[]
}

/** Returns where a job waits after its rules at send, and what those did. */
export function ruledPlace(
  task: AnyTask,
  stored: unknown,
  seen: { queue: string; priority: number; tags: readonly string[] },
  rulebook: Rulebook,
  share = task.share,
  tx?: TxLike,
): MaybePromise<RuledPlace> {
  const buckets = bucketsOf(task, stored, {}, share)
  if (!rulebook.hasSendRules && task.limits.every((limit) => limit.learn === undefined))
    return { place: placementOf(task, stored, seen.queue, seen.priority, buckets), changes: {}, ruled: [] }
  return placeByRule(task, stored, seen, rulebook, { buckets, share, tx })
}

async function placeByRule(
  task: AnyTask,
  stored: unknown,
  seen: { queue: string; priority: number; tags: readonly string[] },
  rulebook: Rulebook,
  { buckets, share, tx }: { buckets: string[]; share: string | undefined; tx: TxLike | undefined },
): Promise<RuledPlace> {
  const known = { expect: await rulebook.estimates?.of(task, tx) }
  if (!rulebook.hasSendRules)
    return { place: placementOf(task, stored, seen.queue, seen.priority, buckets, known), changes: {}, ruled: [] }
  const job = { ...seen, task: task.name, input: stored, keys: keysOf(buckets) }
  const { changes, ruled } = await rulebook.atSend(job)
  const { queue = seen.queue, priority = seen.priority, keys } = changes
  const all = keys === undefined ? buckets : bucketsOf(task, stored, keys, share)
  const place = placementOf(task, stored, queue, priority, all, known)
  return { place, changes, ruled }
}

/**
 * Returns a job that was admitted, with the longest time of an attempt that its message allows. It is recorded under a name that no
 * rule can have; outside of a list if the job has met no rules, so that it still meets them where there are some.
 */
export function withLimit(job: NewJob, limitMs: number | undefined): NewJob {
  if (limitMs === undefined) return job
  const limit: Ruled = { rule: 'time limit', timeoutMs: limitMs }
  return { ...job, ruled: job.ruled === null ? limit : [...[job.ruled].flat(), limit] }
}

/** Returns why rules discard a job; null: they do not. */
export function discarded(ruled: readonly Ruled[]): string | null {
  const last = ruled.at(-1)
  return last?.discard === undefined ? null : `discarded by rule ${last.rule}: ${last.discard}`
}

/** Returns the longest wait of a job, in microseconds; null: unlimited. */
export function waitUs(task: AnyTask, maxWait?: Duration): number | null {
  const ms = maxWait === undefined ? task.maxWaitMs : maxWaitMs(maxWait)
  return ms === undefined ? null : Math.round(ms * 1_000)
}

/**
 * Checks a stored input against the task's schema and returns the schema's output. @throws UsageError
 * SLUICE_INVALID_INPUT
 */
export function validate(task: AnyTask, stored: unknown): MaybePromise<{ value: unknown }> {
  return conform(task.schema, stored, `input of "${task.name}"`)
}

/** Checks a stored value against a schema and returns the schema's output. @throws UsageError SLUICE_INVALID_INPUT */
export function conform(schema: StandardSchemaV1, stored: unknown, what: string): MaybePromise<{ value: unknown }> {
  const checked = schema['~standard'].validate(stored)
  return 'then' in checked ? passed(checked, what) : accepted(checked, what)
}

async function passed(checked: PromiseLike<Checked>, what: string): Promise<{ value: unknown }> {
  return accepted(await checked, what)
}

type Checked = StandardSchemaV1.Result<unknown>

function accepted(checked: Checked, what: string): { value: unknown } {
  if (checked.issues === undefined) return checked
  const issues = checked.issues.slice(0, 5).map((issue) => {
    const path = issue.path?.map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
    return path ? `${path}: ${issue.message}` : issue.message
  })
  throw new UsageError('SLUICE_INVALID_INPUT', `${what} does not fit its schema: ${issues.join('; ')}`)
}

function jobId(id: string | undefined, clock: Clock): string {
  if (id === undefined) return newId()
  if (!isId(id))
    throw new UsageError('SLUICE_BAD_ID', `"${id}" is not a UUIDv7; leave out \`id\`, or use one made by \`newId()\``)
  if (!isRecentId(id, clock)) {
    throw new UsageError(
      'SLUICE_BAD_ID',
      `id ${id} was made more than a day from now; repeated sends are only recognised within a day`,
    )
  }
  return id.toLowerCase()
}

/** Returns a delay in microseconds. @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
export function delayUs(delay: Duration): number {
  const ms = durationMs(delay)
  if (ms > delayMaxMs) throw new UsageError('SLUICE_BAD_OPTION', '`delay` is longer than 366 days')
  return Math.round(ms * 1_000)
}

function due(options: SendOptions<never>, clock: Clock): Pick<NewJob, 'delayUs' | 'atUs'> {
  if (options.delay !== undefined && options.at !== undefined) {
    throw new UsageError('SLUICE_BAD_OPTION', 'give `delay` or `at`, not both')
  }
  if (options.at !== undefined && !(options.at instanceof Date && Number.isFinite(options.at.getTime()))) {
    throw new UsageError('SLUICE_BAD_OPTION', '`at` is not a valid Date')
  }
  if (options.at !== undefined && options.at.getTime() - clock.wallMs() > delayMaxMs)
    throw new UsageError('SLUICE_BAD_OPTION', '`at` is more than 366 days from now')
  return {
    delayUs: options.delay === undefined ? null : delayUs(options.delay),
    // PostgreSQL has no times as early as JavaScript has.
    atUs: options.at === undefined ? null : Math.max(0, options.at.getTime()) * 1_000,
  }
}

function tagged(own: readonly string[], more: readonly string[] = []): string[] | null {
  if (own.length + more.length === 0) return null
  return [...checkTags([...new Set([...own, ...more])])]
}

function idempotencyKey({ idempotencyKey: key, replace }: SendOptions<never>): string | null {
  if (key === undefined) {
    if (replace) throw new UsageError('SLUICE_BAD_OPTION', '`replace` needs an `idempotencyKey`: what it replaces')
    return null
  }
  if (typeof key !== 'string' || key.length < 1 || key.length > 512 || key.includes('\u0000')) {
    throw new UsageError('SLUICE_BAD_OPTION', 'idempotencyKey: 1 to 512 characters, without \\u0000')
  }
  return key
}
