/** The display of `sluice dev`: jobs as they start and end, and limits as they fill. */
import { systemClock } from '../core/clock.ts'
import { span } from '../core/figures.ts'
import { amount } from '../core/money.ts'
import { redactText } from '../core/redact.ts'
import { type Sql, sqlOn } from '../db/store.ts'
import type { AttemptEvent, Sluice } from '../index.ts'
import { Folding } from '../report/folding.ts'
import { lineOf } from '../report/lines.ts'
import type { Output } from './output.ts'
import type { Screen } from './screen.ts'

/** How often the block changes, in ms; without a terminal, how often lines about limits are printed. */
const drawMs = 500
const lineMs = 5_000
/** Jobs that follow one another quickly get a line together, at most so late, in ms. */
const foldMs = 2_000
const runningMost = 3
const limitsMost = 8
const barWidth = 20

/** How much of one rule of a limit is in use, for one key. */
interface Use {
  name: string
  /** '': the limit has no keys. */
  key: string
  kind: 'rate' | 'window' | 'quota' | 'concurrency'
  /** As it was written: `100/min`; for a concurrency its number. */
  rate: string
  most: number
  used: number
  /** `used` is in millionths of this currency; null: it is not money. */
  currency: string | null
  /** The end of a quota's period, in ms since 1970. */
  until_ms: number | null
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
    sluice.on('done', (event) => folding.add(lineOf('done', event))),
    ...(['done', 'failed', 'throttled', 'exhausted'] as const).map((name) => sluice.on(name, ended)),
  ]
  const isBlock = screen.isTerminal && !out.json
  const sql = sqlOn(sluice.db, schema)
  for (let shown = ''; !signal.aborted;) {
    await systemClock.sleep(isBlock ? drawMs : lineMs, signal, false)
    if (signal.aborted) break
    // Where the store is away, the log has it.
    const uses = await readUses(sql).catch(() => [])
    if (isBlock) screen.show(await blockOf(sluice, [...running.values()], uses), (line) => out.paint('dim', line))
    else if (uses.length > 0 && shown !== (shown = JSON.stringify(uses)))
      out.log.info(`limits: ${uses.map((use) => redactText(inWords(use))).join(', ')}`)
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
    .map(({ task, job, sinceMs }) => `${task} …${job.slice(-6)} ${span(nowMs - sinceMs)}`)
  const more = running.length > runningMost ? ` and ${running.length - runningMost} more` : ''
  return [
    '',
    `${running.length} running, ${waiting} waiting, ${scheduled} scheduled, ${done} done, ${failed} failed`,
    ...(now.length === 0 ? [] : [`running: ${now.join(', ')}${more}`]),
    ...uses.map((use) => `${barOf(use)} ${redactText(inWords(use))}`),
  ]
}

function barOf({ used, most }: Use): string {
  const filled = Math.min(barWidth, Math.round((barWidth * used) / Math.max(1, most)))
  return `${'█'.repeat(filled)}${'░'.repeat(barWidth - filled)}`
}

/** Formats a use: `crm for a1: 60 of 100/min`, `2 of 5 running`, `70 of 1000/day until 2030-01-31T00:00:00Z`. */
export function inWords({ name, key, kind, rate, used, currency, until_ms: untilMs }: Use): string {
  const end = untilMs === null ? '' : ` until ${new Date(untilMs).toISOString().replace(/\.\d+Z$/, 'Z')}`
  return `${name}${key === '' ? '' : ` for ${key}`}: ${kind === 'concurrency' ? used : amount(used, currency)} of ${rate}${kind === 'concurrency' ? ' running' : end}`
}

/** Reads how much of each limit is in use: the fullest first, without what nobody uses. */
export async function readUses(sql: Sql): Promise<Use[]> {
  const all = await sql.run<Use & Record<string, unknown>>('operations/read_limit_use')
  return all.slice(0, limitsMost)
}
