/** Rates as people write them: `'100/min'`, `'100/10s'`, also Celery's `'100/m'`. */
import { UsageError } from './errors.ts'

type Unit = 'ms' | 's' | 'sec' | 'second' | 'm' | 'min' | 'minute' | 'h' | 'hour' | 'd' | 'day'

/** `'<units>/<window>'`: a whole number of at least 1, then a window such as `s`, `10s`, `min`, `h`, `day`. */
export type Rate = `${number}/${Unit}` | `${number}/${number}${Unit}`

const unitUs: Record<Unit, number> = {
  ms: 1_000,
  s: 1_000_000,
  sec: 1_000_000,
  second: 1_000_000,
  m: 60_000_000,
  min: 60_000_000,
  minute: 60_000_000,
  h: 3_600_000_000,
  hour: 3_600_000_000,
  d: 86_400_000_000,
  day: 86_400_000_000,
}

const unit = Object.keys(unitUs).join('|')
const rateForm = new RegExp(`^(\\d{1,12})/(\\d{0,9})(${unit})$`)
const durationForm = new RegExp(`^(\\d+(?:\\.\\d+)?) ?(${unit})$`)

/** Rates as people write them elsewhere: `100 per minute`, `100 requests / 10 seconds`. */
const wordForm = /^([1-9]\d*)(?: [a-z]+)? ?(?:\/|per|an?|each|every) ?((?:[1-9]\d*)?) ?([a-z]+?)s?$/i

/** A rate in numbers: at most `units` in any window of `windowUs` microseconds. */
export interface ParsedRate {
  units: number
  windowUs: number
}

/**
 * Reads a rate. @param written as people wrote it, for the message
 * @throws UsageError SLUICE_BAD_RATE when it is malformed, zero, negative, or longer than 366 days.
 */
export function parseRate(rate: string, written = rate): ParsedRate {
  const match = rateForm.exec(rate)
  const units = Number(match?.[1])
  const windowUs = Number(match?.[2] || '1') * (unitUs[match?.[3] as Unit] ?? NaN)
  if (!(units >= 1) || !(windowUs >= 1_000) || windowUs > 366 * unitUs.day) {
    const other = /\/(week|month)$/.test(rate)
      ? '; weeks and months are for a `quota`, or are written as 7d and 30d'
      : ''
    const [, count, spans, word] = wordForm.exec(rate) ?? []
    const meant = `${count}/${spans}${word?.toLowerCase()}`
    if (match === null && rateForm.test(meant))
      throw new UsageError('SLUICE_BAD_RATE', `"${written}" is not a rate: write '${meant}'`)
    throw new UsageError(
      'SLUICE_BAD_RATE',
      `"${written}" is not a rate: write for example '100/min', '5/s' or '100/10s' (1 ms to 366 days)${other}`,
    )
  }
  return { units, windowUs }
}

/** A span of time: a number of ms, or text such as `'250ms'`, `'30s'`, `'5min'`, `'2 h'`, `'7d'`, in the units of a rate. */
export type Duration = number | `${number}${Unit}` | `${number} ${Unit}`

/**
 * A span of time in ms.
 * @throws UsageError SLUICE_BAD_DURATION when it is malformed, negative or not finite.
 */
export function durationMs(span: Duration): number {
  const match = typeof span === 'number' ? null : durationForm.exec(span)
  const ms = typeof span === 'number' ? span : (Number(match?.[1]) * (unitUs[match?.[2] as Unit] ?? NaN)) / 1_000
  if (!Number.isFinite(ms) || ms < 0) {
    throw new UsageError(
      'SLUICE_BAD_DURATION',
      `"${span}" is not a span of time: give a number with a unit (ms, s, min, h, d), such as '30s' or '5 min'; in code a number without quotes is ms`,
    )
  }
  return ms
}
