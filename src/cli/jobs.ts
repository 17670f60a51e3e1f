/** `sluice jobs`: lists jobs. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { quoted } from '../core/printable.ts'
import { redact } from '../core/redact.ts'
import type { JobLine, State } from '../index.ts'
import { isFinal } from '../operations/jobs.ts'
import { discardCommand } from './bulk.ts'
import { editCommand } from './edit.ts'
import { exportCommand } from './export.ts'
import { type FilterFlags, filterFlags, filterOf } from './filter.ts'
import { idOf } from './ids.ts'
import { mustKnowAll } from './known.ts'
import { brief, span } from './output.ts'
import { showCommand } from './show.ts'
import { givenOptions, inStore, whole } from './settings.ts'

interface ListFlags extends FilterFlags {
  max: number
  before?: string
}

const states: State[] = ['scheduled', 'waiting', 'dispatched', 'running', 'done', 'failed', 'cancelled']

/** `sluice jobs` and `sluice jobs show`. */
export function jobsCommand(): Command {
  return filterFlags(new Command('jobs'), states)
    .description('list jobs, newest first; without --state only unfinished ones')
    .option('--max <n>', 'list at most n jobs', whole(1, 1_000), 50)
    .option('--before <id>', 'list jobs sent before this one: the next page')
    .action(listJobs)
    .addCommand(showCommand())
    .addCommand(editCommand())
    .addCommand(discardCommand())
    .addCommand(exportCommand(states))
}

async function listJobs(flags: ListFlags, command: Command): Promise<void> {
  const { before, max } = flags
  const options = { ...filterOf(flags), max }
  const [out, found] = await inStore(command, async (sluice, sql) => {
    await mustKnowAll(sql, options)
    return sluice.list({ ...options, ...(before === undefined ? {} : { before: await idOf(sql, before) }) })
  })
  const jobs = found.map((job) => ({ ...job, ...redact({ error: job.error, tags: job.tags, reason: job.reason }) }))
  if (out.json) return jobs.forEach((job) => out.object(job))
  const last = jobs.at(-1)
  if (last === undefined) {
    out.talk(flags.state === undefined ? 'no unfinished jobs match' : `no ${flags.state.join(' or ')} jobs match`)
    if (flags.service !== undefined || flags.event !== undefined)
      return out.hint('`sluice events list` has services, types and handlers')
    return out.hint(flags.state === undefined ? '`sluice jobs --state done`, or `--state failed`' : '`sluice status`')
  }
  out.table([['ID', 'STATE', 'TASK', 'QUEUE', 'ATTEMPT', 'AGE', 'ERROR'], ...jobs.map(cells)])
  if (jobs.length === max)
    out.hint(
      `\`sluice ${['jobs', ...givenOptions(command, '--before'), '--before', last.id].map(quoted).join(' ')}\` for older ones`,
    )
  else out.hint(isFinal(last.state) ? `\`sluice jobs show ${last.id}\`` : `\`sluice why ${last.id}\``)
}

function cells(job: JobLine): string[] {
  const age = span(systemClock.wallMs() - job.createdAt.getTime())
  return [
    job.id,
    // Scheduled for its first attempt (`delay`) or for another one (`retry`).
    job.state === 'scheduled' && job.reason !== null ? `${job.state} (${job.reason})` : job.state,
    job.task,
    job.queue,
    String(job.attempt),
    age,
    brief(job.error?.message ?? (job.state === 'scheduled' ? '' : (job.reason ?? '')), 60),
  ]
}
