/**
 * Opening hours: a span of the day on some days of the week, in the local time of a zone. The store computes when they
 * open.
 */
import { UsageError } from './errors.ts'

/** Opening hours as people write them. They are local times, also on days on which the clock is set forward or back. */
export interface Hours {
  /** `'08:00'`, the first open minute; 00:00 to 23:59. */
  from: string
  /** `'18:00'`, the first closed minute; up to 24:00. If it is earlier than `from`, it is a time of the next day. */
  to: string
  /** Days on which the hours begin: `'Mon-Fri'`, `'sat,sun'`; default every day. */
  days?: string | undefined
  /** An IANA time zone, such as `'Europe/Berlin'`. */
  zone: string
}

/** Opening hours in numbers. */
export interface ParsedHours {
  /** Minutes of the day. */
  fromMin: number
  toMin: number
  /** 1 (Monday) to 7, ascending; null: every day. */
  days: number[] | null
  zone: string
}

/** Monday first. */
const dayNames = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'] as const

/** Reads opening hours. @throws UsageError SLUICE_BAD_HOURS */
export function parseHours({ from, to, days, zone }: Hours): ParsedHours {
  const [fromMin, toMin] = [minuteOf(from), minuteOf(to)]
  if (!(fromMin < 1440 && toMin <= 1440))
    throw bad(`hours are ${from} to ${to}; write them as 08:00 to 18:00, from 00:00 to 24:00`)
  if (fromMin === toMin) throw bad(`hours from ${from} to ${to} are empty; for whole days write 00:00 to 24:00`)
  return { fromMin, toMin, days: days === undefined ? null : daysOf(days), zone: zoneOf(zone) }
}

/**
 * Returns hours as people write them; `parseHours` reads them back to the same numbers. Days are always listed, even all
 * of them.
 */
export function writtenHours({ fromMin, toMin, days, zone }: ParsedHours): Required<Hours> {
  return { from: clockOf(fromMin), to: clockOf(toMin), days: namesOf(days ?? [1, 2, 3, 4, 5, 6, 7]), zone }
}

function clockOf(min: number): string {
  return `${String(Math.floor(min / 60)).padStart(2, '0')}:${String(min % 60).padStart(2, '0')}`
}

/** Writes three or more consecutive days as a range: Mon-Fri, but Sat,Sun. */
function namesOf(days: readonly number[]): string {
  const runs: number[][] = []
  for (const day of days) {
    const run = runs.at(-1)
    if (run?.at(-1) === day - 1) run.push(day)
    else runs.push([day])
  }
  const name = (day: number | undefined) => dayNames[(day ?? 1) - 1] ?? ''
  return runs.map((run) => (run.length > 2 ? `${name(run[0])}-${name(run.at(-1))}` : run.map(name).join(','))).join(',')
}

/** Returns the minute of the day of a text such as `'08:00'`, from 0 to 5,999; NaN if the text is malformed. */
export function minuteOf(text: unknown): number {
  const [, hour = '', minute = ''] = (typeof text === 'string' && /^(\d\d):([0-5]\d)$/.exec(text)) || []
  return hour === '' ? NaN : Number(hour) * 60 + Number(minute)
}

function daysOf(text: string): number[] {
  const number = (name: string) => dayNames.findIndex((day) => day.toLowerCase() === name.trim().toLowerCase())
  const days = text.split(',').flatMap((part) => {
    const [first, last = first, more] = part.split('-').map(number)
    if (first === undefined || last === undefined || more !== undefined || first < 0 || last < 0)
      throw bad(`days are "${text}"; write them as Mon-Fri, or as Sat,Sun: ${dayNames.join(', ')}`)
    return Array.from({ length: ((last - first + 7) % 7) + 1 }, (_, i) => ((first + i) % 7) + 1)
  })
  return [...new Set(days)].toSorted((a, b) => a - b)
}

/**
 * Returns the zone if it is an IANA time zone. An offset such as `+05:30` is rejected: it ignores daylight saving time.
 * @throws UsageError SLUICE_BAD_HOURS
 */
export function zoneOf(zone: unknown): string {
  // A process that knows no other zone does without the runtime's data about them, which take 40 ms of a core to load.
  if (zone === 'UTC') return zone
  try {
    if (typeof zone === 'string' && /^[A-Za-z]/.test(zone)) {
      new Intl.DateTimeFormat('en', { timeZone: zone })
      return zone
    }
  } catch {}
  throw bad(`"${String(zone)}" is not a time zone; write it as Europe/Berlin, or UTC`)
}

function bad(why: string): UsageError {
  return new UsageError('SLUICE_BAD_HOURS', why)
}
