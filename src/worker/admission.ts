/**
 * Checks before a handler: admits jobs that no process with the task's code has seen yet, and applies rules at dispatch.
 */
import { delayUs, discarded, ruledPlace, validate, waitUs } from '../tasks/admit.ts'
import { UsageError } from '../core/errors.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import { type ClaimedJob, rulingsOf } from '../claim/claimed-job.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import { poolMembersOf } from './pool-choice.ts'
import { shareOfBuckets } from '../limits/share.ts'
import { bucketsOf, keysOf, placementNow, placementOf, queueOf, type Readmission } from '../tasks/placement.ts'
import type { OpeningReader } from '../gates/gates.ts'
import type { Rulebook } from '../tasks/rule.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { GiveBackCounter } from './give-backs.ts'

/** Delay, in ms, of a job that was granted a pool member unknown to this worker. */
const strangerMs = 1_000

/** Why a claimed job does not run now. */
export type NewPlace = Extract<Outcome, { kind: 'readmit' } | { kind: 'discard' }>

/** The parts that decide about a job's place before its attempt. */
export interface Admitting {
  rulebook: Rulebook
  opens: OpeningReader
  patience: GiveBackCounter
}

/**
 * Returns what to do with a job instead of running it now; undefined: it may run. A promise only if something
 * asynchronous decides.
 * @throws UsageError SLUICE_INVALID_INPUT, SLUICE_MISSING_KEY, SLUICE_RULE_FAILED, SLUICE_UNSTABLE_KEY: the attempt has failed
 */
export function newPlace(
  job: ClaimedJob,
  task: AnyTask,
  { rulebook, opens, patience }: Admitting,
): MaybePromise<NewPlace | undefined> {
  const home = placeAtHome(job, task, rulebook)
  if (home !== undefined || isAdmitted(job, rulebook)) {
    const place = home ?? placeElsewhere(job, task, rulebook, opens)
    const check = (found: NewPlace | undefined) => limitMoves(found, job, task, patience)
    return isPromise(place) ? place.then(check) : check(place)
  }
  return admission(job, task, rulebook).then(async (place) =>
    limitMoves(place ?? (await placeElsewhere(job, task, rulebook, opens)), job, task, patience),
  )
}

function limitMoves(
  place: NewPlace | undefined,
  { id }: ClaimedJob,
  { name }: AnyTask,
  patience: GiveBackCounter,
): NewPlace | undefined {
  // Only a job that moves at once may move in a circle, so a delayed or discarded one is not counted.
  if (place === undefined || place.kind === 'discard' || place.place.delayReason !== undefined) return place
  if (patience.spend(id)) return place
  throw new UsageError(
    'SLUICE_UNSTABLE_KEY',
    `task "${name}" sent this job to another place each time (${[place.place.queue, ...(place.place.buckets ?? [])].join(', ')}); key functions must always return the same key for the same input, and rules must not send a job in a circle`,
  )
}

/**
 * Returns false for a job that no process with its task's code has seen (sent by SQL), or that has met no rules though
 * there are some.
 */
function isAdmitted(job: ClaimedJob, rulebook: Rulebook): boolean {
  const { admitted } = job
  const hasMetRules = typeof admitted === 'number' ? admitted === 0 : Array.isArray(admitted)
  return hasMetRules || (admitted !== 2 && !rulebook.hasSendRules)
}

/**
 * Admits a job: validates its input and applies the rules at send.
 * @throws UsageError SLUICE_INVALID_INPUT, and other errors of admission: the job is refused
 */
async function admission(job: ClaimedJob, task: AnyTask, rulebook: Rulebook): Promise<NewPlace | undefined> {
  const isRaw = job.admitted === 2
  await validate(task, job.input)
  const route = isRaw ? rulebook.route(task.name) : {}
  const own = queueOf(task, task.queue, job.input) ?? 'default'
  // A sender in SQL names a queue, or gets the task's default, which a route may change.
  const isDefault = job.queue === 'default' || job.queue === own
  const seen = {
    queue: isRaw && isDefault ? (route.queue ?? own) : job.queue,
    priority: job.priority === 0 ? (route.priority ?? 0) : job.priority,
    tags: job.tags ?? [],
  }
  const { place, changes, ruled } = await ruledPlace(task, job.input, seen, rulebook, shareOfBuckets(job.buckets ?? []))
  const reason = discarded(ruled)
  if (reason !== null) return { kind: 'discard', reason, tookMs: 0 }
  const isSame =
    place.queue === job.queue &&
    place.priority === job.priority &&
    sameTexts(place.buckets, job.buckets) &&
    sameTexts(place.costs, job.costs)
  // If there is nothing to record either, the job may run at once, unless it was tried before, with another input (`retryWith`):
  // only the next claim shows this worker a time limit that its message had.
  const isFirst = !isRaw || job.attempt === 1
  const isPlain = isFirst && place.weight === 1 && place.fair === null && task.maxWaitMs === undefined && !task.isOnce
  if (isSame && isPlain && ruled.length === 0 && task.onFailed === undefined) return undefined
  const readmission: Readmission = {
    ...place,
    ...(changes.tags === undefined ? {} : { tags: [...new Set([...seen.tags, ...changes.tags])] }),
    ...(changes.delay === undefined ? {} : { delayUs: delayUs(changes.delay) }),
    waitUs: isRaw ? waitUs(task) : null,
    once: task.isOnce || null,
    onFailed: task.onFailed?.name ?? null,
    ...(rulebook.hasSendRules ? { ruled } : {}),
  }
  return { kind: 'readmit', place: readmission }
}

/** Returns the place of a job in the task that it belongs to now; undefined: in the one that it has. */
function placeAtHome(job: ClaimedJob, task: AnyTask, rulebook: Rulebook): NewPlace | undefined {
  const home = task.homeOf?.(job.input as never)
  if (home === undefined) return undefined
  const queue = rulebook.route(home.name).queue ?? queueOf(home, home.queue, job.input) ?? 'default'
  const place = placementOf(home, job.input, queue, job.priority, bucketsOf(home, job.input))
  return { kind: 'readmit', place: { ...place, task: home.name } }
}

/**
 * Returns where a job has to wait instead of running, because its task got other limits after it was sent, or because
 * of a rule at dispatch. Undefined: it may run. A promise only if rules have to be evaluated.
 * @throws UsageError SLUICE_MISSING_KEY, SLUICE_RULE_FAILED
 */
function placeElsewhere(
  job: ClaimedJob,
  task: AnyTask,
  rulebook: Rulebook,
  opens: OpeningReader,
): MaybePromise<NewPlace | undefined> {
  const place = placementNow(task, job, ruledKeys(job))
  if (place !== undefined) return { kind: 'readmit', place }
  const { unknown } = poolMembersOf(job, task)
  if (unknown !== undefined) {
    // The pool was changed: a worker with the new code has this member, or the next claim chooses another.
    const same = placementOf(task, job.input, job.queue, job.priority, job.buckets ?? [], job)
    const delayReason = `${unknown}, which the code of the worker that took it does not know`
    return { kind: 'readmit', place: { ...same, delayUs: strangerMs * 1_000, delayReason } }
  }
  return rulebook.hasDispatchRules ? placeByDispatchRules(job, task, rulebook, opens) : undefined
}

async function placeByDispatchRules(
  job: ClaimedJob,
  task: AnyTask,
  rulebook: Rulebook,
  opens: OpeningReader,
): Promise<NewPlace | undefined> {
  const { queue, priority, tags, input } = job
  const buckets = job.buckets ?? []
  const seen = { task: task.name, queue, priority, tags: tags ?? [], input, keys: keysOf(buckets) }
  const ruling = await rulebook.atDispatch(seen, opens)
  if (ruling === undefined) return undefined
  const { rule, wanted, atUs } = ruling
  if (wanted.discard !== undefined) {
    return { kind: 'discard', reason: `discarded by rule ${rule}: ${wanted.discard}`, tookMs: 0 }
  }
  const moved = placementOf(task, input, wanted.queue ?? queue, wanted.priority ?? priority, buckets, job)
  if (atUs !== undefined) {
    const ruled = [{ rule, heldUntil: new Date(atUs / 1_000).toISOString() }]
    return { kind: 'readmit', place: { ...moved, atUs, delayReason: `rule ${rule}`, ruled } }
  }
  const delay = wanted.hold === undefined ? {} : { delayUs: delayUs(wanted.hold), delayReason: `rule ${rule}` }
  return { kind: 'readmit', place: { ...moved, ...delay, ruled: [{ rule, ...wanted }] } }
}

function ruledKeys({ admitted }: ClaimedJob): Record<string, string> | undefined {
  return typeof admitted === 'number' ? undefined : Object.assign({}, ...rulingsOf(admitted).map(({ keys }) => keys))
}

function sameTexts(a: readonly unknown[] | null, b: readonly unknown[] | null): boolean {
  return (a ?? []).join('\u001f') === (b ?? []).join('\u001f')
}
