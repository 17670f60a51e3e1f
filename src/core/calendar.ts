/**
 * Calendar periods in the local time of a zone. `limits/definitions/calendar_period.sql` computes the same in the
 * store; a test compares the two.
 */
import { instantOf, offsetIn } from './zone.ts'

/** Length of a period; weeks begin on Monday. */
export type CalendarUnit = 'minute' | 'hour' | 'day' | 'week' | 'month'

/** A sequence of periods of one unit, in the local time of `zone` (IANA). */
export interface Calendar {
  unit: CalendarUnit
  zone: string
  /**
   * One period begins at this instant (microseconds since 1970, whole ms); null: periods begin where the calendar's do.
   */
  anchorUs: number | null
}

/** From `startUs` (inclusive) to `endUs` (exclusive), in microseconds since 1970. */
export interface Period {
  startUs: number
  endUs: number
}

const minuteUs = 60_000_000
const hourUs = 60 * minuteUs
const dayUs = 24 * hourUs
/** Monday the 5th of January 1970. */
const mondayUs = 4 * dayUs

/**
 * Returns the period that contains a time. Days, weeks and months begin when the clocks first show their local start, or
 * a later time: midnight may fall into a gap, and clocks that are set back past it do not start a second period. So every
 * instant is in exactly one period. Minutes and hours are counted as elapsed time from the start of the day (or the
 * anchor): a day of 25 hours has 25 of them, and the last one of a day may be short.
 */
export function periodOf(calendar: Calendar, atUs: number): Period {
  const { unit, anchorUs } = calendar
  if (unit !== 'minute' && unit !== 'hour') return wallPeriod(calendar, atUs)
  const lengthUs = unit === 'minute' ? minuteUs : hourUs
  const day = anchorUs === null ? wallPeriod({ ...calendar, unit: 'day' }, atUs) : undefined
  const originUs = day?.startUs ?? anchorUs ?? 0
  const startUs = originUs + Math.floor((atUs - originUs) / lengthUs) * lengthUs
  return { startUs, endUs: Math.min(startUs + lengthUs, day?.endUs ?? Infinity) }
}

function wallPeriod({ unit, zone, anchorUs }: Calendar, atUs: number): Period {
  const offset = offsetIn(zone)
  const shown = (us: number) => us + offset(Math.floor(us / 1_000)) * 1_000
  const begin = (wallUs: number) => instantOf(wallUs / 1_000, offset) * 1_000
  const originUs = anchorUs === null ? (unit === 'week' ? mondayUs : 0) : shown(anchorUs)
  const wallUs = shown(atUs)
  const wall = (k: number) => {
    if (unit === 'month') return monthsAfter(originUs, k)
    return originUs + k * (unit === 'week' ? 7 * dayUs : dayUs)
  }
  let k =
    unit === 'month' ? monthsOf(wallUs) - monthsOf(originUs) : Math.floor((wallUs - originUs) / (wall(1) - originUs))
  if (wall(k) > wallUs) k--
  let startUs = begin(wall(k))
  for (;;) {
    // The loop repeats where clocks were set back past a start that they had already shown.
    const endUs = begin(wall(++k))
    if (endUs > atUs) return { startUs, endUs }
    startUs = endUs
  }
}

/** Months since the year 0. */
function monthsOf(wallUs: number): number {
  const date = new Date(wallUs / 1_000)
  return date.getUTCFullYear() * 12 + date.getUTCMonth()
}

/**
 * Returns the same time on the same day of the month, `months` later, or on the month's last day if the month is too
 * short.
 */
function monthsAfter(wallUs: number, months: number): number {
  const date = new Date(wallUs / 1_000)
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + months]
  const day = Math.min(date.getUTCDate(), new Date(Date.UTC(year, month + 1, 0)).getUTCDate())
  const timeUs = ((wallUs % dayUs) + dayUs) % dayUs
  return Date.UTC(year, month, day) * 1_000 + timeUs
}
