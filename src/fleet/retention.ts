/**
 * Retention settings: how long finished jobs are kept and when they are deleted. A process publishes its settings; the
 * fleet uses the stored ones.
 */
import { UsageError } from '../core/errors.ts'
import { checkFields, present } from '../core/fields.ts'
import { minuteOf, zoneOf } from '../core/hours.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { Store } from '../db/store.ts'

const minuteMs = 60_000
const dayMs = 86_400_000
const keepMsDefault = 7 * dayMs
const keepEventsMsDefault = 7 * dayMs
const keepUsageMsDefault = 400 * dayMs
const keepMsMax = 36_500 * dayMs
const offPeakMsDefault = 4 * 3_600_000

/** How long finished jobs, counted from their end, and other records are kept; 0 to 36,500 days. */
export interface Retention {
  /** Jobs that are done or cancelled; default 7 days. */
  done?: Duration | undefined
  /** Jobs that failed, which are kept for inspection and retry; default 7 days. */
  failed?: Duration | undefined
  /** Events, for late subscribers and `sluice events show`; default 7 days. */
  events?: Duration | undefined
  /** The daily sums of each limit's keys (`sluice limits usage`); default 400 days. */
  usage?: Duration | undefined
}

/** When workers drop and delete old data: at any time, or daily from a time of day on. */
export type PruneTime =
  | 'any'
  | {
      /** Time of day, `'03:00'`. */
      at: string
      /** An IANA zone, `'Europe/Berlin'`; default `'UTC'`. */
      zone?: string | undefined
      /** Length of that time; a minute to 24 hours, default 4 hours. The rest is deleted on the next day. */
      for?: Duration | undefined
    }

/** Settings of a process; those it leaves out stay as stored. */
export interface RetentionOptions {
  /** How long finished jobs and sums of usage are kept, in the whole fleet. Default: as stored by another process. */
  retention?: Retention | undefined
  /** When workers drop and delete old data, in the whole fleet. Default: as stored by another process, else `'any'`. */
  prune?: PruneTime | undefined
}

/** The settings in force. */
export interface RetentionInForce {
  doneMs: number
  failedMs: number
  usageMs: number
  eventsMs: number
  prune: PruneTime
}

/** Settings by name. */
type Settings = Record<string, unknown>

/** Converts a process's options to settings. @throws UsageError SLUICE_BAD_OPTION */
export function retentionSettings({ retention = {}, prune }: RetentionOptions): Settings {
  checkFields('SLUICE_BAD_OPTION', '`retention`', retention, ['done', 'failed', 'events', 'usage'])
  const keep = (name: keyof Retention) => {
    const given = retention[name]
    return given === undefined ? undefined : keepMs(`retention.${name}`, given)
  }
  return present({
    keepDoneMs: keep('done'),
    keepFailedMs: keep('failed'),
    keepUsageMs: keep('usage'),
    keepEventsMs: keep('events'),
    prune: prune === undefined ? undefined : checkPruneTime(prune),
  })
}

/** Writes and reads the settings of the fleet. */
export class RetentionSettings {
  readonly #store: Store
  readonly #own: Settings
  #read: { inForce: RetentionInForce; atMs: number } | undefined

  /** @param own the settings of this process */
  constructor(store: Store, own: Settings) {
    this.#store = store
    this.#own = own
  }

  /** Stores this process's settings, for the whole fleet. */
  async publish(): Promise<void> {
    const names = Object.keys(this.#own)
    if (names.length === 0) return
    const values = names.map((name) => JSON.stringify(this.#own[name]))
    for (const { name } of await this.#store.run<{ name: string }>('fleet/store_settings', [names, values]))
      this.#store.log.info('setting changed for the whole fleet', { [name]: this.#own[name] })
    this.#read = undefined
  }

  /**
   * Returns the settings in force: the stored ones, where the last writer wins, else this process's own. Read once a
   * minute.
   */
  async inForce(): Promise<RetentionInForce> {
    const nowMs = this.#store.clock.monotonicMs()
    if (this.#read !== undefined && nowMs - this.#read.atMs < minuteMs) return this.#read.inForce
    const rows = await this.#store.query<{ name: string; value: unknown }>('select name, value from sluice.setting')
    const { keepDoneMs, keepFailedMs, keepUsageMs, keepEventsMs, prune } = {
      ...this.#own,
      ...Object.fromEntries(rows.map(({ name, value }) => [name, value])),
    }
    const inForce = {
      doneMs: Number(keepDoneMs ?? keepMsDefault),
      failedMs: Number(keepFailedMs ?? keepMsDefault),
      usageMs: Number(keepUsageMs ?? keepUsageMsDefault),
      eventsMs: Number(keepEventsMs ?? keepEventsMsDefault),
      prune: (prune ?? 'any') as PruneTime,
    }
    this.#read = { inForce, atMs: nowMs }
    return inForce
  }
}

/** Checks a retention time and returns it in ms. @throws UsageError SLUICE_BAD_OPTION */
export function keepMs(name: string, keep: Duration): number {
  try {
    const ms = Math.ceil(durationMs(keep))
    if (ms <= keepMsMax) return ms
  } catch {
    // The error is thrown below.
  }
  throw bad(`${name} is ${JSON.stringify(keep)}; it must be a span such as '7d', from 0 to 36,500 days`)
}

/** @throws UsageError SLUICE_BAD_OPTION */
function checkPruneTime(time: PruneTime): PruneTime {
  if (time === 'any') return time
  checkFields('SLUICE_BAD_OPTION', '`prune`', time, ['at', 'zone', 'for'])
  const { at, zone = 'UTC', for: span = offPeakMsDefault } = time
  if (!(minuteOf(at) < 1_440)) throw bad(`prune.at is ${JSON.stringify(at)}; it must be a time of day such as '03:00'`)
  try {
    zoneOf(zone)
  } catch {
    throw bad(`prune.zone is ${JSON.stringify(zone)}; it must be an IANA zone such as 'Europe/Berlin'`)
  }
  const ms = keepMs('prune.for', span)
  if (ms < minuteMs || ms > dayMs) throw bad(`prune.for is ${JSON.stringify(span)}; it must be a minute to 24 hours`)
  return { at, zone, for: ms }
}

/** Returns whether old data may be deleted at this wall time. Uses local time, also on days when clocks are changed. */
export function isPruneTime(time: PruneTime, wallMs: number): boolean {
  if (time === 'any') return true
  const { at, zone = 'UTC', for: span = offPeakMsDefault } = time
  const since = (minuteOfDay(wallMs, zone) - minuteOf(at) + 1_440) % 1_440
  return since * minuteMs < durationMs(span)
}

function minuteOfDay(wallMs: number, zone: string): number {
  const format = new Intl.DateTimeFormat('en-GB', {
    timeZone: zone,
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  })
  const [hour = 0, minute = 0] = format.format(wallMs).split(':').map(Number)
  return hour * 60 + minute
}

function bad(message: string): UsageError {
  return new UsageError('SLUICE_BAD_OPTION', message)
}
