/**
 * Provides a new database in the state that initdb leaves. initdb in WebAssembly takes 4 to 10 s of a core, unpacking its
 * result less than one; so scripts/template.mjs runs it once, when this package is built.
 */
import fs from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'

const file = fileURLToPath(new URL('../../dist/template.tar.gz', import.meta.url))

/**
 * Returns the files of a new database for PGlite's `loadDataDir`; undefined if this package has none: then initdb runs.
 */
export function template(): Blob | undefined {
  if (!fs.existsSync(file)) return undefined
  return new Blob([gunzipSync(fs.readFileSync(file))])
}
