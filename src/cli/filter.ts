/** The options that select jobs: the same for lists, exports and bulk operations. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { failureReasons, scheduledReasons } from '../core/reasons.ts'
import type { JobFilter, State } from '../index.ts'
import { timeOf, whole } from './settings.ts'

/** The options as commander parses them. */
export interface FilterFlags extends Omit<
  JobFilter,
  'state' | 'since' | 'until' | 'dispatchedSince' | 'dispatchedUntil'
> {
  state?: readonly State[]
  since?: string
  until?: string
  dispatchedSince?: string
  dispatchedUntil?: string
  service?: string
  event?: string
}

/** Adds the options; `states` are the choices of `--state`, `usual` its default: all of them unless it is given. */
export function filterFlags(command: Command, states: readonly State[], usual?: readonly State[]): Command {
  if (states.length > 1) {
    const all = `any ${states.length > 3 ? 'unfinished one' : 'of these'}`
    const help = `jobs in this state, or in several with commas between (default: ${usual?.join(', ') ?? all})`
    command.addOption(severalOf(new Option('--state <state>', help).choices(states)))
  }
  return command
    .option('--task <name>', 'jobs of this task')
    .option('--queue <name>', 'jobs in this queue')
    .option('--tag <tag>', 'jobs with this tag')
    .option(
      '--reason <reason>',
      'why jobs ended (exhausted, refused, crashed, …), or are scheduled (retry, delay, throttled, snoozed, rule)',
    )
    .option('--error <text>', "a part of the last error's message, case-insensitive")
    .option('--error-code <code>', 'the code of the last error, such as SLUICE_HTTP_STATUS or ECONNREFUSED')
    .option('--failures <n>', 'jobs of which at least n attempts failed', whole(1, 1_000_000))
    .option('--since <time>', 'jobs that ended (unfinished: were sent) since 2h, 7d or 2030-01-31T12:00:00Z')
    .option('--until <time>', 'jobs that ended (unfinished: were sent) before that time')
    .option('--dispatched-since <time>', 'jobs whose last attempt a worker took since that time')
    .option('--dispatched-until <time>', 'jobs whose last attempt a worker took before that time')
    .option('--limit <name>', 'jobs that use this limit')
    .option('--key <key>', 'with --limit: jobs that use this key of it')
    .option('--service <name>', 'deliveries of events to this service')
    .option('--event <type>', 'deliveries of events of this type')
    .option('--input <path=value>', 'a field of the input, such as account.id=a1; may be repeated', field)
}

/** Lets an option take several of its choices, with commas between, or again and again. */
function severalOf(option: Option): Option {
  const { parseArg: check } = option
  return option.argParser((text, before: readonly string[] | undefined) => [
    ...(before ?? []),
    ...text.split(',').map((one) => check?.(one.trim(), '') ?? one),
  ])
}

/**
 * Rejects the options of lists for a command below `jobs`, which has them, and takes them before that command sees them.
 * @throws UsageError SLUICE_BAD_OPTION
 */
export function rejectListFlags(command: Command, instead: string): void {
  for (const name of ['max', 'before'])
    if (command.parent?.getOptionValueSource(name) === 'cli')
      throw new UsageError('SLUICE_BAD_OPTION', `--${name} is for lists; ${instead} (--since, --until, …)`)
}

/** A cancelled job has any reason that somebody gave. */
function checkReason({ state, reason }: FilterFlags): void {
  if (
    reason === undefined ||
    state?.includes('cancelled') === true ||
    [...failureReasons, ...scheduledReasons].some((one) => one === reason)
  )
    return
  const text = `--reason is "${reason}"; jobs fail as ${failureReasons.join(', ')}, and are scheduled as ${scheduledReasons.join(', ')}; any other reason is one of --state cancelled`
  throw new UsageError('SLUICE_BAD_OPTION', text)
}

/** Makes the filter from the options. @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
export function filterOf(flags: FilterFlags): JobFilter {
  checkReason(flags)
  const { state, task, queue, tag, reason, error, errorCode, failures, limit, key, input, since, until } = flags
  const { dispatchedSince, dispatchedUntil, service, event } = flags
  if (event !== undefined && /[*#]/.test(event))
    throw new UsageError('SLUICE_BAD_OPTION', `--event is "${event}", a pattern; give one type of events`)
  const deliveries = { ...(service && { service }), ...(event && { 'event.type': event }), ...input }
  return present({
    state,
    task,
    queue,
    tag,
    reason,
    error,
    errorCode,
    failures,
    limit,
    key,
    input: Object.keys(deliveries).length === 0 ? undefined : deliveries,
    since: time('--since', since),
    until: time('--until', until),
    dispatchedSince: time('--dispatched-since', dispatchedSince),
    dispatchedUntil: time('--dispatched-until', dispatchedUntil),
  })
}

/** Returns the fields of the input that two filters demand together. */
export function inputOf(...filters: readonly JobFilter[]): JobFilter {
  const input = Object.assign({}, ...filters.map((filter) => filter.input)) as NonNullable<JobFilter['input']>
  return Object.keys(input).length === 0 ? {} : { input }
}

function field(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('It must be a path and a value, such as account.id=a1.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

/** Parses a time of an option: an instant, or how long ago. @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_DURATION */
export function time(flag: string, text: string | undefined): Date | Duration | undefined {
  if (text === undefined) return undefined
  if (/^\d{4}-/.test(text)) return timeOf(flag, text)
  try {
    durationMs(text as Duration)
  } catch {
    const message = `${flag} is "${text}"; write how long ago, such as 2h or 7d, or a time, such as 2030-01-31T12:00:00Z`
    throw new UsageError('SLUICE_BAD_DURATION', message)
  }
  return text as Duration
}
