/** Keys of messages that a worker remembers, to recognise messages that arrive again or were called off. */

/** How many are remembered, up to twice as many. */
const knownMax = 10_000

/** Notes a key, and forgets the oldest of too many: many at once, because a map is slow to find its first after deletions. */
export function remember(known: Map<string, true>, key: string): void {
  known.set(key, true)
  if (known.size < 2 * knownMax) return
  for (const oldest of known.keys()) if (known.size > knownMax) known.delete(oldest)
}
