/** `sluice jobs`, `retry`, `cancel`: find jobs and act on them. */
import { Command, Option } from 'commander'
import { systemClock } from '../core/clock.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import { isId } from '../core/hash.ts'
import { redact } from '../core/redact.ts'
import type { Job, JobLine, ListOptions, Sluice, State } from '../index.ts'
import { isFinal } from '../store/jobs.ts'
import { brief, span } from './output.ts'
import { settingsOf, whole, withSluice } from './settings.ts'

const states: State[] = ['scheduled', 'waiting', 'running', 'done', 'failed', 'cancelled']

/** `sluice jobs` and `sluice jobs show`. */
export function jobsCommand(): Command {
  const show = new Command('show')
    .description("a job's whole record, its secrets as [redacted]")
    .argument('<id>')
    .option('--reveal', 'show its secrets as well')
    .action(showJob)
  return new Command('jobs')
    .description('list jobs, newest first; unfinished ones unless --state says otherwise')
    .addOption(new Option('--state <state>', 'default: any unfinished').choices(states))
    .option('--task <name>')
    .option('--tag <tag>')
    .option('--limit <n>', 'so many', whole(1, 1_000), 50)
    .option('--before <id>', 'only those made before this one: the next page')
    .action(listJobs)
    .addCommand(show)
}

/** `sluice retry`. */
export function retryCommand(): Command {
  return new Command('retry')
    .description('give failed jobs another round of attempts')
    .argument('<id...>')
    .action((ids: string[], _: object, command: Command) =>
      each(ids, command, {
        done: 'retried',
        missing: 'no such failed job',
        act: (sluice, id) => sluice.jobs.retry(id),
      }),
    )
}

/** `sluice cancel`. */
export function cancelCommand(): Command {
  return new Command('cancel')
    .description(
      'cancel unfinished jobs; a running attempt is told within some 2 s, and what it does has no effect here',
    )
    .argument('<id...>')
    .action((ids: string[], _: object, command: Command) =>
      each(ids, command, {
        done: 'cancelled',
        missing: 'no such unfinished job',
        act: (sluice, id) => sluice.jobs.cancel(id),
      }),
    )
}

async function listJobs(options: ListOptions, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const found = await withSluice(settings, { creates: false }, (sluice) => sluice.list(options))
  const jobs = found.map((job) => ({ ...job, ...redact({ error: job.error, tags: job.tags }) }))
  if (out.json) return jobs.forEach((job) => out.object(job))
  const last = jobs.at(-1)
  if (last === undefined) {
    out.talk(options.state === undefined ? 'no unfinished jobs' : `no jobs are ${options.state}`)
    return out.hint(options.state === undefined ? '`sluice jobs --state done`, or `--state failed`' : '`sluice status`')
  }
  out.table([['ID', 'STATE', 'TASK', 'QUEUE', 'ATTEMPT', 'AGE', 'ERROR'], ...jobs.map(cells)])
  if (jobs.length === options.limit) out.hint(`\`sluice jobs --before ${last.id}\` for older ones`)
  else out.hint(isFinal(last.state) ? `\`sluice jobs show ${last.id}\`` : `\`sluice why ${last.id}\``)
}

function cells(job: JobLine): string[] {
  const age = span(systemClock.wallMs() - job.createdAt.getTime())
  return [
    job.id,
    job.state,
    job.task,
    job.queue,
    String(job.attempt),
    age,
    brief(job.error?.message ?? job.reason ?? '', 60),
  ]
}

async function showJob(id: string, flags: { reveal?: boolean }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const found = await withSluice(settings, { creates: false }, (sluice) => sluice.jobs.get(id))
  if (found === undefined) throw noSuchJob(id)
  const { input, result, error, limits, tags } = found
  const job = flags.reveal === true ? found : { ...found, ...redact({ input, result, error, limits, tags }) }
  if (out.json) return out.object(job)
  for (const [name, value] of lines(job)) out.line(`${out.paint('dim', name.padEnd(13))}${value}`)
  if (job.state === 'failed') out.hint(`\`sluice retry ${id}\``)
  else if (!isFinal(job.state)) out.hint(`\`sluice why ${id}\``)
}

function lines(job: Job): [string, string][] {
  return Object.entries(job).flatMap(([name, value]: [string, unknown]): [string, string][] => {
    if (value === null || (Array.isArray(value) && value.length === 0)) return []
    if (value instanceof Date) return [[name, value.toISOString()]]
    return [[name, typeof value === 'string' ? value : JSON.stringify(value)]]
  })
}

/** A job that a command needs and that is not there: not the command line's fault, so exit code 1. */
export function noSuchJob(id: string): SluiceError {
  return new SluiceError('SLUICE_NO_SUCH_JOB', `there is no job ${id}, or its record is past its retention`)
}

interface Act {
  done: string
  missing: string
  act: (sluice: Sluice, id: string) => Promise<boolean>
}

async function each(ids: string[], command: Command, { done, missing, act }: Act): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const odd = ids.find((id) => !isId(id))
  // Before anything is done to the others.
  if (odd !== undefined) throw new UsageError('SLUICE_BAD_ID', `"${odd}" is not a job id (a UUIDv7)`)
  await withSluice(settings, { creates: false }, async (sluice) => {
    for (const id of ids) {
      const found = await act(sluice, id)
      if (!found) process.exitCode = 1
      if (out.json) out.object({ id, [done]: found })
      else if (found) out.line(`${id} ${done}`)
      else out.talk(`${id} ${missing}`)
    }
  })
  out.hint(`\`sluice jobs show ${ids[0]}\``)
}
