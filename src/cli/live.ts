/** What `sluice dev` shows: jobs as they start and end, and limits as they fill. */
import { systemClock } from '../core/clock.ts'
import { parseRate } from '../core/rate.ts'
import { span } from '../core/figures.ts'
import { type Sql, sqlOn } from '../db/store.ts'
import type { AttemptEvent, Sluice } from '../index.ts'
import { Folding } from '../report/folding.ts'
import { lineOf } from '../report/lines.ts'
import type { Output } from './output.ts'
import type { Screen } from './screen.ts'

/** The block changes so often, in ms; where there is no terminal, lines about limits come so often. */
const drawMs = 500
const lineMs = 5_000
/** Jobs that follow one another quickly get a line together, at most so late, in ms. */
const foldMs = 2_000
const runningMost = 3
const limitsMost = 6
const barWidth = 20

/** The use of one bucket of a limit. */
interface Use {
  name: string
  key: string
  /** As it was written: `100/min`. */
  of: string
  used: number
  most: number
}

/** Shows the jobs of the workers of this process until `signal` is aborted. */
export async function showLive(
  sluice: Sluice,
  schema: string,
  { out, screen }: { out: Output; screen: Screen },
  signal: AbortSignal,
): Promise<void> {
  const running = new Map<string, AttemptEvent & { sinceMs: number }>()
  const folding = new Folding(systemClock, ({ level, message, details }) => out.log[level](message, details), foldMs)
  const ended = ({ job }: { job: string }) => void running.delete(job)
  const ends = [
    sluice.on('started', (event) => {
      running.set(event.job, { ...event, sinceMs: systemClock.monotonicMs() })
      folding.add(lineOf('started', event))
    }),
    sluice.on('done', (event) => {
      ended(event)
      folding.add(lineOf('done', event))
    }),
    sluice.on('failed', ended),
    sluice.on('exhausted', ended),
  ]
  const isBlock = screen.isTerminal && !out.json
  const sql = sqlOn(sluice.db, schema)
  for (let shown = ''; !signal.aborted;) {
    await systemClock.sleep(isBlock ? drawMs : lineMs, signal, false)
    if (signal.aborted) break
    // Where the store is away, the log has it.
    const uses = await usesOf(sluice, sql).catch(() => [])
    if (isBlock) screen.show(await blockOf(sluice, [...running.values()], uses), (line) => out.paint('dim', line))
    else if (uses.length > 0 && shown !== (shown = JSON.stringify(uses)))
      out.log.info(`limits: ${uses.map(inWords).join(', ')}`)
  }
  for (const end of ends) end()
  folding.end()
  screen.show([])
}

async function blockOf(
  sluice: Sluice,
  running: readonly (AttemptEvent & { sinceMs: number })[],
  uses: readonly Use[],
): Promise<string[]> {
  const status = await sluice.jobs.status().catch(() => undefined)
  if (status === undefined) return ['the database does not answer']
  const nowMs = systemClock.monotonicMs()
  const { waiting, scheduled, done, failed } = status
  const now = running
    .slice(0, runningMost)
    .map(({ task, job, sinceMs }) => `${task} ${job.slice(-6)} ${span(nowMs - sinceMs)}`)
  const more = running.length > runningMost ? ` and ${running.length - runningMost} more` : ''
  return [
    '',
    `${running.length} running, ${waiting} waiting, ${scheduled} scheduled, ${done} done, ${failed} failed`,
    ...(now.length === 0 ? [] : [`running: ${now.join(', ')}${more}`]),
    ...uses.map((use) => `${barOf(use)} ${inWords(use)}`),
  ]
}

function barOf({ used, most }: Use): string {
  const filled = Math.min(barWidth, Math.round((barWidth * used) / Math.max(1, most)))
  return `${'█'.repeat(filled)}${'░'.repeat(barWidth - filled)}`
}

function inWords({ name, key, of, used }: Use): string {
  return `${name}${key === '' ? '' : ` for ${key}`}: ${used} of ${of}`
}

/** Reads how much of each limit is in use: the fullest buckets, without those that nobody uses. */
async function usesOf(sluice: Sluice, sql: Sql): Promise<Use[]> {
  const limits = await sluice.limits.list()
  const asked = limits.flatMap(({ name, numbers }) => {
    const rate = [numbers.rate ?? numbers.window ?? []].flat()[0]
    if (rate === undefined) return []
    const { units, windowUs } = parseRate(rate)
    return [{ name, of: rate, most: units, windowUs }]
  })
  if (asked.length === 0) return []
  const params = [asked.map(({ name }) => name), asked.map(({ windowUs }) => windowUs)]
  const rows = await sql.run<{ name: string; key: string; used: string }>('operations/read_limit_use', params)
  return rows
    .map(({ name, key, used }) => {
      const { of = '', most = 0 } = asked.find((one) => one.name === name) ?? {}
      return { name, key, of, most, used: Number(used) }
    })
    .toSorted((a, b) => b.used / b.most - a.used / a.most)
    .slice(0, limitsMost)
}
