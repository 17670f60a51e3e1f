/** Converts between UTC and the local time of a zone. Pure, except for the runtime's time zone data. */

const dayMs = 86_400_000
const offsets = new Map<string, (ms: number) => number>()

/**
 * Returns a function that gives the zone's offset from UTC, in ms, at a time (ms since 1970). @throws RangeError when the
 * runtime does not know the zone
 */
export function offsetIn(zone: string): (ms: number) => number {
  const known = offsets.get(zone)
  if (known !== undefined) return known
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  })
  const offset = (ms: number) => {
    const at: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {}
    for (const { type, value } of format.formatToParts(ms)) at[type] = Number(value)
    const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = at
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1_000) * 1_000
  }
  offsets.set(zone, offset)
  return offset
}

/**
 * Returns the instant at which clocks first show a local time (written as if it were UTC) or a later one. If clocks are
 * set forward past that local time, this is the instant of the change. Later local times never have earlier instants.
 */
export function instantOf(wallMs: number, offset: (ms: number) => number): number {
  const before = offset(wallMs - dayMs)
  const early = wallMs - before
  if (offset(early) === before) return early
  const after = offset(wallMs + dayMs)
  const late = wallMs - after
  if (offset(late) === after) return late
  // Clocks are only ever changed at whole seconds.
  let [lo, hi] = [Math.floor(late / 1_000) * 1_000, Math.ceil(early / 1_000) * 1_000]
  while (hi - lo > 1_000) {
    const middle = lo + Math.floor((hi - lo) / 2_000) * 1_000
    if (offset(middle) === before) lo = middle
    else hi = middle
  }
  return hi
}
