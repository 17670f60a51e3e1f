// Writes every .sql file of src/ into src/generated/, and every .lua file into lua.ts there, so that the package needs no files at
// run time. A .sql file under db/migrations/ is a migration, one that creates functions or types is applied after the migrations
// (both in schema.ts, which only a migration loads), anything else is a statement (sql.ts); statements and scripts in Lua are named
// <room>/<file>. Python has the texts of the scripts that it runs beside its example. `--check` fails when a committed file is stale.
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const src = join(root, 'src')
const groups = { migrations: [], functions: [], statements: [] }
for (const [name, sql] of texts('.sql')) {
  const group = name.startsWith('db/migrations/')
    ? 'migrations'
    : /create (or replace function|type)/i.test(sql)
      ? 'functions'
      : 'statements'
  groups[group].push([name.replace('db/migrations/', ''), sql])
}
// Types come first, because functions name them, and those of limits before the types that contain them.
const orderOf = (name) => (name === 'limits/records' ? 0 : name.endsWith('/records') ? 1 : 2)
groups.functions.sort(([a], [b]) => orderOf(a) - orderOf(b))
const record = (rows) =>
  `{\n${rows.map(([name, text]) => `  ${JSON.stringify(name)}: ${JSON.stringify(text)},\n`).join('')}}`
const { statements, ...schema } = groups
writeModule('schema.ts', '.sql', Object.entries(schema))
writeModule('sql.ts', '.sql', [['statements', statements]], schemaNames(schema) + functionNames(schema.functions))
const lua = texts('.lua')
writeModule('lua.ts', '.lua', [['scripts', lua]])
writePython('examples/python/limits_lua.py', lua)

/** Writes a TypeScript module with records of texts. The compiler knows the names of statements. */
function writeModule(file, suffix, all, more = '') {
  const type = (group) => (group === 'statements' ? '' : ': Record<string, string>')
  const text =
    `// Made by scripts/embed.mjs from the ${suffix} files; do not edit.\n` +
    all.map(([group, rows]) => `export const ${group}${type(group)} = ${record(rows)}\n`).join('')
  write(`src/generated/${file}`, text + more)
}

/**
 * Returns what shows whether a database, or the template of one, has the schema of schema.ts: the names of the migrations, a hash of
 * the functions, and one of all that makes a template.
 */
function schemaNames({ migrations, functions }) {
  const text = (rows) => rows.map(([, sql]) => sql).join('\n')
  const names = migrations.map(([name]) => name)
  const makers = ['src/db/migrate.ts', 'scripts/template.mjs'].map((file) => readFileSync(join(root, file), 'utf8'))
  const hash = (of) => createHash('sha256').update(of).digest('hex').slice(0, 16)
  return (
    `export const migrationNames = ${JSON.stringify(names)}\n` +
    `export const functionsHash = '${hash(text(functions))}'\n` +
    `export const schemaHash = '${hash(text(migrations) + text(functions) + names.join() + makers.join())}'\n`
  )
}

/** Returns a type of the names of all SQL functions, so that a call of a missing one does not compile. */
function functionNames(files) {
  const defined = /create or replace function engine\.(\w+)/gi
  const names = new Set(files.flatMap(([, sql]) => [...sql.matchAll(defined)].map(([, name]) => name)))
  return `export type FunctionName = ${[...names].map((name) => `'${name}'`).join(' | ')}\n`
}

/** Writes the Lua scripts as a Python module, joined as src/redis/limiter.ts joins them. */
function writePython(file, all) {
  const part = (name) => all.find(([path]) => path === `redis/${name}`)[1]
  const library = ['bucket', 'epoch', 'state', 'rebuild'].map(part).join('\n')
  const text =
    '"""The scripts that decide limits in Redis. Made by scripts/embed.mjs from src/redis/*.lua; do not edit."""\n' +
    `_LIBRARY = r"""${library}\n"""\n` +
    ['reserve', 'settle'].map((name) => `${name.toUpperCase()} = _LIBRARY + r"""${part(name)}"""\n`).join('')
  write(file, text)
}

/** Writes a file, or with --check compares it. */
function write(file, text) {
  const path = join(root, file)
  if (!process.argv.includes('--check')) writeFileSync(path, text)
  else if (readFileSync(path, 'utf8') !== text) {
    console.error(`${file} is stale: run \`node scripts/embed.mjs\``)
    process.exitCode = 1
  }
}

/** Returns the names and texts of all files with this suffix, in order of their paths. */
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
