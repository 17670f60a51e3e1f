// Writes every .sql file of src/ into src/generated/sql.ts, so that the package needs no files at run time.
// A file under db/migrations/ is a migration, one that creates a function is applied after the migrations,
// anything else is a statement, named <room>/<file>. `--check` fails when the committed file is stale.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const src = fileURLToPath(new URL('../src', import.meta.url))
const out = join(src, 'generated', 'sql.ts')
const groups = { migrations: [], functions: [], statements: [] }
for (const path of sqlFiles(src).sort()) {
  const name = relative(src, path)
    .replaceAll('\\', '/')
    .replace(/\.sql$/, '')
  const sql = readFileSync(path, 'utf8')
  const group = name.startsWith('db/migrations/')
    ? 'migrations'
    : /create or replace function/i.test(sql)
      ? 'functions'
      : 'statements'
  groups[group].push([name.replace('db/migrations/', ''), sql])
}
const record = (rows) =>
  `{\n${rows.map(([name, sql]) => `  ${JSON.stringify(name)}: ${JSON.stringify(sql)},\n`).join('')}}`
const text =
  '// Made by scripts/embed.mjs from the .sql files; do not edit.\n' +
  Object.entries(groups)
    .map(([group, rows]) => `export const ${group}: Record<string, string> = ${record(rows)}\n`)
    .join('')

if (process.argv.includes('--check')) {
  if (readFileSync(out, 'utf8') !== text) {
    console.error('src/generated/sql.ts is stale: run `node scripts/embed.mjs`')
    process.exit(1)
  }
} else writeFileSync(out, text)

function sqlFiles(dir) {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name)
    return entry.isDirectory() ? sqlFiles(path) : entry.name.endsWith('.sql') ? [path] : []
  })
}
