/** Patterns of names: `*` stands for any characters, also none. */

/** True when a name fits a pattern, or one of several; an undefined pattern fits every name. */
export function fits(pattern: string | readonly string[] | undefined, name: string): boolean {
  if (pattern === undefined) return true
  if (typeof pattern !== 'string') return pattern.some((one) => fits(one, name))
  const [head = '', ...parts] = pattern.split('*')
  if (parts.length === 0) return name === pattern
  const tail = parts.pop() ?? ''
  if (!name.startsWith(head) || name.length < head.length + tail.length || !name.endsWith(tail)) return false
  // Each part is matched at its first occurrence: that leaves the most text for the rest, so backtracking is never
  // needed.
  let from = head.length
  for (const part of parts) {
    const at = name.indexOf(part, from)
    if (at < 0) return false
    from = at + part.length
  }
  return from <= name.length - tail.length
}

/** True for a valid pattern of names: 1 to 100 characters of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `*`. */
export function isPattern(text: unknown): boolean {
  return typeof text === 'string' && /^[A-Za-z0-9._:*-]{1,100}$/.test(text)
}
