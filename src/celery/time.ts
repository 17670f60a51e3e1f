/** Times and Python's notation of values, as Celery's headers have them. */

/**
 * Writes a time with six digits and an offset: Celery before 5.3 reads three digits as microseconds.
 * @param ms wall time since 1970; fractions are kept to the microsecond
 */
export function writeTime(ms: number): string {
  const whole = Math.floor(ms)
  const us = String(Math.floor((ms - whole) * 1_000)).padStart(3, '0')
  return `${new Date(whole).toISOString().slice(0, -1)}${us}+00:00`
}

/** A day, or a time of it with or without seconds, as Celery's workers take them from senders that write their own. */
const timeForm = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?)?$/

/** Reads a time as ms since 1970; without an offset it is UTC. Undefined: it is none. */
export function readTime(text: string): number | undefined {
  const match = timeForm.exec(text)
  if (match === null) return undefined
  const [, date, time = '00:00', seconds = ':00', fraction = '0', zone = 'Z'] = match
  const offset = zone.length === 5 ? `${zone.slice(0, 3)}:${zone.slice(3)}` : zone
  const ms = Date.parse(`${date}T${time}${seconds}${offset}`)
  return Number.isNaN(ms) ? undefined : ms + Number(`0.${fraction}`) * 1_000
}

/** Longest text of arguments in a header: people read it, in Flower and in logs. */
const reprMax = 1_024

/** Writes a value as Python's `repr`, cut short after 1,024 characters; a list of arguments as a tuple. */
export function reprOf(value: unknown, isTuple = false): string {
  const budget = { left: reprMax }
  const text = isTuple && Array.isArray(value) ? tuple(value, budget) : repr(value, budget)
  return text.length > reprMax ? `${text.slice(0, reprMax - 3)}...` : text
}

function tuple(items: readonly unknown[], budget: { left: number }): string {
  return `(${list(items, budget)}${items.length === 1 ? ',' : ''})`
}

/** Stops as soon as the budget is spent, so that an argument of a megabyte costs nothing. */
function list(items: readonly unknown[], budget: { left: number }): string {
  const parts: string[] = []
  for (const one of items) {
    if (budget.left <= 0) {
      parts.push('...')
      break
    }
    parts.push(repr(one, budget))
  }
  return parts.join(', ')
}

function repr(value: unknown, budget: { left: number }): string {
  const spend = (text: string) => {
    budget.left -= text.length
    return text
  }
  if (value === null || value === undefined) return spend('None')
  if (typeof value === 'boolean') return spend(value ? 'True' : 'False')
  if (typeof value === 'string') return spend(quote(value.slice(0, reprMax)))
  if (typeof value !== 'object') return spend(String(value as number))
  // Brackets count, too: a value may be nested deeper than functions can call themselves.
  spend('[]')
  if (Array.isArray(value)) return `[${list(value, budget)}]`
  const parts: string[] = []
  for (const [key, one] of Object.entries(value)) {
    if (budget.left <= 0) {
      parts.push('...')
      break
    }
    parts.push(`${spend(quote(key))}: ${repr(one, budget)}`)
  }
  return `{${parts.join(', ')}}`
}

function quote(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'"
  const escaped = text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('\r', '\\r').replaceAll('\t', '\\t')
  return `${quote}${quote === "'" ? escaped.replaceAll("'", "\\'") : escaped}${quote}`
}
