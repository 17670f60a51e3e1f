/** Opening hours: a span of the day on some days of the week, by the clocks of a time zone. */
import { Cron } from 'croner'
import { UsageError } from './errors.ts'

/** Opening hours as people write them. */
export interface Hours {
  /** `'08:00'`, the first open minute. */
  from: string
  /** `'18:00'`, the first closed minute; before `from`: of the next day. The same as `from`: all day. */
  to: string
  /** Days on which it opens: `'mon-fri'` (the default is every day) or `['mon', 'wed']`. */
  days?: string | readonly string[]
  /** An IANA time zone, such as `'Europe/Berlin'`. */
  zone: string
}

/** Opening hours in numbers. */
export interface ParsedHours {
  /** Minutes of the day. */
  fromMin: number
  toMin: number
  /** 1 (Monday) to 7, ascending. */
  days: number[]
  zone: string
}

const names = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']

/** Reads opening hours. @throws UsageError SLUICE_BAD_HOURS */
export function parseHours({ from, to, days, zone }: Hours): ParsedHours {
  const list = days === undefined ? 'mon-sun' : typeof days === 'string' ? days : days.join(',')
  const parsed = list.split(',').flatMap((part) => dayRange(part.trim().toLowerCase()))
  try {
    new Intl.DateTimeFormat('en', { timeZone: zone })
  } catch {
    throw new UsageError('SLUICE_BAD_HOURS', `"${zone}" is not an IANA time zone, such as Europe/Berlin`)
  }
  if (zone === undefined) throw new UsageError('SLUICE_BAD_HOURS', 'hours need a `zone`, such as Europe/Berlin')
  return { fromMin: minute(from), toMin: minute(to), days: [...new Set(parsed)].sort((a, b) => a - b), zone }
}

function dayRange(text: string): number[] {
  const [first = '', last = first, more] = text.split('-')
  const [a, b] = [names.indexOf(first), names.indexOf(last)]
  if (a < 0 || b < 0 || more !== undefined) {
    throw new UsageError('SLUICE_BAD_HOURS', `"${text}" names no days: write 'mon-fri', or 'mon,wed,fri'`)
  }
  return Array.from({ length: ((b - a + 7) % 7) + 1 }, (_, i) => ((a + i) % 7) + 1)
}

function minute(text: string): number {
  const match = /^([01]\d|2[0-3]):([0-5]\d)$/.exec(text)
  if (match === null) throw new UsageError('SLUICE_BAD_HOURS', `"${text}" is no time of day: write '08:00'`)
  return Number(match[1]) * 60 + Number(match[2])
}

/** When it opens next, in ms since 1970; undefined: it is open at `nowMs`. */
export function opensAt(hours: ParsedHours, nowMs: number): number | undefined {
  if (isOpen(hours, nowMs)) return undefined
  const { fromMin, days, zone } = hours
  const cron = new Cron(`0 ${fromMin % 60} ${Math.floor(fromMin / 60)} * * ${days.join(',')}`, { timezone: zone })
  return cron.nextRun(new Date(nowMs))?.getTime()
}

function isOpen({ fromMin, toMin, days, zone }: ParsedHours, nowMs: number): boolean {
  const parts = formatOf(zone).formatToParts(nowMs)
  const part = (type: string) => parts.find((one) => one.type === type)?.value ?? ''
  const day = names.indexOf(part('weekday').toLowerCase()) + 1
  const nowMin = Number(part('hour')) * 60 + Number(part('minute'))
  const today = days.includes(day)
  if (fromMin < toMin) return today && fromMin <= nowMin && nowMin < toMin
  return (today && nowMin >= fromMin) || (days.includes(((day + 5) % 7) + 1) && nowMin < toMin)
}

const formats = new Map<string, Intl.DateTimeFormat>()

function formatOf(zone: string): Intl.DateTimeFormat {
  let format = formats.get(zone)
  if (format === undefined) {
    const clock = { weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const
    formats.set(zone, (format = new Intl.DateTimeFormat('en-GB', { ...clock, timeZone: zone })))
  }
  return format
}
