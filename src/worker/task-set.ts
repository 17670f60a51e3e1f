/** The tasks that a worker runs: those it was given, under their former names too, and their `onFailed` tasks. */
import { UsageError } from '../core/errors.ts'
import type { Clock } from '../core/clock.ts'
import type { Outcome } from '../claim/finish/outcome.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Member } from '../fleet/membership.ts'
import type { Rulebook } from '../tasks/rule.ts'
import { type AnyTask, failureSuffix } from '../tasks/task.ts'
import type { Agents } from '../http/agent.ts'
import type { PeerLimiter } from '../limits/peer.ts'
import { Attempt, type AttemptOptions } from './attempt.ts'
import { timeoutError, verdict } from './verdict.ts'

/** The tasks of a worker, as its attempts use them. */
type Shared = Omit<AttemptOptions, 'agent' | 'labels'>

/** How long beyond a task's time-out an outlet elsewhere may take to report the end of an attempt. */
const reportMs = 5_000

const lostMessage = 'its worker was lost during the attempt; whether the call was made is not known'
/** The third crash ends a job. */
const crashesMax = 2

/** The tasks of a worker, by name. */
export class TaskSet {
  readonly #byName: Map<string, AnyTask>
  /** The present names of former ones. */
  readonly #current: ReadonlyMap<string, string>
  readonly #labels: Member['labels']
  /** Those whose jobs cannot always start. */
  readonly #gated: readonly AnyTask[]
  #open: readonly string[] = []

  /** @throws UsageError SLUICE_BAD_TASK when two have one name */
  constructor(tasks: readonly AnyTask[], labels: Member['labels']) {
    this.#labels = labels
    const all = tasks
      .flatMap((task) => [task, ...(task.formerly ?? []).map((old) => renameTask(task, old))])
      .flatMap((task) => (task.onFailed === undefined ? [task] : [task, task.onFailed]))
    this.#byName = new Map(all.map((task) => [task.name, task]))
    this.#gated = all.filter(({ isOpen }) => isOpen !== undefined)
    const twice = all.find((task) => this.#byName.get(task.name) !== task)
    if (twice !== undefined)
      throw new UsageError('SLUICE_BAD_TASK', `two tasks have the same name, now or formerly: "${twice.name}"`)
    this.#current = new Map(tasks.flatMap(({ name, formerly = [] }) => formerly.map((old) => [old, name])))
  }

  /** Returns what the store has to know about the tasks. */
  describeTasks(
    rulebook: Rulebook,
  ): Pick<Member, 'tasks' | 'homes' | 'once' | 'onFailed' | 'currently' | 'remote' | 'labels'> {
    const all = [...this.#byName.values()]
    const own = ({ queue }: AnyTask) => (typeof queue === 'string' ? queue : 'default')
    return {
      labels: this.#labels,
      tasks: all.map(({ name }) => name),
      homes: all.map((task) => rulebook.route(task.name).queue ?? own(task)),
      once: all.map(({ isOnce }) => isOnce),
      onFailed: all.map(({ onFailed }) => onFailed?.name ?? null),
      currently: all.map(({ name }) => this.#current.get(name) ?? null),
      remote: all.map(({ remote }) => remote !== undefined),
    }
  }

  /** True if what the tasks need is there, apart from the second limiter. */
  get areOpen(): boolean {
    return this.#gated.every(({ isOpen }) => isOpen?.() !== false)
  }

  /**
   * Returns the tasks among these whose jobs can start now, given the state of the second limiter. It returns the same
   * array while the result stays the same.
   */
  open(names: readonly string[], peer: PeerLimiter | undefined): readonly string[] {
    const isAway = peer?.isAway === true
    if (!isAway && this.areOpen) return names
    const open = names.filter((name) => {
      const task = this.#byName.get(name)
      return task?.isOpen?.() !== false && (!isAway || peer.isOpenFor(task?.limits ?? []))
    })
    if (open.join() !== this.#open.join()) this.#open = open
    return this.#open
  }

  /** The tasks whose handlers run in threads; isAll: there are no others. */
  threaded(): { tasks: ReadonlySet<string>; isAll: boolean } {
    const names = [...this.#byName.values()].filter(({ thread }) => thread !== undefined).map(({ name }) => name)
    return { tasks: new Set(names), isAll: names.length === this.#byName.size }
  }

  /** True if the end of an attempt of this task must be recorded at once, because its job must not be left in doubt. */
  isPressing(name: string): boolean {
    return this.#byName.get(name)?.isOnce !== false
  }

  /** Returns how an attempt ends that its outlet has had for `forMs` without a report; undefined: it may still go on. */
  timedOut(job: ClaimedJob, forMs: number, clock: Clock): Outcome | undefined {
    const task = this.#byName.get(job.task)
    // An inherited job may be of a task that only the dispatcher before had.
    return task !== undefined && forMs > task.timeoutMs + reportMs
      ? verdict({ job, task, error: timeoutError(task), isInDoubt: true, tookMs: forMs }, clock)
      : undefined
  }

  /** Returns how an attempt ends whose process was lost after `forMs`, as in fleet/rescue_worker.sql. */
  lost(job: ClaimedJob, tookMs: number): Outcome {
    const error = JSON.stringify({ code: 'SLUICE_WORKER_LOST', message: lostMessage })
    if (this.#byName.get(job.task)?.isOnce === true) return { kind: 'failed', reason: 'doubtful', error, tookMs }
    if (job.crashes >= crashesMax) return { kind: 'failed', reason: 'crashed', error, tookMs }
    return { kind: 'interrupt', reason: 'crashed', error, tookMs }
  }

  /** Returns a function that creates the attempt of a job. */
  attempts(shared: Shared, agents: Agents): (job: ClaimedJob) => Attempt {
    const options = new Map(
      [...this.#byName].map(([name, task]) => [
        name,
        { ...shared, labels: this.#labels, agent: agents.of(task.allowPrivate) },
      ]),
    )
    return (job) => new Attempt(job, this.#byName.get(job.task) as AnyTask, options.get(job.task) as AttemptOptions)
  }
}

/** Returns a task as it is for jobs that were sent under another name. */
function renameTask(task: AnyTask, name: string): AnyTask {
  const { onFailed } = task
  const failed = onFailed && renameTask(onFailed, `${name}${failureSuffix}`)
  return { ...task, name, onFailed: failed }
}
