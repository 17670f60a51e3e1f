/**
 * Loads node-postgres. Without a `navigator`, which Node has from version 21 on, it makes a `Response` to find out whether it runs
 * at Cloudflare, and the first `Response` loads Node's HTTP client, which takes a tenth of the time of a command.
 */
import { createRequire } from 'node:module'
import type pg from 'pg'

/** node-postgres. */
export const driver = load()

function load(): typeof pg {
  const require = createRequire(import.meta.url)
  if ('navigator' in globalThis) return require('pg') as typeof pg
  Object.assign(globalThis, { navigator: { userAgent: 'Node.js' } })
  try {
    return require('pg') as typeof pg
  } finally {
    Reflect.deleteProperty(globalThis, 'navigator')
  }
}
