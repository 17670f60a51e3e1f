import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** One file of the repository, or a sample of one; `path` is relative to the root. */
export type File = { path: string; text: string }

const root = fileURLToPath(new URL('..', import.meta.url))
const places = [
  'src',
  'test',
  'scripts',
  'bench',
  'examples',
  'docs',
  'CHANGELOG.md',
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'AGENTS.md',
  'package-lock.json',
]
const isText = /\.(ts|mts|mjs|js|sql|lua|md|json|html|css|yml|yaml|py)$/

/** Every text file that people wrote here. */
export function readAll(): File[] {
  return places.flatMap(read)
}

function read(path: string): File[] {
  if (path.endsWith('/node_modules')) return []
  const at = join(root, path)
  const found = statSync(at, { throwIfNoEntry: false })
  if (found?.isDirectory()) return readdirSync(at).flatMap((name) => read(`${path}/${name}`))
  return found && isText.test(path) ? [{ path, text: readFileSync(at, 'utf8') }] : []
}

/** The library's own TypeScript. */
export function inSource(files: File[]): File[] {
  return files.filter(({ path }) => /^src\/.*\.ts$/.test(path) && !isGenerated(path))
}

/** True for TypeScript, JavaScript, SQL and Lua. */
export function isCode(path: string): boolean {
  return /\.(ts|mts|mjs|sql|lua)$/.test(path)
}

/** True for what scripts/embed.mjs writes. */
export function isGenerated(path: string): boolean {
  return path.startsWith('src/generated/')
}

/** True for the library's SQL. */
export function isSql({ path }: { path: string }): boolean {
  return /^src\/.*\.sql$/.test(path)
}

/** True for SQL that is run with parameters, as opposed to migrations and functions; scripts/embed.mjs draws the line. */
export function isStatement({ path, text }: File): boolean {
  return isSql({ path }) && !path.includes('/migrations/') && !/create or replace function/i.test(text)
}
