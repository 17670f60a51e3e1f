/** `sluice events archive`: a service's failed events on RabbitMQ: list, show, replay, discard, export. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import { parseRate, type Rate } from '../core/rate.ts'
import { redact } from '../core/redact.ts'
import { unrouted } from '../events/names.ts'
import type { ArchivedEvent, ArchiveFilter, EventArchive } from '../index.ts'
import { changeMany, isWanted } from './bulk.ts'
import { write } from './export.ts'
import { time } from './filter.ts'
import { idAmong } from './ids.ts'
import { brief, many, type Output } from './output.ts'
import { inStore, whole } from './settings.ts'

interface Flags {
  id?: string
  event?: string
  handler?: string
  reason?: string
  error?: string
  since?: string
  until?: string
  max?: number
  rate?: Rate
  yes?: boolean
  reveal?: boolean
}

/** `sluice events archive` and its commands. */
export function archiveCommand(): Command {
  const confirmed = (command: Command) => command.option('--yes', 'confirm in advance')
  return new Command('archive')
    .description('events over RabbitMQ: those that failed for good, in the archive of a service')
    .addCommand(
      filtered('list', 'list them, the oldest first')
        .option('--max <n>', 'at most this many; default 100', whole(1, 1_000_000))
        .action(list),
    )
    .addCommand(
      new Command('show').description('show one').argument('<service>').argument('<id>', 'of the event').action(show),
    )
    .addCommand(
      confirmed(filtered('replay', 'give them all attempts again'))
        .option('--rate <n/s>', 'at most this many, such as 100/s')
        .action(change('replay', 'replayed')),
    )
    .addCommand(confirmed(filtered('discard', 'give them up for good')).action(change('discard', 'discarded')))
    .addCommand(
      filtered('export', 'write them, the oldest first, as one JSON object a line')
        .option('--reveal', 'include secrets instead of [redacted]')
        .action(exportAll),
    )
}

function filtered(name: string, text: string): Command {
  return new Command(name)
    .description(text)
    .argument('<service>', `the service; ${unrouted}: events that no service gets`)
    .option('--id <id>', 'the event with this id, its beginning or its end')
    .option('--event <type>', 'events of this type, or pattern')
    .option('--handler <name>', 'those of this handler')
    .option('--reason <reason>', 'exhausted, refused, crashed, doubtful, or unrouted')
    .option('--error <text>', "a part of the error's message, case-insensitive")
    .option('--since <time>', 'archived since 2h, 7d or 2030-01-31T12:00:00Z')
    .option('--until <time>', 'archived before that time')
}

/** Makes the filter; the id may be its beginning or its end. @throws UsageError SLUICE_AMBIGUOUS_ID, SLUICE_BAD_DURATION */
async function filterOf(archive: EventArchive, { id: part, ...flags }: Flags): Promise<ArchiveFilter> {
  const { event, handler, reason, error, since, until } = flags
  const times = { since: time('--since', since), until: time('--until', until) }
  const id = part === undefined ? undefined : await wholeId(archive, part)
  return present({ id, event, handler, reason, error, ...times })
}

function wholeId(archive: EventArchive, part: string): Promise<string> {
  return idAmong(part, async () => {
    const all: { id: string; type: string }[] = []
    await archive.each({}, ({ id, type }) => void (id !== null && all.push({ id, type })))
    return all
  })
}

async function inArchive<T>(
  service: string,
  command: Command,
  body: (archive: EventArchive, out: Output) => Promise<T>,
) {
  await inStore(command, ({ events }, _, { out }) => body(events.archive(service), out))
}

async function list(service: string, flags: Flags, command: Command): Promise<void> {
  await inArchive(service, command, async (archive, out) => {
    const found = await archive.list(await filterOf(archive, flags), flags.max)
    if (out.json) return found.forEach((one) => out.object(redactEvent(one)))
    if (found.length === 0) return out.talk('no archived event matches')
    out.table([['EVENT', 'ID', 'HANDLER', 'ATTEMPTS', 'REASON', 'ERROR'], ...found.map(cells)])
    out.hint(`\`sluice events archive show ${service} ${found[0]?.id ?? '<id>'}\``)
  })
}

function cells({ type, id, handler, attempt, reason, error }: ArchivedEvent): string[] {
  return [type, id ?? '-', handler ?? 'all', String(attempt), reason, brief(redact(error).message, 60)]
}

const redactEvent = (archived: ArchivedEvent, reveals = false) => (reveals ? archived : redact(archived))

async function show(service: string, id: string, _: object, command: Command): Promise<void> {
  await inArchive(service, command, async (archive, out) => {
    const found = await archive.list({ id: await wholeId(archive, id) })
    if (found.length === 0)
      throw new UsageError('SLUICE_NO_SUCH_EVENT', `the archive of service "${service}" has no event ${id}`)
    for (const one of found)
      if (out.json) out.object(redactEvent(one))
      else out.line(JSON.stringify(redactEvent(one), undefined, 2))
    out.hint(`\`sluice events archive replay ${service} --id ${id}\``)
  })
}

function change(verb: 'replay' | 'discard', done: string) {
  return async (service: string, flags: Flags, command: Command): Promise<void> => {
    if (flags.rate !== undefined) parseRate(flags.rate)
    await inArchive(service, command, async (archive, out) => {
      const size = await archive.count()
      const text = `${many(size, 'archived event')} of service "${service}"`
      const filter = await filterOf(archive, flags)
      const which = Object.keys(filter).length === 0 ? text : `those that match of ${text}`
      if (flags.yes !== true && !(await isWanted(out, { verb, done }, which))) return
      await changeMany(out, done, size, ({ signal, onProgress: show }) => {
        const onProgress = (progress: { done: number; seen: number }) => show({ ...progress, at: progress.seen })
        return archive[verb](filter, { signal, onProgress, ...present({ rate: flags.rate }) })
      })
    })
  }
}

async function exportAll(service: string, flags: Flags, command: Command): Promise<void> {
  await inArchive(service, command, async (archive, out) => {
    const count = await archive.each(await filterOf(archive, flags), (one) =>
      write(JSON.stringify(redactEvent(one, flags.reveal))),
    )
    out.talk(`${many(count, 'archived event')} written`)
  })
}
