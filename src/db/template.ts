/**
 * Provides a new database as initdb leaves it, or with this release's schema. In WebAssembly initdb takes 4 to 10 s of a core and
 * the migrations take more than one, unpacking their result less; so scripts/template.mjs runs them once, when this package is built.
 */
import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { version } from '../core/version.ts'
import { schemaHash } from '../generated/sql.ts'

/** The name of the template with this release's schema; one of another text is none. */
export const migratedTemplate = `template-${version}-${schemaHash}.tar.gz`

/**
 * Returns the files of a new database as a tar archive; undefined if this package has none: then initdb runs. With `schema`
 * `sluice` they have that schema, if this package has such files.
 */
export function template(schema?: string): Buffer | undefined {
  const names = schema === 'sluice' ? [migratedTemplate, 'template.tar.gz'] : ['template.tar.gz']
  const found = names.map(inPackage).find((file) => fs.existsSync(file))
  return found === undefined ? undefined : inflated(fs.readFileSync(found))
}

function inPackage(name: string): string {
  return fileURLToPath(new URL(`../../dist/${name}`, import.meta.url))
}

/** Inflates into one piece of memory: the last four bytes of gzip are the size. */
function inflated(file: Buffer): Buffer {
  return gunzipSync(file, { chunkSize: file.readUInt32LE(file.length - 4) + blockBytes })
}

const blockBytes = 512
const nameBytes = 100

/** Calls one function for each directory of a template, and one for each file, with their paths in the database. */
export function unpack(
  tar: Buffer,
  to: { directory: (path: string) => void; file: (path: string, bytes: Uint8Array) => void },
): void {
  for (let at = 0; at + blockBytes <= tar.length && tar[at] !== 0;) {
    const header = tar.subarray(at, at + blockBytes)
    const name = header.toString('latin1', 0, header.indexOf(0) > nameBytes ? nameBytes : header.indexOf(0))
    const size = Number.parseInt(header.toString('latin1', 124, 136), 8)
    at += blockBytes
    const within = path.posix.relative('/', path.posix.resolve('/', name))
    if (header[156] === 0x35) to.directory(within)
    else to.file(within, new Uint8Array(tar.buffer, tar.byteOffset + at, size))
    at += Math.ceil(size / blockBytes) * blockBytes
  }
}
