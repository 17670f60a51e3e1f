/** Rules: named decisions about jobs, in order; evaluated when a job is sent, and again when it could start. */
import { AttemptError, UsageError } from '../core/errors.ts'
import { checkFields, present } from '../core/fields.ts'
import { type Hours, type ParsedHours, parseHours } from '../core/hours.ts'
import type { OpeningReader } from '../gates/gates.ts'
import { fits, isPattern } from '../core/pattern.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Estimates } from './estimate.ts'
import { checkName, checkPriority, checkTags } from './checks.ts'
import { failureSuffix } from './task.ts'

/** A job, as a rule sees it. */
export interface RuleJob<Input = unknown> {
  readonly task: string
  readonly queue: string
  readonly priority: number
  readonly tags: readonly string[]
  readonly input: Input
  /** The key of each of its limits, by the limit's name; '' for a limit without one. */
  readonly keys: Readonly<Record<string, string>>
}

/** The changes that a rule at send may make. */
export interface SendChanges {
  queue?: string | undefined
  /** -1000 to 1000. */
  priority?: number | undefined
  /** Added to the job's own tags. */
  tags?: readonly string[] | undefined
  /** Earliest start, from now; replaces the sender's `delay` or `at`. */
  delay?: Duration | undefined
  /** Other keys for limits of the task, by the limit's name. */
  keys?: Readonly<Record<string, string>> | undefined
  /** Do not run it: it is recorded as cancelled, with this reason. */
  discard?: string | undefined
}

/** The changes that a rule at dispatch may make to a job that could start now. */
export interface DispatchChanges {
  /** Run it from that queue instead. */
  queue?: string | undefined
  priority?: number | undefined
  /** Delay it for this long, then evaluate the rules again. */
  hold?: Duration | undefined
  /** Do not run it: it is recorded as cancelled, with this reason. */
  discard?: string | undefined
}

interface Match<Input> {
  /** Tasks that it applies to, by name or pattern (`'email.*'`); default all. */
  tasks?: string | readonly string[] | undefined
  /** Queues that it applies to; default all. */
  queues?: string | readonly string[] | undefined
  /**
   * Further condition. At dispatch it must be quick, because the job's grant ages meanwhile. If it throws, the send, or
   * the attempt, fails.
   */
  when?: ((job: RuleJob<Input>) => boolean | Promise<boolean>) | undefined
}

/** A rule that is evaluated when jobs are sent. */
export interface SendRuleOptions<Input> extends Match<Input> {
  at?: 'send' | undefined
  /** The changes, or a function of the job that returns them. */
  do: SendChanges | ((job: RuleJob<Input>) => SendChanges)
}

/**
 * A rule that is evaluated for jobs that could start now, before they do: it costs no attempt, and the grant is refunded.
 */
export interface DispatchRuleOptions<Input> extends Match<Input> {
  at: 'dispatch'
  /** Hold jobs outside these hours. Without `when`, waiting jobs are not even claimed outside of them. */
  open?: Hours | undefined
  /** The changes, or a function of the job that returns them. Give `open` or `do`. */
  do?: DispatchChanges | ((job: RuleJob<Input>) => DispatchChanges) | undefined
}

/** A defined rule. */
export interface Rule {
  readonly name: string
  readonly at: 'send' | 'dispatch'
  readonly tasks: readonly string[] | undefined
  readonly queues: readonly string[] | undefined
  readonly hours: ParsedHours | undefined
  readonly when: ((job: RuleJob) => boolean | Promise<boolean>) | undefined
  readonly do: (job: RuleJob) => SendChanges & DispatchChanges
}

const fields = ['at', 'tasks', 'queues', 'when', 'do', 'open']
const changes = {
  send: ['queue', 'priority', 'tags', 'delay', 'keys', 'discard'],
  dispatch: ['queue', 'priority', 'hold', 'discard'],
}

/**
 * Defines a rule. It is in force in processes whose Sluice (`rules` of `Sluice.open`, or of `sluice.config.ts`) has it.
 * @param name unique, with the same characters as a task's name; recorded on each job that the rule changes
 * @throws UsageError SLUICE_BAD_RULE, SLUICE_BAD_HOURS
 * @example rule('vip', { tasks: 'sync-*', when: ({ input }) => input.plan === 'vip', do: { priority: 10 } })
 * @example
 * const hours = { from: '08:00', to: '18:00', days: 'mon-fri', zone: 'Europe/Berlin' }
 * rule('office', { at: 'dispatch', tasks: 'call-*', open: hours })
 */
export function rule<Input = unknown>(
  name: string,
  options: SendRuleOptions<Input> | DispatchRuleOptions<Input>,
): Rule {
  const bad = (what: string) => new UsageError('SLUICE_BAD_RULE', `rule "${name}": ${what}`)
  checkName('rule', name)
  checkFields('SLUICE_BAD_RULE', `rule "${name}"`, options, fields)
  const at = options.at ?? 'send'
  const open = 'open' in options ? options.open : undefined
  if (at !== 'send' && at !== 'dispatch') throw bad('`at` is "send" or "dispatch"')
  if ((open === undefined) === (options.do === undefined)) throw bad('give `do`, or, at dispatch, `open`')
  if (open !== undefined && at === 'send') throw bad('`open` needs `at: "dispatch"`')
  const given = options.do
  if (given !== undefined && typeof given !== 'function') check(given, at, bad)
  const list = (patterns: string | readonly string[] | undefined) => {
    const all = typeof patterns === 'string' ? [patterns] : patterns
    if (all !== undefined && (!Array.isArray(all) || all.length === 0 || !all.every(isPattern)))
      throw bad('`tasks` and `queues` are names, which may contain *')
    return all
  }
  return {
    name,
    at,
    tasks: list(options.tasks),
    queues: list(options.queues),
    hours: open === undefined ? undefined : parseHours(open),
    when: options.when as Rule['when'],
    do: (job) =>
      typeof given === 'function' ? evaluate(name, at, bad, () => given(job as RuleJob<Input>)) : present(given ?? {}),
  }
}

/** Evaluates the function of a rule. Its result is checked each time, and fields that are undefined change nothing. */
function evaluate(name: string, at: Rule['at'], bad: (what: string) => UsageError, give: () => unknown): SendChanges {
  let wanted: unknown
  try {
    wanted = give() ?? {}
  } catch (error) {
    throw failed(name, 'function', error)
  }
  if (typeof wanted !== 'object' || wanted === null || 'then' in wanted)
    throw bad('`do` must return an object of changes synchronously; do look-ups in `when`, which may be asynchronous')
  const given = present(wanted)
  check(given, at, bad)
  return given
}

function failed(name: string, what: string, cause: unknown): AttemptError {
  const message = `the ${what} of rule "${name}" threw: ${String(cause)}`
  return new AttemptError('SLUICE_RULE_FAILED', message, { retryable: true, cause })
}

const spanMaxMs = 366 * 86_400_000
/** The shortest hold, in ms: with shorter ones the job would only be claimed again and again. */
const holdMinMs = 100

function check(wanted: SendChanges & DispatchChanges, at: Rule['at'], bad: (what: string) => UsageError): void {
  checkFields('SLUICE_BAD_RULE', `a rule at ${at}`, wanted, changes[at])
  const { queue, priority, tags, delay, hold, keys, discard } = wanted
  if (queue !== undefined) checkName('queue', queue)
  if (priority !== undefined) checkPriority(priority)
  checkTags(tags)
  for (const span of [delay, hold])
    if (span !== undefined && durationMs(span) > spanMaxMs) throw bad('`delay` and `hold` are 366 days at most')
  if (hold !== undefined && durationMs(hold) < holdMinMs) throw bad('`hold` is 100 ms at least')
  if (Object.values(keys ?? {}).some((key) => typeof key !== 'string')) throw bad('keys are texts')
  if (discard !== undefined && (typeof discard !== 'string' || discard === '')) throw bad('`discard` is a reason')
}

/** The changes that one rule made to a job, or the time limit of the message that it comes from; stored with the job. */
export type Ruled = { rule: string } & SendChanges & DispatchChanges & { heldUntil?: string; timeoutMs?: number }

/** A table of routes: pattern of task names to a queue, or to a queue and a priority. The first match wins. */
export type Routes = Readonly<Record<string, string | { queue?: string; priority?: number }>>

/** The decision of a rule about a job that could start now: it makes these changes, or holds the job until `atUs`. */
export interface Ruling {
  rule: string
  wanted: DispatchChanges
  atUs?: number
}

/** Routes and rules of one Sluice, and the costs that it has learned: everything besides the task that affects a job. */
export class Rulebook {
  readonly #routes: [string, { queue?: string; priority?: number }][]
  readonly #send: Rule[]
  readonly #dispatch: Rule[]
  /** Rules that consist of hours for tasks and queues alone: closed classes are not even claimed. */
  readonly gates: readonly Rule[]
  readonly estimates: Estimates | undefined

  /** @throws UsageError SLUICE_BAD_RULE, SLUICE_BAD_TASK, SLUICE_BAD_OPTION */
  constructor(rules: readonly Rule[] = [], routes: Routes = {}, estimates?: Estimates) {
    this.estimates = estimates
    if (!Array.isArray(rules) || !rules.every((one: unknown) => typeof (one as Rule | undefined)?.do === 'function'))
      throw new UsageError('SLUICE_BAD_RULE', 'rules: a list of results of `rule(…)`')
    const twice = rules.find((one, i) => rules.findIndex(({ name }) => name === one.name) !== i)
    if (twice !== undefined) throw new UsageError('SLUICE_BAD_RULE', `there are two rules "${twice.name}"`)
    if (typeof routes !== 'object' || routes === null || Array.isArray(routes))
      throw new UsageError('SLUICE_BAD_RULE', "routes: an object such as { 'email.*': 'mail' }")
    this.#routes = Object.entries(routes).map(([pattern, to]) => {
      const route = typeof to === 'string' ? { queue: to } : to
      if (!isPattern(pattern)) throw new UsageError('SLUICE_BAD_RULE', `"${pattern}" is not a pattern of task names`)
      checkFields('SLUICE_BAD_RULE', `the route of "${pattern}"`, route, ['queue', 'priority'])
      if (route.queue !== undefined) checkName('queue', route.queue)
      if (route.priority !== undefined) checkPriority(route.priority)
      return [pattern, route]
    })
    this.#send = rules.filter(({ at }) => at === 'send')
    this.gates = rules.filter(({ hours, when }) => hours !== undefined && when === undefined)
    this.#dispatch = rules.filter(({ at }) => at === 'dispatch')
  }

  /** True if there are rules at send, which a job that has met none has to meet. */
  get hasSendRules(): boolean {
    return this.#send.length > 0
  }

  /** True if there are rules at dispatch that are evaluated for single jobs. */
  get hasDispatchRules(): boolean {
    return this.#dispatch.length > 0
  }

  /** Returns the route of a task. */
  route(task: string): { queue?: string; priority?: number } {
    return this.#routes.find(([pattern]) => isAbout([pattern], task))?.[1] ?? {}
  }

  /**
   * Applies the rules at send, one after the other, to a job; each sees the changes of those before it. A discard ends
   * the chain.
   */
  async atSend(job: RuleJob): Promise<{ changes: SendChanges; ruled: Ruled[] }> {
    const all: SendChanges = {}
    const ruled: Ruled[] = []
    for (const one of this.#send) {
      const seen = {
        ...job,
        ...present({ queue: all.queue, priority: all.priority }),
        tags: [...job.tags, ...(all.tags ?? [])],
        keys: { ...job.keys, ...all.keys },
      }
      if (!(await applies(one, seen))) continue
      const wanted = one.do(seen)
      ruled.push({ rule: one.name, ...wanted })
      Object.assign(all, wanted, {
        tags: [...(all.tags ?? []), ...(wanted.tags ?? [])],
        keys: { ...all.keys, ...wanted.keys },
      })
      if (wanted.discard !== undefined) break
    }
    return { changes: all, ruled }
  }

  /**
   * Returns the decision of the first rule at dispatch that does not let a job start now; undefined: the job starts.
   * @param opens returns when hours open next, in microseconds since 1970; undefined: they are open
   */
  async atDispatch(job: RuleJob, opens: OpeningReader): Promise<Ruling | undefined> {
    for (const one of this.#dispatch) {
      if (!(await applies(one, job))) continue
      if (one.hours !== undefined) {
        const atUs = await opens(one.hours)
        if (atUs !== undefined) return { rule: one.name, wanted: {}, atUs }
        continue
      }
      const wanted = one.do(job)
      const isMoved = (wanted.queue ?? job.queue) !== job.queue || (wanted.priority ?? job.priority) !== job.priority
      if (isMoved || wanted.hold !== undefined || wanted.discard !== undefined) return { rule: one.name, wanted }
    }
    return undefined
  }
}

/**
 * Returns whether a rule applies to a task. `onFailed` jobs have another input than those that failed, so only a pattern
 * with the suffix matches them.
 */
function isAbout(patterns: readonly string[] | undefined, task: string): boolean {
  if (!task.endsWith(failureSuffix)) return fits(patterns, task)
  return patterns?.some((one) => one.endsWith(failureSuffix) && fits(one, task)) ?? false
}

async function applies({ name, tasks, queues, when }: Rule, job: RuleJob): Promise<boolean> {
  if (!isAbout(tasks, job.task) || !fits(queues, job.queue)) return false
  try {
    return when === undefined || (await when(job))
  } catch (error) {
    throw failed(name, 'condition', error)
  }
}
