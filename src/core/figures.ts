/** Figures as people read them: rounded, and everywhere in the same way. */

/** Units of durations, the smallest first: name, length in ms, and the length at which the next unit begins. */
const units = [
  ['ms', 1, 999.5],
  ['s', 1_000, 99_950],
  ['min', 60_000, 5_970_000],
  ['h', 3_600_000, 171_000_000],
  ['d', 86_400_000, Infinity],
] as const

/** Formats a duration: `340 ms`, `3.2 s`, `5 min`, `2.5 h`, `3 d`. */
export function span(ms: number): string {
  const [name, unitMs] = units.find(([, , end]) => Math.abs(ms) < end) ?? units[4]
  const value = ms / unitMs
  return `${Number(value.toFixed(name === 'ms' || (name !== 's' && Math.abs(value) >= 9.95) ? 0 : 1))} ${name}`
}

/** Formats a number with four digits, or all of a larger whole part: `1.512`, `90.7`, `12346`. */
export function figure(value: number): string {
  return String(Math.abs(value) >= 1_000 ? Math.round(value) : Number(value.toPrecision(4)))
}

/** Formats a part of a whole: `90.7 %`. */
export function percent(part: number): string {
  return `${figure(part * 100)} %`
}

/** Formats a number of things: `1 job`, `371 jobs`. */
export function many(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`
}
