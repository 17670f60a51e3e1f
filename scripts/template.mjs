// Makes dist/template.tar.gz, a new database as initdb leaves it, and one with this release's schema, so that an embedded store need
// not run initdb and the migrations (src/db/template.ts). They are made anew only when PGlite's version, the schema or this file
// changes.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gunzipSync, gzipSync } from 'node:zlib'
import { PGlite } from '@electric-sql/pglite'
import { migrateTemplate } from '../dist/db/migrate.js'
import { migratedTemplate } from '../dist/db/template.js'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const file = join(dist, 'template.tar.gz')
const migrated = join(dist, migratedTemplate)
const stamp = join(dist, 'template.version')
const main = createRequire(import.meta.url).resolve('@electric-sql/pglite')
const { version } = JSON.parse(readFileSync(join(dirname(main), '..', 'package.json'), 'utf8'))
const origin = `${version} ${createHash('sha256')
  .update(readFileSync(fileURLToPath(import.meta.url)))
  .digest('hex')}`

const isNew = !existsSync(file) || !existsSync(stamp) || readFileSync(stamp, 'utf8') !== origin
if (isNew) {
  await make(file, {}, dropOtherDatabases)
}
if (isNew || !existsSync(migrated)) {
  for (const name of readdirSync(dist)) if (name.startsWith('template-')) rmSync(join(dist, name))
  await make(migrated, { loadDataDir: new Blob([gunzipSync(readFileSync(file))]) }, (pglite) =>
    pglite.transaction((tx) =>
      migrateTemplate({
        query: async (sql, values) => (await tx.query(sql, values)).rows,
        script: (sql) => tx.exec(sql),
      }),
    ),
  )
}
// Last, so that an interrupted run is repeated.
if (isNew) writeFileSync(stamp, origin)

/**
 * Drops what new databases are copied from: the embedded engine creates none. They are two thirds of the files, and nothing would
 * ever freeze their rows, so PostgreSQL would refuse work when the store's transactions are 2,100 million ahead of them.
 */
async function dropOtherDatabases(pglite) {
  await pglite.exec('update pg_database set datistemplate = false, datallowconn = true')
  for (const name of ['template0', 'template1']) await pglite.exec(`drop database ${name}`)
}

/** Writes the files of a database after `fill`. */
async function make(to, options, fill) {
  const exitCode = process.exitCode
  // The log of what led to this state is no part of a new database.
  const startParams = [...PGlite.defaultStartParams, '-c', 'wal_recycle=off', '-c', 'min_wal_size=32MB']
  const pglite = await PGlite.create({ ...options, startParams })
  await fill(pglite)
  await pglite.exec('select pg_switch_wal()')
  await pglite.exec('checkpoint')
  const tar = Buffer.from(await (await pglite.dumpDataDir('none')).arrayBuffer())
  await pglite.close()
  // PGlite's runtime sets the exit code of the whole process when it ends.
  process.exitCode = exitCode
  // Renamed when complete, so that an interrupted run leaves no partial file.
  writeFileSync(`${to}.new`, gzipSync(tar))
  renameSync(`${to}.new`, to)
}
