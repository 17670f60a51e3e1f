/**
 * Loads the HTTP client. A process that makes no calls does without it: loading it takes a tenth of a second of a core, a
 * quarter of what a command of the command line takes.
 */
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
let loaded: typeof import('undici') | undefined

/** Returns the client; the first call loads it, so make it before there is a grant whose life that would shorten. */
export function client(): typeof import('undici') {
  loaded ??= require('undici') as typeof import('undici')
  return loaded
}
