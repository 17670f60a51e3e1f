// Measures the size and complexity of this repository: `npm run check -- --census`. With --server also the number of statements
// that a claim starts, counted by pg_stat_statements on a temporary PostgreSQL; that part needs PostgreSQL's contrib.
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const entry = 'engine.claim_jobs'

/** Prints the table. */
export async function census(isWithServer) {
  const rows = measured()
  if (isWithServer)
    rows.push(...(await statementsOfClaims().catch((error) => [['statements of claims', error.message]])))
  const width = Math.max(...rows.map(([what]) => what.length))
  for (const [what, value] of rows) console.log(`${what.padEnd(width)}  ${value}`)
}

function measured() {
  const code = ['src', 'test', 'scripts', 'bench', 'examples'].flatMap(read).filter(({ path }) => isCode(path))
  const sql = code.filter(({ path }) => path.endsWith('.sql'))
  const functions = functionsOf(sql)
  const names = [...functions.keys()]
  const reached = reachable(functions, entry)
  const longest = [...functions.values()].toSorted((a, b) => b.parameters - a.parameters)[0]
  const text = sql.map((file) => withoutComments(file.text)).join('\n')
  const times = (pattern) => text.match(pattern)?.length ?? 0
  const linesOf = (files) => files.reduce((sum, file) => sum + lines(file.text).length, 0)
  return [
    ['SQL functions; named by one word', `${names.length}; ${names.filter((name) => !name.includes('_')).length}`],
    ['functions that a claim can reach; their depth', `${reached.length}; ${depth(functions, entry)}`],
    ['lines of those', linesOf(reached.map((name) => functions.get(name)))],
    [
      'SQL lines longer than 120 characters',
      sql.flatMap(({ text: one }) => lines(one)).filter((line) => line.length > 120).length,
    ],
    ['positional parameters of the longest function', `${longest.parameters} (${longest.name})`],
    ['places that insert into sluice.ledger', times(/\binsert into sluice\.ledger\b/gi)],
    ['places that list the columns of history', times(/\binsert into sluice\.(done|failed)\b/gi)],
    [
      'files with 380 lines or more',
      code
        .filter((file) => lines(file.text).length >= 380)
        .map(({ path }) => path)
        .join(', ') || 'none',
    ],
    ['lines of SQL', linesOf(sql)],
    ['lines of TypeScript', linesOf(code.filter(({ path }) => /^src\/.*\.ts$/.test(path)))],
    ['lines of tests', linesOf(code.filter(({ path }) => path.startsWith('test/')))],
  ]
}

function read(path) {
  return readdirSync(join(root, path), { withFileTypes: true }).flatMap((found) => {
    const at = `${path}/${found.name}`
    if (found.isDirectory()) return found.name === 'node_modules' ? [] : read(at)
    return isCode(at) ? [{ path: at, text: readFileSync(join(root, at), 'utf8') }] : []
  })
}

function isCode(path) {
  return /\.(ts|mts|mjs|sql|lua)$/.test(path) && !path.startsWith('src/generated/')
}

function lines(text) {
  return text.trimEnd().split('\n')
}

function withoutComments(sql) {
  return sql.replaceAll(/--.*/g, '')
}

/** Returns the SQL functions by name with schema; overloads are one entry. */
function functionsOf(sql) {
  const all = new Map()
  for (const part of sql.flatMap(({ text }) => text.split(/(?=^create (?:or replace )?function )/im))) {
    const [head, name] = /^create (?:or replace )?function ((?:sluice|engine)\.\w+)\s*\(/i.exec(part) ?? []
    if (name === undefined) continue
    const before = all.get(name)
    const parameters = parametersOf(withoutComments(part).slice(head.length))
    // Tables and comments may follow its end.
    const [text] = /^[^$]*?(?:\$\$.*?\$\$[^$]*?)?;/s.exec(part) ?? [part]
    all.set(name, {
      name,
      text: (before?.text ?? '') + text,
      parameters: Math.max(parameters, before?.parameters ?? 0),
    })
  }
  for (const one of all.values()) {
    const called = withoutComments(one.text).matchAll(/\b((?:sluice|engine)\.\w+)\s*\(/g)
    one.calls = new Set([...called].map(([, name]) => name).filter((name) => name !== one.name && all.has(name)))
  }
  return all
}

/** Counts the parameters that a caller gives; `text` begins after the opening bracket. */
function parametersOf(text) {
  const parts = ['']
  for (let open = 1, i = 0; open > 0; i++) {
    if ('([{'.includes(text[i])) open++
    if (')]}'.includes(text[i])) open--
    if (text[i] === ',' && open === 1) parts.push('')
    else parts.push(parts.pop() + text[i])
  }
  return parts.filter((part) => part.trim() !== ')' && !/^\s*out\s/i.test(part)).length
}

function reachable(functions, from) {
  const found = new Set([from])
  for (const name of found) for (const called of functions.get(name).calls) found.add(called)
  return [...found]
}

/** Returns the deepest nesting of calls below a function, by way of the functions `above`; a recursive call is not followed. */
function depth(functions, name, above = []) {
  const way = [...above, name]
  const deeper = [...functions.get(name).calls].filter((called) => !way.includes(called))
  return Math.max(0, ...deeper.map((called) => 1 + depth(functions, called, way)))
}

/** Counts the statements that claims start, on connections with warm plan caches. */
async function statementsOfClaims() {
  const { startPostgres } = await import('./postgres.mjs')
  const settings = { shared_preload_libraries: 'pg_stat_statements', 'pg_stat_statements.track': 'all' }
  const server = await startPostgres({ settings }).catch((error) => {
    throw new Error(
      `not measured: PostgreSQL did not start with pg_stat_statements, which is in its contrib (${error.message})`,
    )
  })
  try {
    return await countOn(server)
  } finally {
    await server.close()
  }
}

async function countOn({ url, adminUrl }) {
  const { default: pg } = await import('pg')
  const { limit, newId, Sluice, task } = await import('../dist/index.js')
  const { storeOn } = await import('../dist/db/store.js')
  const admin = new pg.Client(adminUrl)
  await admin.connect()
  await admin.query('create extension pg_stat_statements')
  const sluice = await Sluice.open({ store: url, redis: '' })
  try {
    const store = storeOn(sluice.db)
    const input = { '~standard': { version: 1, vendor: 'census', validate: (value) => ({ value }) } }
    const by = (job) => job.key
    const lone = task('lone', { input, limits: [limit('lone', { rate: '100000/s' })], run() {} })
    const keyed = task('keyed', { input, limits: [limit('keyed', { rate: '100000/s', by })], run() {} })
    await sluice.define([lone, keyed])
    const tasks = ['lone', 'keyed']
    await store.run('tasks/record_tasks', [tasks, ['default', 'default'], [false, false], [null, null], [null, null]])
    const [{ id: worker }] = await store.run('fleet/insert_worker', ['census', 1, '0', null, tasks, 50, {}, null])
    const claim = async (of, want, expected) => {
      const [row] = await store.call('claim_jobs', [newId(), worker, [of], want, null, false, null, false])
      if (row.announced) {
        await store.call('create_announced_classes')
        return claim(of, want, expected)
      }
      const found = JSON.parse(row.jobs ?? '[]').length
      if (found !== expected) throw new Error(`a claim of ${want} ${of} found ${found} jobs, and not ${expected}`)
    }
    const counted = async (of, want, inputs) => {
      if (inputs.length > 0) await sluice.sendMany(of === 'lone' ? lone : keyed, inputs)
      await admin.query('select pg_stat_statements_reset()')
      await claim(of, want, Math.min(want, inputs.length))
      const { rows } = await admin.query(
        `select sum(s.calls)::int as n from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = 'sluice'`,
      )
      return rows[0].n
    }
    const keys = Array.from({ length: 100 }, (_, i) => ({ key: `k${i}` }))
    const measure = async () => [
      await counted('lone', 1, [{}]),
      await counted('keyed', 50, keys),
      await counted('lone', 1, []),
    ]
    await measure()
    const [one, many, none] = await measure()
    return [
      ['statements started in a claim of one lone lane; of 50 over 100 keys; of nothing', `${one}; ${many}; ${none}`],
    ]
  } finally {
    await sluice.close()
    await admin.end()
  }
}
