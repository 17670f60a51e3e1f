/** How the command line shows what waits and what stops it, and the check of `doctor` for jobs that nobody will run. */
import { systemClock } from '../core/clock.ts'
import { codeOf } from '../core/errors.ts'
import { amount } from '../core/money.ts'
import { redactText } from '../core/redact.ts'
import { type Db } from '../db/db.ts'
import { sqlOn } from '../db/store.ts'
import { type Backlog, type KeyLoad, readBacklog, type WaitingJobs } from '../operations/backlog.ts'
import type { Stop } from '../operations/backlog-stops.ts'
import { fail, ok, warn, type Finding } from './finding.ts'
import { many, type Output, span } from './output.ts'
import { has, type StorageAt } from './storage.ts'

/** A store that cannot answer within this time is reported as such. */
const timeoutMs = 5_000
const shownMax = 20
/** More jobs in a minute are not counted. */
const countedMax = 20_000
/** A backlog that is younger than this has not grown, but come in a burst. */
const growsAfterMs = 120_000

/** Reads what waits; undefined: the store did not answer in time. */
export async function backlogOf(db: Db, schema: string): Promise<Backlog | undefined> {
  try {
    return await db.transaction(async (tx) => {
      await tx.query(`set local statement_timeout = ${timeoutMs}`)
      return await readBacklog(sqlOn(tx, schema))
    })
  } catch (error) {
    if (codeOf(error) === '57014') return undefined
    throw error
  }
}

/** Prints what waits, by task and queue, and by limit. */
export function showBacklog(out: Output, backlog: Backlog | undefined): void {
  if (backlog === undefined) return out.talk(`what waits could not be read within ${span(timeoutMs)}`)
  const { jobs, limits, isExact } = backlog
  const about = isExact ? '' : 'about '
  if (jobs.length > 0) {
    out.line('')
    out.table(
      [
        ['TASK', 'QUEUE', 'WAITING', 'OLDEST', 'SENT/MIN', 'DONE/MIN', 'EMPTY', 'STOPPED BY'],
        ...jobs.slice(0, shownMax).map((line) => jobCells(line, about)),
      ],
      ['QUEUE', 'SENT/MIN', 'DONE/MIN', 'OLDEST'],
    )
    if (jobs.length > shownMax) out.talk(`and ${jobs.length - shownMax} more tasks; \`sluice status --json\` has all`)
  }
  if (limits.length === 0) return
  out.line('')
  out.table(
    [
      ['LIMIT', 'WAITING', 'KEYS', 'MOST WAIT FOR', 'OLDEST', 'UNITS/MIN', 'STATE'],
      ...limits
        .slice(0, shownMax)
        .map(({ limit, waiting, keys, busiestKeys: [most], oldestAt, perMinute, currency, stops }) => [
          limit,
          `${about}${waiting}`,
          `${keys}`,
          most === undefined ? '' : redactText(`${most.key}: ${most.waiting}`),
          ageOf(oldestAt),
          amount(perMinute, currency),
          stops.map((stop) => stopText(stop, waiting)).join('; ') || 'has room',
        ]),
    ],
    ['KEYS', 'UNITS/MIN', 'OLDEST'],
  )
}

/** Makes the table of the keys for which most jobs wait. */
export function busiestTable(keys: readonly KeyLoad[]): string[][] {
  return [
    ['KEY', 'WAITING', 'OLDEST', 'STATE'],
    ...keys.map(({ key, waiting, oldestAt, stop }) => [
      redactText(key),
      `${waiting}`,
      ageOf(oldestAt),
      stop === undefined ? 'has room' : stopText(stop, waiting),
    ]),
  ]
}

function jobCells(line: WaitingJobs, about: string): string[] {
  const { task, queue, waiting, oldestAt, perMinute, sentPerMinute, currently, stops } = line
  return [
    currently === undefined ? task : `${task} (now ${currently})`,
    queue,
    `${about}${waiting}`,
    ageOf(oldestAt),
    `${sentPerMinute}`,
    `${perMinute}`,
    emptyText(line),
    stops.map((stop) => stopText(stop, waiting)).join('; ') || '-',
  ]
}

function ageOf(at: Date | undefined): string {
  return at === undefined ? '-' : span(Math.max(0, systemClock.wallMs() - at.getTime()))
}

/**
 * Returns when nothing would wait any more: by the rate of the limit that stops all jobs, else if it went on as lately. While all
 * jobs are stopped, nothing goes on.
 */
export function emptyText(line: WaitingJobs, nowMs = systemClock.wallMs()): string {
  const { waiting, oldestAt, perMinute, sentPerMinute, growthPerMinute: growth, stops } = line
  const all = stops.filter(({ jobs }) => jobs >= waiting)
  // One burst of sends is no growth: its jobs are gone before others come, or the limit's rate shows when they are.
  const hasGrown = growth > 0 && nowMs - (oldestAt?.getTime() ?? nowMs) >= growsAfterMs
  const isCounted = Math.max(sentPerMinute, perMinute) < countedMax
  if (hasGrown && isCounted) return `grows by ${growth}/min`
  if (all.some(({ kind }) => kind !== 'used-up' && kind !== 'concurrency')) return 'stopped'
  const emptyMs = Math.max(...all.map((stop) => stop.emptyMs ?? 0), 0)
  if (emptyMs > 0 && !hasGrown) return `in about ${span(emptyMs)}`
  return growth < 0 && isCounted ? `in about ${span((waiting / -growth) * 60_000)}` : '-'
}

/** Formats what stops jobs: how many of them, unless all, and until when. */
function stopText({ text, jobs, until }: Stop, waiting: number): string {
  const part = jobs < waiting ? `${jobs}: ` : ''
  const end = until === undefined ? '' : ` until ${until.toISOString().replace(/\.\d+Z$/, 'Z')}`
  return redactText(`${part}${text}${end}`)
}

/** Makes the finding about a store without workers: how many jobs wait. No failure, because `dispatch --once` may run them. */
export async function unattended({ sql }: StorageAt): Promise<Finding> {
  const { jobs, isExact } = (await has(sql, 'class')) ? await readBacklog(sql) : { jobs: [], isExact: true }
  const n = jobs.reduce((sum, { waiting }) => sum + waiting, 0)
  const [oldest] = jobs.flatMap(({ oldestAt }) => oldestAt ?? []).toSorted((a, b) => a.getTime() - b.getTime())
  const waiting =
    n === 0 ? '' : `; waiting: ${isExact ? '' : 'about '}${many(n, 'job')}, the oldest for ${ageOf(oldest)}`
  return warn(`no worker is registered${waiting}; \`sluice work\` starts one`)
}

/** Checks for waiting jobs that no worker of those that live can run. */
export async function abandoned({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'class'))) return undefined
  const { jobs } = await readBacklog(sql)
  const lost = jobs.filter(({ isAbandoned }) => isAbandoned)
  if (lost.length === 0) return ok('no job waits that no worker can run')
  const list = lost.slice(0, 10).map(({ task, queue, waiting, stops }) => {
    const why = stops.find(({ kind }) => kind.startsWith('no-'))?.text ?? 'no worker can run them'
    return `${waiting} of task ${task} in queue ${queue} (${why})`
  })
  const more = lost.length > 10 ? `, and ${lost.length - 10} more tasks` : ''
  return fail(
    `jobs wait that nobody will run: ${list.join(', ')}${more}; start a worker that can, or give a renamed task its old name by \`formerly\`; \`sluice tasks\` lists who serves what`,
  )
}
