/** The name that was probably meant. */

/** Returns the known name that is most like `name`; undefined: none is. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const most = Math.max(1, Math.floor(name.length / 3))
  const best = known
    .map((one) => [one, distance(name.toLowerCase(), one.toLowerCase())] as const)
    .sort(([, a], [, b]) => a - b)[0]
  if (best !== undefined && best[1] <= most) return best[0]
  return known.find((one) => one.startsWith(name) || (name.length > 3 && one.includes(name)))
}

/** The number of letters to insert, remove, replace, or swap with the next one. */
function distance(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, i) => i)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      row[j] = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (isSame ? 0 : 1))
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        row[j] = Math.min(row[j] ?? 0, (before[j - 2] ?? 0) + 1)
    }
    ;[before, last] = [last, row]
  }
  return last[b.length] ?? 0
}
