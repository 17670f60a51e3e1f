/** Durations as people read them. */

/** Formats a duration: `340 ms`, `3.2 s`, `5 min`, `2 h`, `3 d`. */
export function span(ms: number): string {
  const size = Math.abs(ms)
  if (size < 1_000) return `${Math.round(ms)} ms`
  if (size < 100_000) return `${(ms / 1_000).toFixed(1)} s`
  if (size < 6_000_000) return `${Math.round(ms / 60_000)} min`
  if (size < 172_800_000) return `${Math.round(ms / 3_600_000)} h`
  return `${Math.round(ms / 86_400_000)} d`
}
