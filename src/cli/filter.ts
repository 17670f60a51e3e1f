/** The flags that say which jobs: the same for lists, exports and bulk operations. */
import { type Command, InvalidArgumentError, Option } from 'commander'
import type { Duration } from '../core/rate.ts'
import type { JobFilter, State } from '../index.ts'
import { timeOf } from './settings.ts'

/** What commander makes of them. */
export interface FilterFlags extends Omit<JobFilter, 'state' | 'since' | 'until'> {
  state?: State
  since?: string
  until?: string
}

/** Adds the flags; `states` are those that the command knows. */
export function filterFlags(command: Command, states: readonly State[]): Command {
  if (states.length > 1) {
    const said = states.length > 3 ? 'default: any unfinished' : 'default: any of these'
    command.addOption(new Option('--state <state>', said).choices(states))
  }
  return command
    .option('--task <name>')
    .option('--queue <name>')
    .option('--tag <tag>')
    .option('--reason <reason>', 'why it ended: exhausted, refused, crashed, …')
    .option('--error <text>', "a part of the last error's message, in any case")
    .option('--since <time>', 'finished jobs: ended since 2h, 7d or 2030-01-31T12:00:00Z; others: made since then')
    .option('--until <time>', 'the same, before that')
    .option('--limit-key <limit:key>', 'that needs room there: crm:acct1')
    .option('--input <path=value>', 'a field of the input: account.id=a1; may be repeated', field)
}

/** The filter that flags say. @throws UsageError SLUICE_BAD_OPTION */
export function filterOf(flags: FilterFlags): JobFilter {
  const { state, task, queue, tag, reason, error, limitKey, input, since, until } = flags
  const given = {
    state,
    task,
    queue,
    tag,
    reason,
    error,
    limitKey,
    input,
    since: time('--since', since),
    until: time('--until', until),
  }
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
}

function field(text: string, before: Record<string, string> | undefined): Record<string, string> {
  const at = text.indexOf('=')
  if (at < 1) throw new InvalidArgumentError('It must be a path and a value: account.id=a1.')
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) }
}

/** A time as a flag gives it: an instant, or how long ago. @throws UsageError SLUICE_BAD_OPTION */
export function time(flag: string, text: string | undefined): Date | Duration | undefined {
  if (text === undefined) return undefined
  return /^\d{4}-/.test(text) ? timeOf(flag, text) : (text as Duration)
}
