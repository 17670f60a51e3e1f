/** `sluice retry`, `cancel`, `reprioritise`: by ids, or all jobs that a filter matches, after a confirmation. */
import { createInterface } from 'node:readline'
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import { parseRate, type Rate } from '../core/rate.ts'
import type { BulkOptions, JobFilter, Sluice, State } from '../index.ts'
import { barOn } from './bar.ts'
import { type FilterFlags, filterFlags, filterOf, inputOf, rejectListFlags } from './filter.ts'
import { checkIdPart, idOf } from './ids.ts'
import { mustKnowAll } from './known.ts'
import { brief, many, type Output } from './output.ts'
import { settingsOf, whole, withSluice } from './settings.ts'
import { stopSignal } from './stop.ts'

interface BulkFlags extends FilterFlags {
  all?: boolean
  yes?: boolean
  dryRun?: boolean
  priority?: number
  rate?: Rate
}

/** An operation on many jobs. */
export interface Act {
  verb: string
  /** Past tense of the verb. */
  done: string
  /** The states of jobs that it can change, and those that it changes unless `--state` selects one. */
  states: readonly State[]
  usual?: readonly State[]
  many: (sluice: Sluice, filter: JobFilter, options: BulkOptions) => Promise<number>
  /** Returns what to do next where no job matches; undefined: as after a change. */
  none?: ((sluice: Sluice) => Promise<string | undefined>) | undefined
}

/** An operation that also takes ids. */
interface ActById extends Act {
  /** Which jobs it can change, for people. */
  changes: string
  one: (sluice: Sluice, id: string) => Promise<boolean>
}

/** `sluice retry`. */
export function retryCommand(
  name = 'retry',
  description = 'give failed jobs another round of attempts, or with --state scheduled let those that wait for one begin it now',
  done = 'retried',
  own: JobFilter = {},
  none?: Act['none'],
): Command {
  const act: ActById = {
    ...failed(name, done, none, {
      one: (sluice, id) => sluice.jobs.retry(id),
      many: (sluice, filter, options) => sluice.jobs.retryMany(filter, options),
    }),
    changes: 'failed jobs, and those that wait for another attempt,',
    states: ['failed', 'scheduled'],
    usual: ['failed'],
  }
  return command(name, description, () => act, own).option(
    '--rate <n/s>',
    'with a filter: at most this many, such as 100/s',
  )
}

/** `sluice jobs discard`. */
export function discardCommand(
  description = 'take failed jobs out of the failed ones for good; they are kept as cancelled',
  own: JobFilter = {},
  none?: Act['none'],
): Command {
  const act = failed('discard', 'discarded', none, {
    one: (sluice, id) => sluice.jobs.discard(id),
    many: (sluice, filter, options) => sluice.jobs.discardMany(filter, options),
  })
  return command('discard', description, () => act, own)
}

/** Makes an operation on failed jobs. */
function failed(verb: string, done: string, none: Act['none'], how: Pick<ActById, 'one' | 'many'>): ActById {
  return { none, verb, done, changes: 'failed jobs', states: ['failed'], ...how }
}

/** `sluice cancel`. */
export function cancelCommand(): Command {
  const description = 'cancel unfinished jobs; a running attempt is aborted within some 2 s, and its result is ignored'
  return command('cancel', description, () => ({
    verb: 'cancel',
    done: 'cancelled',
    changes: 'unfinished jobs',
    states: ['scheduled', 'waiting', 'dispatched', 'running'],
    one: (sluice, id) => sluice.jobs.cancel(id),
    many: (sluice, filter, options) => sluice.jobs.cancelMany(filter, options),
  }))
}

/** `sluice reprioritise`. */
export function reprioritiseCommand(): Command {
  const description = 'change the priority of waiting and scheduled jobs'
  return command('reprioritise', description, ({ priority = 0 }) => ({
    verb: 'reprioritise',
    done: 'reprioritised',
    changes: 'waiting or scheduled jobs',
    states: ['scheduled', 'waiting'],
    one: async (sluice, id) => (await sluice.jobs.reprioritise(id, priority)) > 0,
    many: (sluice, filter, options) => sluice.jobs.reprioritise(filter, priority, options),
  }))
    .alias('reprioritize')
    .requiredOption('--priority <n>', 'the new priority; higher first, -1000 to 1000', whole(-1_000, 1_000))
}

/** Makes a command; `own`: what its filter has in any case. */
function command(
  name: string,
  description: string,
  actOf: (flags: BulkFlags) => ActById,
  own: JobFilter = {},
): Command {
  const { states, usual } = actOf({})
  return filterFlags(new Command(name).description(`${description}; by ids, or by a filter`), states, usual)
    .argument('[id...]', 'ids of jobs; or select jobs by the options below')
    .option('--all', 'select all jobs, without a filter')
    .option('--yes', 'confirm in advance')
    .option('--dry-run', 'print how many jobs match, and change nothing')
    .action((ids: string[], _: object, self: Command) => {
      // `jobs` has the same options for lists, and takes them before a command below it sees them.
      const flags = self.optsWithGlobals<BulkFlags>()
      return run(ids, flags, actOf(flags), self, own)
    })
}

async function run(ids: string[], flags: BulkFlags, act: ActById, self: Command, own: JobFilter): Promise<void> {
  rejectListFlags(self, `${act.verb} selects all jobs that match`)
  if (ids.length > 0 && flags.reason !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', '--reason selects jobs by why they ended, or wait; leave it out with ids')
  const settings = await settingsOf(self)
  const filter = filterOf(flags)
  const isFiltered = Object.keys(filter).length > 0
  if (flags.rate !== undefined) parseRate(flags.rate)
  // Checked before the first job is changed.
  ids.forEach(checkIdPart)
  if (ids.length > 0 && (isFiltered || flags.all === true))
    throw new UsageError('SLUICE_BAD_OPTION', 'give ids, or select jobs by options; not both')
  if (ids.length > 0 && flags.dryRun === true)
    throw new UsageError('SLUICE_BAD_OPTION', '--dry-run counts what options select; with ids, `sluice jobs show <id>`')
  if (ids.length === 0 && !isFiltered && flags.all !== true)
    throw new UsageError(
      'SLUICE_EMPTY_FILTER',
      `no jobs are selected to ${act.verb}: give ids or options (--task, --since, …), or --all for all jobs`,
    )
  await withSluice(settings, { creates: false }, async (sluice, sql) => {
    const { out } = settings
    if (ids.length > 0) {
      const whole: string[] = []
      for (const id of ids) whole.push(await idOf(sql, id))
      return changeById(sluice, out, whole, act)
    }
    await mustKnowAll(sql, filter)
    const wanted = { ...filter, ...own, ...inputOf(filter, own), state: filter.state ?? act.usual ?? act.states }
    return changeFound(sluice, out, wanted, flags, act)
  })
}

async function changeById(sluice: Sluice, out: Output, ids: string[], { done, changes, one }: ActById): Promise<void> {
  for (const each of ids) {
    const found = await one(sluice, each)
    if (!found) process.exitCode = 1
    const state = found ? undefined : ((await sluice.jobs.get(each))?.state ?? null)
    if (out.json) out.object({ id: each, [done]: found, ...present({ state }) })
    else if (found) out.line(`${each} ${done}`)
    else if (state === null) out.talk(`${each} is no job, or its record is past its retention`)
    else out.talk(`${each} is ${state}: only ${changes} can be ${done}`)
  }
  out.hint(`\`sluice jobs show ${ids[0]}\``)
}

/** Counts the jobs that a filter matches, requires a confirmation unless `--yes` is given, and changes them until it is stopped. */
export async function changeFound(
  sluice: Sluice,
  out: Output,
  wanted: JobFilter,
  flags: Pick<BulkFlags, 'yes' | 'dryRun' | 'rate'>,
  act: Act,
): Promise<void> {
  // Jobs that are sent while the user decides must not be changed.
  const filter = await sluice.jobs.asOfNow(wanted)
  const { count, isExact } = await sluice.jobs.count(filter)
  const what = `${isExact ? '' : 'at least '}${many(count, 'job')}`
  if (flags.dryRun === true) {
    if (out.json) return out.object({ found: count, isExact })
    out.line(`${what} would be ${act.done}`)
    const next = count === 0 ? await act.none?.(sluice) : undefined
    if (next !== undefined) out.hint(next)
    return printExamples(sluice, out, filter)
  }
  if (flags.yes !== true && (count > 0 || !isExact)) {
    const show = () => printExamples(sluice, out, filter)
    if (!(await isWanted(out, act, what, ', or check with --dry-run', show))) return
  }
  const changed = await changeMany(out, act.done, isExact ? count : undefined, (options) =>
    act.many(sluice, filter, { all: true, ...options, ...present({ rate: flags.rate }) }),
  )
  if (changed !== undefined) out.hint((changed === 0 ? await act.none?.(sluice) : undefined) ?? '`sluice status`')
}

/**
 * Resolves to whether the user confirms a change of what `what` names. @param show shows examples of it
 * @throws UsageError SLUICE_NOT_CONFIRMED without a terminal; `or` is what else to do than --yes
 */
export async function isWanted(
  out: Output,
  { verb, done }: Pick<Act, 'verb' | 'done'>,
  what: string,
  or = '',
  show: () => Promise<void> = async () => {},
): Promise<boolean> {
  if (!process.stdin.isTTY || !process.stderr.isTTY)
    throw new UsageError('SLUICE_NOT_CONFIRMED', `${what} would be ${done}; confirm with --yes${or}`)
  await show()
  if (await confirm(`${verb} ${what}? [y/N] `)) return true
  process.exitCode = 1
  out.talk('nothing was changed')
  return false
}

/**
 * Changes many until Ctrl-C stops it, shows the progress on a terminal, and prints how many were changed. Resolves to that number;
 * undefined: it was stopped.
 * @param done past tense of what is done
 * @param total how many there are; undefined: it is not known
 * @param change reports in `at` how many of these it has passed, if it passes others than it changes
 */
export async function changeMany(
  out: Output,
  done: string,
  total: number | undefined,
  change: (options: {
    signal: AbortSignal
    onProgress: (progress: { done: number; at?: number }) => void
  }) => Promise<number>,
): Promise<number | undefined> {
  const signal = stopSignal()
  const bar = barOn(out.json ? undefined : process.stderr, total, done)
  const onProgress = ({ done: changed, at = changed }: { done: number; at?: number }) => {
    bar.count(changed)
    bar.set(at)
  }
  const count = await change({ signal, onProgress }).finally(() => bar.end())
  if (out.json) out.object({ [done]: count, stopped: signal.aborted })
  else out.line(`${count} ${done}`)
  if (!signal.aborted) return count
  process.exitCode = 1
  out.talk('stopped; the same command continues with the rest')
  return undefined
}

async function printExamples(sluice: Sluice, out: Output, filter: JobFilter): Promise<void> {
  for (const job of await sluice.list({ ...filter, max: 3 }))
    out.talk(`  ${job.id} ${job.state} ${job.task} ${brief(job.error?.message ?? job.reason ?? '', 60)}`.trimEnd())
}

/** Prompts for yes or no on a terminal; Ctrl-C and Ctrl-D mean no. */
export function confirm(
  question: string,
  input: NodeJS.ReadableStream = process.stdin,
  output: NodeJS.WritableStream = process.stderr,
): Promise<boolean> {
  const reader = createInterface({ input, output })
  return new Promise((resolve) => {
    reader.once('close', () => resolve(false))
    reader.once('SIGINT', () => reader.close())
    reader.question(question, (answer) => {
      resolve(/^y(es)?$/i.test(answer.trim()))
      reader.close()
    })
  })
}
