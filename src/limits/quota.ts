/** Quotas: a number of units in each period of a calendar. Parses them, and has their part of the arithmetic of `decide.ts`. */
import { inspect } from 'node:util'
import { type Calendar, type CalendarUnit, periodOf } from '../core/calendar.ts'
import { UsageError } from '../core/errors.ts'
import { type Money, unitsOf } from '../core/money.ts'
import { zoneOf } from '../core/hours.ts'

/**
 * `'<units>/<period>'`: a whole number of at least 1, or money (`'50 USD/month'`), and one minute, hour, day, week (from
 * Monday) or month. The example stands in messages of the compiler.
 */
export type Quota<Example extends `${number}/${Period}`> = `${number}/${Period}` | Money<Period> | Example

type Period = keyof typeof unitOf

/** The further fields of a rule that is a quota. */
export interface QuotaRule extends Calendar {
  /** How far a grant counts beyond its period's ends: its life, plus the variation of its way (and of the vendor's clock). */
  marginUs: number
}

const unitOf = {
  min: 'minute',
  minute: 'minute',
  h: 'hour',
  hour: 'hour',
  d: 'day',
  day: 'day',
  week: 'week',
  month: 'month',
} as const

const hourUs = 3_600_000_000
/** Shortest and longest length of a period of each unit: clocks are set by up to two hours, days are left out or repeated. */
const lengthUs: Record<CalendarUnit, { least: number; most: number }> = {
  minute: { least: hourUs / 60, most: hourUs / 60 },
  hour: { least: hourUs / 2, most: hourUs },
  day: { least: 22 * hourUs, most: 50 * hourUs },
  week: { least: 166 * hourUs, most: 194 * hourUs },
  month: { least: 670 * hourUs, most: 770 * hourUs },
}

/** Returns the rule of one quota in numbers. @throws UsageError SLUICE_BAD_RATE, SLUICE_BAD_LIMIT */
export function quotaRule(name: string, quota: string, calendar: Omit<Calendar, 'unit'>, marginUs: number) {
  const given = unitsOf(quota)
  const pattern = given.currency === undefined ? /^(\d{1,12})\/([a-z]+)$/ : /^(\d+)\/([a-z]+)$/
  const [, count = '', text = ''] = pattern.exec(given.text) ?? []
  const units = Number(count)
  const unit = (unitOf as Partial<Record<string, CalendarUnit>>)[text]
  if (!(units >= 1) || unit === undefined)
    throw new UsageError(
      'SLUICE_BAD_RATE',
      `"${quota}" is not a quota: write for example '10000/day'; it may be per minute, hour, day, week or month`,
    )
  const { least, most } = lengthUs[unit]
  if (marginUs * 2 >= least)
    throw new UsageError(
      'SLUICE_BAD_LIMIT',
      `limit "${name}": quota ${quota} has a margin of ${marginUs / 1_000} ms (a grant's life, and transit); it must be below half of the period`,
    )
  return {
    kind: 'quota' as const,
    rate: quota,
    units,
    windowUs: least,
    drain: 1,
    weight: 1,
    capacity: units,
    partUs: 0,
    spanUs: most + marginUs,
    quota: { unit, ...calendar, marginUs },
  }
}

/** Reads the zone and the anchor of quotas. @throws UsageError SLUICE_BAD_ZONE, SLUICE_BAD_LIMIT */
export function calendarOf(name: string, zone: unknown = 'UTC', anchor?: Date | string): Omit<Calendar, 'unit'> {
  const bad = (code: string, why: string) => new UsageError(code, `limit "${name}": ${why}`)
  let known: string
  try {
    known = zoneOf(zone)
  } catch {
    throw bad('SLUICE_BAD_ZONE', `unknown time zone "${String(zone)}"; write it like America/New_York, or UTC`)
  }
  if (anchor === undefined) return { zone: known, anchorUs: null }
  // Without an offset it would be a time in this machine's zone.
  const isInstant =
    anchor instanceof Date || (typeof anchor === 'string' && /^\d{4}-\d\d-\d\d(T.*(Z|[+-]\d\d:?\d\d))?$/.test(anchor))
  const ms = isInstant ? new Date(anchor).getTime() : NaN
  if (!(Math.abs(ms) <= 4e12))
    throw bad(
      'SLUICE_BAD_LIMIT',
      `anchor is ${String(anchor)}; give a Date, or an ISO instant such as 2026-01-31T09:00:00Z`,
    )
  return { zone: known, anchorUs: ms * 1_000 }
}

const alarmsMax = 8

/** Returns the shares of quotas at which an alarm is raised, if they are valid. @throws UsageError SLUICE_BAD_LIMIT */
export function checkAlarmAt(name: string, shares: unknown, hasQuota: boolean): readonly number[] | undefined {
  if (shares === undefined) return undefined
  const bad = (why: string) => new UsageError('SLUICE_BAD_LIMIT', `limit "${name}": ${why}`)
  if (!hasQuota) throw bad('alarmAt belongs to a quota, and it has none')
  const isShare = (share: unknown) => typeof share === 'number' && share > 0 && share <= 1
  if (Array.isArray(shares) && shares.length <= alarmsMax && shares.every(isShare)) return shares as number[]
  throw bad(`alarmAt is ${inspect(shares)}; it is a list of up to ${alarmsMax} shares, above 0, up to 1: [0.8, 1]`)
}

/** The units granted in the period that a bucket's time is in, and in its neighbours; all times in microseconds. */
export interface Spent {
  /** Start of the period before; start and end of this one. 0: not known yet. */
  beforeUs: number
  startUs: number
  endUs: number
  /** Units that count in the period before (while that matters: within a margin of its end), in this one, and in the next. */
  previous: number
  current: number
  next: number
}

/** Nothing granted, no period known; also for a rule that is no quota. */
export const unspent: Spent = { beforeUs: 0, startUs: 0, endUs: 0, previous: 0, current: 0, next: 0 }

/** Returns what was granted, as of a later time. Drops what counted in the period before once that no longer matters. */
export function rollQuota(quota: QuotaRule, spent: Spent, atUs: number): Spent {
  const now = periodAt(quota, spent, atUs)
  return atUs < now.startUs + quota.marginUs ? now : { ...now, previous: 0 }
}

/** Computes the calendar only if the period has ended. */
function periodAt(quota: QuotaRule, spent: Spent, atUs: number): Spent {
  if (atUs < spent.endUs) return spent
  if (spent.endUs === 0) return beginQuota(quota, atUs)
  const following = periodOf(quota, spent.endUs)
  if (atUs < following.endUs) {
    const { startUs: beforeUs, current: previous, next: current } = spent
    return { ...following, beforeUs, previous, current, next: 0 }
  }
  const now = beginQuota(quota, atUs)
  return now.startUs === following.endUs ? { ...now, previous: spent.next } : now
}

/** Returns a quota of which nothing is granted, with the periods around this time. */
export function beginQuota(quota: QuotaRule, atUs: number): Spent {
  const period = periodOf(quota, atUs)
  return { ...unspent, ...period, beforeUs: periodOf(quota, period.startUs - 1).startUs }
}

/** Returns how many units count against a grant at this time: near an end of the period also those of the neighbour. */
export function unitsOwed({ marginUs }: QuotaRule, spent: Spent, atUs: number): number {
  if (atUs < spent.startUs + marginUs) return Math.max(spent.current, spent.previous)
  return atUs < spent.endUs - marginUs ? spent.current : Math.max(spent.current, spent.next)
}

/** Returns when `need` units fit, if they do not fit now. A full period ends for us only a margin after its end. */
export function resetUs(quota: QuotaRule, spent: Spent, capacity: number, need: number): number {
  const { marginUs } = quota
  // Units that count in the next period count in this one too.
  if (spent.next + need > capacity) return periodOf(quota, spent.endUs).endUs + marginUs
  return (spent.current + need > capacity ? spent.endUs : spent.startUs) + marginUs
}

/**
 * Returns what was granted after `units` more (negative: fewer) at `whenUs`: they count in each period that is less than a
 * margin away. What is given back makes no room in the period before, which may count as full because nobody looked up what was granted
 * in it; nor in the next if it was granted after that, because the period after the next is not known here.
 */
export function spend({ marginUs }: QuotaRule, spent: Spent, whenUs: number, units: number): Spent {
  const { beforeUs, startUs, endUs } = spent
  const counted = (fromUs: number, toUs: number, one: number) =>
    whenUs >= fromUs - marginUs && whenUs < toUs + marginUs ? Math.max(0, one + units) : one
  return {
    ...spent,
    previous: units > 0 ? counted(beforeUs, startUs, spent.previous) : spent.previous,
    current: counted(startUs, endUs, spent.current),
    next: counted(endUs, units > 0 ? Infinity : endUs, spent.next),
  }
}
