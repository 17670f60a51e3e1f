/**
 * Checks the names of options: a name that no code reads is a mistake of the caller's, and may widen what the others
 * narrow.
 */
import { UsageError } from './errors.ts'

/** @throws UsageError with this code when a field is not among the known ones; undefined fields count as absent */
export function checkFields(code: string, what: string, given: object, known: readonly string[]): void {
  const odd = Object.entries(given).find(([name, value]) => value !== undefined && !known.includes(name))
  if (odd !== undefined) throw new UsageError(code, `${what} has no "${odd[0]}"; there are ${known.join(', ')}`)
}
