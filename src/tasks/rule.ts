/** Rules: named decisions about jobs, in order; when a job is sent, and again when it could be dispatched. */
import { AttemptError, UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Hours, type ParsedHours, parseHours } from '../core/hours.ts'
import { fits, isPattern } from '../core/pattern.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Estimates } from './estimate.ts'
import { checkName, checkPriority, checkTags, failureSuffix } from './task.ts'

/** What a rule sees of a job. */
export interface RuleJob<Input = unknown> {
  readonly task: string
  readonly queue: string
  readonly priority: number
  readonly tags: readonly string[]
  readonly input: Input
  /** The key of each of its limits, by the limit's name; '' for a limit without one. */
  readonly keys: Readonly<Record<string, string>>
}

/** What a rule at send may change. */
export interface SendChanges {
  queue?: string
  /** -1000 to 1000. */
  priority?: number
  /** Added to the job's own. */
  tags?: readonly string[]
  /** Not before so long from now; instead of the sender's `delay` or `at`. */
  delay?: Duration
  /** Other keys for limits of the task, by the limit's name. */
  keys?: Readonly<Record<string, string>>
  /** Do not run it: it is recorded as cancelled, with this reason. */
  discard?: string
}

/** What a rule at dispatch may do with a job that could run now. */
export interface DispatchChanges {
  /** Run it from that queue instead. */
  queue?: string
  priority?: number
  /** Put it off for so long, then look again. */
  hold?: Duration
  /** Do not run it: it is recorded as cancelled, with this reason. */
  discard?: string
}

interface Match<Input> {
  /** Tasks that it is about, by name or pattern (`'email.*'`); default all. */
  tasks?: string | readonly string[]
  /** Queues that it is about; default all. */
  queues?: string | readonly string[]
  /** Further condition. Quick, at dispatch: the job's grant grows old meanwhile. What it throws ends the send, or the attempt. */
  when?: (job: RuleJob<Input>) => boolean | Promise<boolean>
}

/** A rule that looks at jobs when they are sent. */
export interface SendRuleOptions<Input> extends Match<Input> {
  at?: 'send'
  /** What to change, or who says what. */
  do: SendChanges | ((job: RuleJob<Input>) => SendChanges)
}

/** A rule that looks at jobs which could run now, before they do: it costs no attempt, and the grant is given back. */
export interface DispatchRuleOptions<Input> extends Match<Input> {
  at: 'dispatch'
  /** Hold jobs outside these hours. Without `when`, jobs that wait for them are not even looked at. */
  open?: Hours
  /** What to do, or who says what. One of `open` and `do`. */
  do?: DispatchChanges | ((job: RuleJob<Input>) => DispatchChanges)
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
 * @param name unique; recorded on each job that it does something to; as a task's name
 * @throws UsageError SLUICE_BAD_RULE, SLUICE_BAD_HOURS
 * @example rule('vip', { tasks: 'sync-*', when: ({ input }) => input.plan === 'vip', do: { priority: 10 } })
 * @example rule('office', { at: 'dispatch', tasks: 'call-*', open: { from: '08:00', to: '18:00', days: 'mon-fri', zone: 'Europe/Berlin' } })
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
    if (all?.length === 0 || all?.some((one) => !isPattern(one))) throw bad('names of tasks and queues, with * at will')
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
      typeof given === 'function' ? asked(name, at, bad, () => given(job as RuleJob<Input>)) : (given ?? {}),
  }
}

/** What a function says is checked each time, and what it leaves undefined changes nothing. */
function asked(name: string, at: Rule['at'], bad: (what: string) => UsageError, give: () => unknown): SendChanges {
  let wanted: unknown
  try {
    wanted = give() ?? {}
  } catch (error) {
    throw failed(name, 'function', error)
  }
  if (typeof wanted !== 'object' || wanted === null || 'then' in wanted)
    throw bad('`do` gives an object of changes at once; look things up in `when`, which may be asynchronous')
  const given = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined))
  check(given, at, bad)
  return given
}

function failed(name: string, what: string, cause: unknown): AttemptError {
  const message = `the ${what} of rule "${name}" threw: ${String(cause)}`
  return new AttemptError('SLUICE_RULE_FAILED', message, { retryable: true, cause })
}

const spanMaxMs = 366 * 86_400_000
/** Shorter holds would only have the job go round. */
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

/** What one rule did to a job; kept on it. */
export type Ruled = { rule: string } & SendChanges & DispatchChanges & { heldUntil?: string }

/** A table of routes: pattern of task names to a queue, or to a queue and a priority. The first that fits holds. */
export type Routes = Readonly<Record<string, string | { queue?: string; priority?: number }>>

/** Asks the store when hours open next, in microseconds since 1970; undefined: they are open. */
export type Opens = (hours: ParsedHours) => Promise<number | undefined>

/** What a rule does to a job that could run now: what it wants, or hold it until `atUs`. */
export interface Ruling {
  rule: string
  wanted: DispatchChanges
  atUs?: number
}

/** Routes and rules of one Sluice, and what it has learned of costs: all that has a say in a job beside its task. */
export class Rulebook {
  readonly #routes: [string, { queue?: string; priority?: number }][]
  readonly #send: Rule[]
  readonly #dispatch: Rule[]
  /** Rules that consist of hours for tasks and queues alone: what is closed need not even be claimed. */
  readonly gates: readonly Rule[]
  readonly estimates: Estimates | undefined

  /** @throws UsageError SLUICE_BAD_RULE, SLUICE_BAD_TASK, SLUICE_BAD_OPTION */
  constructor(rules: readonly Rule[] = [], routes: Routes = {}, estimates?: Estimates) {
    this.estimates = estimates
    if (!Array.isArray(rules) || !rules.every((one: unknown) => typeof (one as Rule | undefined)?.do === 'function'))
      throw new UsageError('SLUICE_BAD_RULE', 'rules: a list of what `rule(…)` makes')
    const twice = rules.find((one, i) => rules.findIndex(({ name }) => name === one.name) !== i)
    if (twice !== undefined) throw new UsageError('SLUICE_BAD_RULE', `there are two rules "${twice.name}"`)
    this.#routes = Object.entries(routes).map(([pattern, to]) => {
      const route = typeof to === 'string' ? { queue: to } : to
      if (!isPattern(pattern)) throw new UsageError('SLUICE_BAD_RULE', `"${pattern}" is no pattern of task names`)
      if (route.queue !== undefined) checkName('queue', route.queue)
      if (route.priority !== undefined) checkPriority(route.priority)
      return [pattern, route]
    })
    this.#send = rules.filter(({ at }) => at === 'send')
    this.gates = rules.filter(({ hours, when }) => hours !== undefined && when === undefined)
    this.#dispatch = rules.filter(({ at }) => at === 'dispatch')
  }

  /** There are rules at send, so a job that has met none is to meet them. */
  get hasSendRules(): boolean {
    return this.#send.length > 0
  }

  /** There are rules at dispatch that look at single jobs. */
  get hasDispatchRules(): boolean {
    return this.#dispatch.length > 0
  }

  /** Where the table of routes has jobs of a task go. */
  route(task: string): { queue?: string; priority?: number } {
    return this.#routes.find(([pattern]) => isAbout([pattern], task))?.[1] ?? {}
  }

  /** What the rules at send, one after the other, do to a job; each sees what those before it did. A discard ends it. */
  async atSend(job: RuleJob): Promise<{ changes: SendChanges; ruled: Ruled[] }> {
    const all: SendChanges = {}
    const ruled: Ruled[] = []
    for (const one of this.#send) {
      const seen = {
        ...job,
        ...pick(all),
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
   * What the first rule that has something against it does to a job that could run now; undefined: it runs.
   * @param opens when hours open next, in microseconds since 1970; undefined: they are open
   */
  async atDispatch(job: RuleJob, opens: Opens): Promise<Ruling | undefined> {
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

function pick({ queue, priority }: SendChanges): Pick<SendChanges, 'queue' | 'priority'> {
  return { ...(queue === undefined ? {} : { queue }), ...(priority === undefined ? {} : { priority }) }
}

/** Jobs that tell of failures have another input than those that failed: they are meant only where a pattern names them. */
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
