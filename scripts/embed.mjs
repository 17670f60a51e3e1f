// Writes every .sql file of src/ into src/generated/sql.ts, and every .lua file into lua.ts beside it, so that the package
// needs no files at run time. A .sql file under db/migrations/ is a migration, one that creates a function is applied after
// the migrations, anything else is a statement; statements and scripts in Lua are named <room>/<file>. `--check` fails when
// a committed file is stale.
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const src = fileURLToPath(new URL('../src', import.meta.url))
const groups = { migrations: [], functions: [], statements: [] }
for (const [name, sql] of texts('.sql')) {
  const group = name.startsWith('db/migrations/')
    ? 'migrations'
    : /create or replace function/i.test(sql)
      ? 'functions'
      : 'statements'
  groups[group].push([name.replace('db/migrations/', ''), sql])
}
const record = (rows) =>
  `{\n${rows.map(([name, text]) => `  ${JSON.stringify(name)}: ${JSON.stringify(text)},\n`).join('')}}`
write('sql.ts', '.sql', Object.entries(groups))
write('lua.ts', '.lua', [['scripts', texts('.lua')]])

/** Writes a module of records of texts, or looks whether that is what it says. */
function write(file, suffix, all) {
  const path = join(src, 'generated', file)
  const text =
    `// Made by scripts/embed.mjs from the ${suffix} files; do not edit.\n` +
    all.map(([group, rows]) => `export const ${group}: Record<string, string> = ${record(rows)}\n`).join('')
  if (!process.argv.includes('--check')) writeFileSync(path, text)
  else if (readFileSync(path, 'utf8') !== text) {
    console.error(`src/generated/${file} is stale: run \`node scripts/embed.mjs\``)
    process.exitCode = 1
  }
}

/** Names and texts of all files that end so, in order of their paths. */
function texts(suffix) {
  const named = (path) => relative(src, path).replaceAll('\\', '/').slice(0, -suffix.length)
  return files(src, suffix)
    .sort()
    .map((path) => [named(path), readFileSync(path, 'utf8')])
}

function files(dir, suffix) {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name)
    return entry.isDirectory() ? files(path, suffix) : entry.name.endsWith(suffix) ? [path] : []
  })
}
