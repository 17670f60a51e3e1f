/** `sluice status`: the state of the store in numbers. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { redact, redactText } from '../core/redact.ts'
import type { Sql } from '../db/store.ts'
import { readRaisedAlarms } from '../fleet/alarms.ts'
import type { FailingJobs } from '../index.ts'
import { backlogOf, showBacklog } from './backlog.ts'
import { restores, steps } from './epoch.ts'
import { warn, type Finding } from './finding.ts'
import { fleet } from './fleet.ts'
import { ago, brief, many, type Output, size, span, writeFacts } from './output.ts'
import { parked } from './parked.ts'
import { nameOf, type Settings, settingsOf, withSluice } from './settings.ts'
import { shared } from './shared.ts'
import { bloat, snapshots, type StorageAt, tableSizes, type TableSize, wraparound } from './storage.ts'
import { zones } from './zones.ts'

/** `sluice status`. */
export function statusCommand(): Command {
  return new Command('status')
    .description('show what waits and what stops it, workers, alarms, and problems of the store')
    .option('--members', 'list the workers, too')
    .option('--storage', 'show the size of each table, too')
    .action(status)
}

/** The checks of `doctor` for problems that get worse unnoticed. */
const watched = { parked, zones, snapshots, bloat, wraparound, restores, steps, redis: shared }

/** Runs the checks, and with `--storage` reads the tables. A check that this role may not run is left out here; `doctor` reports it. */
async function lookAt(sql: Sql, { store, schema, amqp }: Settings, storage: boolean) {
  const at: StorageAt = { sql, schema, isEmbedded: !store.startsWith('postgres') }
  const problems: { check: string; text: string }[] = []
  for (const [check, look] of Object.entries(watched)) {
    const finding: Finding | undefined = await look(at).catch(() => undefined)
    if (finding !== undefined && finding.status !== 'ok') problems.push({ check, text: finding.text })
  }
  const alarms = await readRaisedAlarms(at.sql).catch(() => [])
  const outside = await fleet(at, amqp).catch(({ message }: Error): Finding => warn(message))
  return { problems, alarms, fleet: outside, storage: storage ? await tableSizes(at) : undefined }
}

function showStorage(out: Output, tables: readonly TableSize[]): void {
  const cells = ({ table, rows, dead, bytes, vacuumedMs }: TableSize) => [
    table,
    String(rows),
    String(dead),
    size(bytes),
    vacuumedMs === null ? '-' : `${span(vacuumedMs)} ago`,
  ]
  out.table([['TABLE', 'ROWS', 'DEAD', 'SIZE', 'VACUUMED'], ...tables.map(cells)])
}

function showFailing(out: Output, failing: readonly FailingJobs[]): void {
  if (failing.length === 0) return
  const cells = ({ task, retrying, failed, lastAt, error }: FailingJobs) => [
    task,
    String(retrying),
    String(failed),
    ago(lastAt),
    brief(redactText(error), 80),
  ]
  out.line('')
  out.table([['FAILING TASK', 'RETRYING', 'FAILED/H', 'LAST', 'ITS ERROR'], ...failing.map(cells)])
}

interface Member {
  id: number
  host: string
  pid: number
  version: string
  slots: number
  /** Null: all. */
  queues: string[] | null
  since_ms: number
}

/** Reads the workers that are registered: another worker removes one that has sent no heartbeat for 10 s. */
function readMembers(sql: Sql): Promise<Member[]> {
  return sql.query<Member>(
    `select w.id::integer as id, w.host, w.pid, w.version, w.slots, w.queues,
            (extract(epoch from w.started_at) * 1000)::float8 as since_ms
     from sluice.worker w order by w.id limit 10000`,
  )
}

function showMembers(out: Output, members: readonly Member[]): void {
  if (members.length === 0) return
  const cells = ({ id, host, pid, version, slots, queues, since_ms: sinceMs }: Member) => [
    `#${id}`,
    `${host}:${pid}`,
    version,
    String(slots),
    queues === null ? 'all' : queues.join(', '),
    ago(new Date(sinceMs)),
  ]
  out.line('')
  out.table([['WORKER', 'HOST:PID', 'VERSION', 'SLOTS', 'QUEUES', 'STARTED'], ...members.map(cells)], ['VERSION'])
}

/** Formats a number that is counted up to `countedTo`. */
function mostOf(count: number, countedTo: number): string {
  return count > countedTo ? `more than ${countedTo}` : String(count)
}

/** Formats a number that is estimated beyond `countedTo`; one more than that is no estimate, but what was counted. */
export function aboutOf(count: number, countedTo: number): string {
  return count > countedTo + 1 ? `about ${count}` : mostOf(count, countedTo)
}

async function status(flags: { storage?: boolean; members?: boolean }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const [numbers, failing, backlog, { problems, alarms, fleet: found, storage }, members] = await withSluice(
    settings,
    { creates: false },
    async ({ db, jobs }, sql) => [
      await jobs.status(),
      await jobs.failing(),
      await backlogOf(db, settings.schema),
      await lookAt(sql, settings, flags.storage === true),
      flags.members === true ? await readMembers(sql) : undefined,
    ],
  )
  const { oldestWaitingAt, countedTo, ...counts } = numbers
  const { waiting, scheduled, dispatched, running, done, failed, workers, slots, stuck } = counts
  const oldestWaitingMs =
    oldestWaitingAt === null ? null : Math.max(0, systemClock.wallMs() - oldestWaitingAt.getTime())
  if (out.json)
    return out.object({
      ...counts,
      oldestWaitingMs,
      countedTo,
      ...redact({ jobs: backlog?.jobs ?? null, limits: backlog?.limits ?? null, failing }),
      fleet: found ?? null,
      problems,
      alarms: redact(alarms),
      ...(members && {
        members: members.map(({ since_ms: sinceMs, ...member }) => ({ ...member, startedAt: new Date(sinceMs) })),
      }),
      ...(storage && { storage }),
    })
  out.talk(nameOf(settings))
  const most = (count: number) => mostOf(count, countedTo)
  const about = (count: number) => aboutOf(count, countedTo)
  const rows = [
    ['waiting', `${about(waiting)}${oldestWaitingMs === null ? '' : `, the oldest for ${span(oldestWaitingMs)}`}`],
    ['scheduled', most(scheduled)],
    ...(dispatched > 0 ? [['dispatched', `${most(dispatched)}, not begun by a worker`]] : []),
    ['running', String(running)],
    ['done', about(done)],
    ['failed', most(failed)],
    [
      'workers',
      `${workers} with ${many(slots, 'slot')}${found === undefined ? '' : ', dispatchers included'}${stuck > 0 ? `, ${many(stuck, 'stuck handler')}: see their logs` : ''}`,
    ],
  ]
  writeFacts(out, rows, 11)
  if (found !== undefined)
    out.line(`${out.paint(found.status === 'ok' ? 'dim' : 'yellow', 'fleet'.padEnd(11))}${redactText(found.text)}`)
  for (const { check, text } of problems) out.line(`${out.paint('yellow', check.padEnd(11))}${text}`)
  for (const { since, text, todo } of alarms)
    out.line(redactText(`${out.paint('yellow', 'alarm'.padEnd(11))}since ${since.toISOString()}: ${text}: ${todo}`))
  if (members !== undefined) showMembers(out, members)
  showFailing(out, failing)
  showBacklog(out, backlog)
  if (storage !== undefined) showStorage(out, storage)
  const stuckTask = backlog?.jobs.find(({ isAbandoned }) => isAbandoned)
  if (stuckTask !== undefined) return out.hint('`sluice tasks` lists who serves what')
  if (workers === 0 && waiting > 0) out.hint('`sluice work` starts a worker')
  else out.hint(failed > 0 ? '`sluice jobs --state failed`' : '`sluice jobs`')
}
