/** Options by name: one that nobody reads is a mistake of the caller's, and may widen what the others narrow. */
import { UsageError } from './errors.ts'

/** @throws UsageError of this code when there is a field that is not among the known ones; undefined ones count as absent */
export function checkFields(code: string, what: string, given: object, known: readonly string[]): void {
  const odd = Object.entries(given).find(([name, value]) => value !== undefined && !known.includes(name))
  if (odd !== undefined) throw new UsageError(code, `${what} has no "${odd[0]}"; there are ${known.join(', ')}`)
}
