/** Phrases that explanations share. */
import { quoted } from '../core/printable.ts'
import type { Pausing } from './explanation.ts'

/** Formats a pause: since when, by whom, why. */
export function pausedBy({ reason, by, sinceMs }: Pausing): string {
  return `paused since ${new Date(sinceMs).toISOString()} by ${by}: ${reason}`
}

/** Formats the command that ends a pause. */
export function resumeOf(what: Readonly<Record<string, string>>): string {
  const flags = Object.entries(what).map(([name, value]) => ` --${name} ${quoted(value)}`)
  return `\`sluice resume${flags.join('')}\``
}
