/** When a schedule is due: a cron expression in a time zone, or a fixed interval. Pure; croner parses the expression. */
import { Cron } from 'croner'
import { UsageError } from '../core/errors.ts'
import { zoneOf } from '../core/hours.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { instantOf, offsetIn } from '../core/zone.ts'

/** When a schedule is due: one of `cron` and `every`. */
export interface When {
  cron?: string | undefined
  /** IANA name of the time zone in which `cron` is read; default UTC. */
  zone?: string | undefined
  every?: Duration | undefined
}

/** An endless series of instants, in ms since 1970. */
export interface Timing {
  /** Timings with the same text have the same instants. */
  readonly text: string
  /** The first instant after this time. */
  after(ms: number): number
}

const dayMs = 86_400_000
const cronLengthMax = 200
/** An expression is checked for having any instant from here on: every possible date comes within 400 years. */
const sinceMs = Date.UTC(2000, 0, 1)

/** Parses a timing. @throws UsageError SLUICE_BAD_SCHEDULE, with `what` in its message */
export function timingOf(when: When, what: string): Timing {
  const { cron, zone, every } = when
  if ((cron === undefined) === (every === undefined))
    throw bad(what, "needs either `cron`, such as '0 3 * * *', or `every`, such as '10s'")
  if (every === undefined) return cronTiming(cron as string, zone ?? 'UTC', what)
  if (zone !== undefined) throw bad(what, '`zone` goes with `cron`; `every` counts from 1970 in UTC')
  return everyTiming(every, what)
}

function everyTiming(every: Duration, what: string): Timing {
  const stepMs = durationMs(every)
  if (!Number.isInteger(stepMs) || stepMs < 1_000 || stepMs > 366 * dayMs)
    throw bad(what, `\`every\` is ${every}; it must be from 1 s to 366 days, in whole ms`)
  return { text: `every ${stepMs}`, after: (ms) => (Math.floor(ms / stepMs) + 1) * stepMs }
}

/**
 * Makes the timing of a cron expression. On days on which clocks change: with named hours (`30 2 * * *`, `*\/15 1-5 * * *`)
 * each local time comes once, the first time if the clocks show it twice, and at the end of the gap if they skip it. With
 * any hour (`*`, `*\/2`) it comes whenever the clocks show such a time, so it follows elapsed time.
 */
function cronTiming(cron: string, zone: string, what: string): Timing {
  const offset = clocksOf(zone, what)
  const expression = typeof cron === 'string' ? cron.trim().replaceAll(/\s+/g, ' ') : ''
  const onWall = parse(expression, what, { utcOffset: 0 })
  const text = `cron ${expression} ${zone}`
  if (onWall.nextRun(new Date(sinceMs)) === null)
    throw bad(what, `\`cron\` "${expression}" names no day that ever comes`)
  const next = (with_: Cron, ms: number) => {
    const found = with_.nextRun(new Date(ms))
    // Croner ends with the year 9999.
    return found === null ? Infinity : found.getTime()
  }
  if (zone === 'UTC') return { text, after: (ms) => next(onWall, ms) }
  if (isAnyHour(expression)) {
    const inZone = parse(expression, what, { timezone: zone })
    return { text, after: (ms) => next(inZone, ms) }
  }
  return {
    text,
    // Croner alone would drop a time in a gap that ends on the next day (Nuuk, 23:00 to 24:00), and treat a named hour
    // with stepped minutes as any hour.
    after(ms) {
      let wallMs = ms + offset(ms)
      for (;;) {
        wallMs = next(onWall, wallMs)
        const found = instantOf(wallMs, offset)
        if (found > ms) return found
      }
    },
  }
}

/** Returns whether the hour, the fourth field from the end with and without seconds, is not named. */
function isAnyHour(expression: string): boolean {
  if (expression.startsWith('@')) return expression.toLowerCase() === '@hourly'
  return /[*?]/.test(expression.split(' ').at(-4) ?? '')
}

function parse(expression: string, what: string, clocks: { utcOffset: number } | { timezone: string }): Cron {
  // Croner would parse a text with a colon as a date.
  const isTooOdd = expression === '' || expression.length > cronLengthMax || expression.includes(':')
  try {
    if (!isTooOdd) return new Cron(expression, { ...clocks, mode: '5-or-6-parts' })
  } catch (error) {
    const why = error instanceof Error ? error.message.replace(/^Cron\w*: /, '') : String(error)
    throw bad(what, `\`cron\` "${expression}" cannot be read: ${why}`, error)
  }
  throw bad(
    what,
    `\`cron\` must be five fields (minute, hour, day, month, weekday), or six with seconds first, such as '0 3 * * *'`,
  )
}

/** Returns a function that gives a time zone's offset from UTC at a time, in ms. */
function clocksOf(zone: string, what: string): (ms: number) => number {
  try {
    return offsetIn(zoneOf(zone))
  } catch (error) {
    throw bad(what, `\`zone\` "${zone}" is not known here; give an IANA name such as 'Europe/Berlin'`, error)
  }
}

/** Returns the newest `most` instants in (after, until], in order. Its cost depends on `most`, not on the length of that time. */
export function newest(timing: Pick<Timing, 'after'>, afterMs: number, untilMs: number, most: number): number[] {
  const atOnce = most + 100
  let found: number[] = []
  let spanMs = 60_000
  for (let endMs = untilMs; endMs > afterMs && found.length < most;) {
    const beginMs = Math.max(afterMs, endMs - spanMs)
    const part = instants(timing, beginMs, endMs, atOnce)
    const isAll = part.length < atOnce
    if (isAll) [found, endMs] = [[...part, ...found], beginMs]
    spanMs = isAll ? spanMs * 2 : Math.ceil(spanMs / 2)
  }
  return found.slice(-most)
}

/** Returns the first `most` instants in (after, until]. */
export function instants(timing: Pick<Timing, 'after'>, afterMs: number, untilMs: number, most: number): number[] {
  const found: number[] = []
  for (let ms = timing.after(afterMs); ms <= untilMs && found.length < most; ms = timing.after(ms)) found.push(ms)
  return found
}

/** Makes an error about a schedule's definition. */
export function bad(what: string, why: string, cause?: unknown): UsageError {
  return new UsageError('SLUICE_BAD_SCHEDULE', `${what}: ${why}`, cause === undefined ? undefined : { cause })
}
