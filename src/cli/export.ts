/** `sluice jobs export`: writes whole records as lines of JSON, or as CSV. */
import { once } from 'node:events'
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import type { Job, JobFilter, State } from '../index.ts'
import type { Act } from './bulk.ts'
import { type FilterFlags, filterFlags, filterOf, inputOf, rejectListFlags } from './filter.ts'
import { mustKnowAll } from './known.ts'
import { many } from './output.ts'
import { redactJob } from './record.ts'
import { settingsOf, withSluice } from './settings.ts'

/** `sluice jobs export`. */
export function exportCommand(
  states: readonly State[],
  description = 'write whole records, oldest first, as one JSON object a line; reads in pages, without a long transaction',
  own: JobFilter = {},
  none?: Act['none'],
): Command {
  return filterFlags(new Command('export'), states)
    .description(description)
    .option('--reveal', 'include secrets instead of [redacted]')
    .option('--csv', 'write CSV with a heading; values that are not texts are JSON')
    .action((_: object, command: Command) => exportJobs(own, none, command))
}

async function exportJobs(own: JobFilter, none: Act['none'], command: Command): Promise<void> {
  const flags = command.optsWithGlobals<FilterFlags & { csv?: boolean; reveal?: boolean }>()
  const settings = await settingsOf(command)
  if (flags.csv === true && settings.out.json)
    throw new UsageError('SLUICE_BAD_OPTION', 'give --csv or --json; not both')
  rejectListFlags(command, 'an export writes all jobs that match')
  const wanted = filterOf(flags)
  const filter = { ...wanted, ...own, ...inputOf(wanted, own) }
  let count = 0
  let next: string | undefined
  await withSluice(settings, { creates: false }, async (sluice, sql) => {
    await mustKnowAll(sql, wanted)
    for await (const found of sluice.jobs.stream(filter)) {
      const job = redactJob(found, flags.reveal)
      if (flags.csv === true && count === 0) await write(Object.keys(job).join(','))
      await write(flags.csv === true ? Object.values(job).map(cell).join(',') : JSON.stringify(job))
      count++
    }
    if (count === 0) next = await none?.(sluice)
  })
  settings.out.talk(count === 0 ? 'no job matches' : `${many(count, 'job')} written`)
  if (count === 0) settings.out.hint(next ?? '`sluice jobs export --help`')
}

/** Writes a line to stdout, and waits if its reader is slower than the store. */
export async function write(line: string): Promise<void> {
  if (!process.stdout.write(`${line}\n`)) await once(process.stdout, 'drain')
}

function cell(value: Job[keyof Job]): string {
  if (value === null || value === undefined) return ''
  const text = typeof value === 'string' ? value : value instanceof Date ? value.toISOString() : JSON.stringify(value)
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text
}
