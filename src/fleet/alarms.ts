/**
 * Alarms: values that a person should look at. Each is reported once when it goes beyond a bound, and once when it is
 * back. One worker of the fleet reads the alarms of the store; each process watches its own connections.
 */
import { type Clock, systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { hideValue } from '../core/redact.ts'
import { many } from '../core/figures.ts'
import { env } from '../db/open.ts'
import type { Sql, Store } from '../db/store.ts'
import type { SluiceEvents } from '../report/events.ts'
import { alarmText } from '../report/lines.ts'
import { type AlarmOptions, kinds, type Reading, thresholdsOf, remedyOf } from './alarm-kinds.ts'
import { Growth } from './growth.ts'
import { Budgets, budgetTodo, readRaisedBudgets } from './budgets.ts'

/** How often the store's values are read, in ms; where reading takes long, it takes at most a hundredth of the time. */
const readMs = 15_000
const restPart = 100
/** An alarm changes at most once in this time, in ms. */
const quietMs = 60_000
/** An alarm is over when its value is below this part of the threshold. */
const overAt = 0.8
const webhookMs = 5_000

/** An alarm of the store that is raised now. */
export interface RaisedAlarm {
  alarm: string
  /** Its subject: a queue, a task in a queue; empty: the store. */
  subject: string
  /** Its value now: jobs, or ms. */
  value: number
  since: Date
  text: string
  todo: string
}

type Raised = Pick<Reading, 'alarm' | 'subject'> & { since_ms: number }

async function readRaised(sql: Sql): Promise<Raised[]> {
  const rows = await sql.query<Raised & Record<string, unknown>>(
    `select name as alarm, subject, (extract(epoch from changed_at) * 1000)::float8 as since_ms
     from sluice.alarm where raised order by changed_at, name, subject`,
  )
  // A newer version may have raised others.
  return rows.filter(({ alarm }) => alarm in kinds)
}

/**
 * Reads which alarms of the store are raised, the oldest first, with their present values. Leaves out alarms whose
 * cause is gone.
 */
export async function readRaisedAlarms(sql: Sql): Promise<RaisedAlarm[]> {
  const budgets = (await readRaisedBudgets(sql)).map(({ event, since }) => {
    const { alarm, subject, value, text, todo } = budgetAlarm(event)
    return { alarm, subject, value, since, text, todo }
  })
  const raised = await readRaised(sql)
  if (raised.length === 0) return budgets
  const readings = await sql.call<Reading>('read_alarm_values')
  readings.push(...growthOf(raised, readings))
  const alarms = raised.flatMap(({ since_ms: sinceMs, ...one }) => {
    const reading = readings.find((other) => isSame(one, other))
    if (reading === undefined) return []
    const { alarm, subject, value } = reading
    const todo = remedyOf(alarm, subject)
    return [
      { alarm, subject, value: Math.round(value), since: new Date(sinceMs), text: kinds[alarm].text(reading), todo },
    ]
  })
  return [...alarms, ...budgets]
}

/**
 * Returns the raised alarms of queues that grow. Only the worker that watches the queues knows how fast; here only
 * their lengths are known.
 */
function growthOf(raised: readonly Raised[], readings: readonly Reading[]): Reading[] {
  return raised.flatMap(({ alarm, subject, since_ms: sinceMs }) => {
    const length = readings.find((one) => isSame(one, { alarm: 'queue-length', subject }))
    if (alarm !== 'growing' || length === undefined) return []
    const value = Math.max(1, systemClock.wallMs() - sinceMs)
    return [{ alarm, subject, value, detail: `${many(length.value, 'job')} waiting` }]
  })
}

/** Returns a budget in the form of an alarm, for the webhook and `status`. */
function budgetAlarm({ limit, key, used, share, most, text }: SluiceEvents['budget']) {
  const subject = key === undefined ? limit : `${limit}:${key}`
  return { alarm: 'budget', subject, isRaised: true, value: used, threshold: share * most, text, todo: budgetTodo }
}

/** Evaluates the alarms of one process, and of the fleet if a worker of it leads the fleet. */
export class Alarms {
  readonly #store: Store
  readonly #clock: Clock
  readonly #webhook: string | undefined
  readonly #thresholds: ReadonlyMap<string, number>
  /** Since when the store, or a server, is away, in monotonic ms. */
  readonly #awaySince = new Map<string, number>()
  /** The alarms of this process: which are raised, and when each last changed. */
  readonly #own = new Map<string, { isRaised: boolean; changedMs: number }>()
  readonly #sending = new Set<Promise<void>>()
  readonly #budgets: Budgets
  readonly #growth = new Growth()
  #readAtMs = -Infinity

  /** @throws UsageError SLUICE_BAD_OPTION */
  constructor(store: Store, options: AlarmOptions = {}) {
    this.#store = store
    this.#clock = store.clock
    this.#webhook = webhookOf(options)
    this.#thresholds = thresholdsOf(options)
    this.#budgets = new Budgets(store, (event, isFirst) => {
      store.report.emit('budget', event)
      if (isFirst) this.#post(budgetAlarm(event))
    })
    store.report.on('connection', ({ to, isLost, forMs = 0 }) => {
      if (isLost) this.#awaySince.set(to, this.#clock.monotonicMs() - forMs)
      else this.#awaySince.delete(to)
      this.look()
    })
  }

  /** Evaluates the alarms of this process; to be repeated. */
  look(): void {
    const nowMs = this.#clock.monotonicMs()
    const raised = [...this.#own.keys()].filter((key) => key.startsWith('away ')).map((key) => key.slice(5))
    for (const subject of new Set([...this.#awaySince.keys(), ...raised])) {
      const sinceMs = this.#awaySince.get(subject)
      const reading: Reading = {
        alarm: 'away',
        subject,
        value: sinceMs === undefined ? 0 : nowMs - sinceMs,
        detail: null,
      }
      this.#evaluate(reading)
    }
  }

  /** Evaluates an alarm that this process has read elsewhere than in the store. */
  evaluate(alarm: 'depth' | 'retries' | 'unrouted' | 'archive', subject: string, value: number): void {
    this.#evaluate({ alarm, subject, value, detail: null })
  }

  #evaluate(reading: Reading): void {
    const nowMs = this.#clock.monotonicMs()
    const key = `${reading.alarm} ${reading.subject}`
    const own = this.#own.get(key) ?? { isRaised: false, changedMs: -Infinity }
    const isRaised = this.#judge(reading, own.isRaised)
    if (isRaised === own.isRaised || nowMs - own.changedMs < quietMs) return
    this.#own.set(key, { isRaised, changedMs: nowMs })
    this.#emit(reading, isRaised)
  }

  /** Evaluates the alarms of the store, now and then. The worker that does the fleet's common work calls it. */
  async check(): Promise<void> {
    // Whatever is wrong with the sums, the other alarms are evaluated.
    const failed = (error: unknown) =>
      this.#store.log.warn('budgets could not be checked; the next look tries again', { err: error })
    await this.#budgets.check().catch(failed)
    const nowMs = this.#clock.monotonicMs()
    if (nowMs < this.#readAtMs) return
    // Also if it fails: where reading takes too long, it would go on all the time.
    this.#readAtMs = nowMs + readMs
    const readings = await this.#store.call<Reading>('read_alarm_values')
    const tookMs = this.#clock.monotonicMs() - nowMs
    this.#readAtMs = nowMs + Math.max(readMs, tookMs * restPart)
    const raised = await readRaised(this.#store)
    readings.push(...this.#findGrowing(raised, readings, nowMs))
    const isNew = this.#growth.isNew(nowMs)
    const over = raised
      .filter((one) => !(isNew && one.alarm === 'growing') && !readings.some((other) => isSame(one, other)))
      .map(({ alarm, subject }): Reading => ({ alarm, subject, value: 0, detail: null }))
    for (const reading of [...readings, ...over]) {
      const before = raised.some((one) => isSame(one, reading))
      const is = this.#judge(reading, before)
      if (is === before) continue
      const params = [reading.alarm, reading.subject, is]
      const [row] = await this.#store.call<{ change_alarm: boolean }>('change_alarm', params)
      if (row?.change_alarm === true) this.#emit(reading, is)
    }
  }

  /**
   * Returns the queues that grow. If another worker watched before, the queues that it has reported have grown for long
   * enough.
   */
  #findGrowing(raised: readonly Raised[], readings: readonly Reading[], nowMs: number): Reading[] {
    const lengths = readings.filter(({ alarm }) => alarm === 'queue-length')
    return this.#growth.recordLengths(lengths, nowMs).map(({ subject, forMs, perMinute }) => {
      const before = raised.some((one) => isSame(one, { alarm: 'growing', subject }))
      const value = before ? Math.max(forMs, this.#thresholds.get('growing') ?? 0) : forMs
      return { alarm: 'growing', subject, value, detail: `by ${perMinute}/min` }
    })
  }

  /** Resolves when the webhook has got what was sent to it, or did not answer. */
  async settled(): Promise<void> {
    await Promise.all(this.#sending)
  }

  /** Returns whether the alarm is raised from now on; between the two bounds it stays as it is. */
  #judge({ alarm, value }: Reading, isRaised: boolean): boolean {
    const threshold = this.#thresholds.get(alarm) ?? Infinity
    return isRaised ? value >= threshold * overAt : value >= threshold
  }

  #emit(reading: Reading, isRaised: boolean): void {
    const { alarm, subject } = reading
    const value = Math.round(reading.value)
    const threshold = this.#thresholds.get(alarm) ?? Infinity
    const { text } = kinds[alarm]
    const todo = remedyOf(alarm, subject)
    const event = { alarm, subject, isRaised, value, threshold, text: text(reading), ...(isRaised ? { todo } : {}) }
    this.#store.report.emit('alarm', event)
    this.#post(event)
  }

  #post(event: SluiceEvents['alarm']): void {
    if (this.#webhook === undefined) return
    const sending = this.#send(this.#webhook, event).finally(() => this.#sending.delete(sending))
    this.#sending.add(sending)
  }

  async #send(url: string, event: SluiceEvents['alarm']): Promise<void> {
    const text = `Sluice: ${alarmText(event)}`
    const body = JSON.stringify({ ...event, text, at: new Date(this.#clock.wallMs()).toISOString() })
    const headers = { 'content-type': 'application/json' }
    try {
      const response = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(webhookMs) })
      await response.body?.cancel()
      if (!response.ok) throw new Error(`it answered ${response.status}`)
    } catch (error) {
      this.#store.log.warn('the webhook of alarms failed; the alarm is only in this log', {
        alarm: event.alarm,
        err: error,
      })
    }
  }
}

function isSame(one: Pick<Reading, 'alarm' | 'subject'>, other: Pick<Reading, 'alarm' | 'subject'>): boolean {
  return one.alarm === other.alarm && one.subject === other.subject
}

function webhookOf({ webhook }: AlarmOptions): string | undefined {
  const url = webhook ?? env('SLUICE_ALARM_WEBHOOK')
  if (url === undefined) return undefined
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      'the webhook of alarms must be an address that begins with https:// or http://',
    )
  // Such addresses often contain a secret.
  hideValue(url)
  return url
}
