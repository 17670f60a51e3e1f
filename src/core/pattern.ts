/** Patterns of names: `*` stands for any characters, also none. */

/** True when a name fits a pattern, or one of several; an undefined pattern fits every name. */
export function fits(pattern: string | readonly string[] | undefined, name: string): boolean {
  if (pattern === undefined) return true
  if (typeof pattern !== 'string') return pattern.some((one) => fits(one, name))
  const [head = '', ...parts] = pattern.split('*')
  if (parts.length === 0) return name === pattern
  const tail = parts.pop() ?? ''
  if (!name.startsWith(head) || name.length < head.length + tail.length || !name.endsWith(tail)) return false
  // Each part at its first place: leftmost leaves the most for the rest, so no way back is ever needed.
  let from = head.length
  for (const part of parts) {
    const at = name.indexOf(part, from)
    if (at < 0) return false
    from = at + part.length
  }
  return from <= name.length - tail.length
}

/** True for a text that can be a pattern of names: 1 to 100 of a-z, A-Z, 0-9, `.`, `_`, `-`, `:`, `*`. */
export function isPattern(text: unknown): boolean {
  return typeof text === 'string' && /^[A-Za-z0-9._:*-]{1,100}$/.test(text)
}
