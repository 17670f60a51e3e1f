// Makes dist/template.tar.gz: a new database as initdb leaves it, so that an embedded store need not run initdb
// (src/db/template.ts). It is rebuilt only when PGlite's version changes.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { PGlite } from '@electric-sql/pglite'

const dist = fileURLToPath(new URL('../dist', import.meta.url))
const file = join(dist, 'template.tar.gz')
const stamp = join(dist, 'template.version')
const main = createRequire(import.meta.url).resolve('@electric-sql/pglite')
const { version } = JSON.parse(readFileSync(join(dirname(main), '..', 'package.json'), 'utf8'))

if (!existsSync(file) || !existsSync(stamp) || readFileSync(stamp, 'utf8') !== version) {
  const exitCode = process.exitCode
  const pglite = await PGlite.create()
  await pglite.exec('checkpoint')
  const tar = Buffer.from(await (await pglite.dumpDataDir('none')).arrayBuffer())
  await pglite.close()
  // PGlite's runtime sets the exit code of the whole process when it ends.
  process.exitCode = exitCode
  // Renamed when complete, so that an interrupted run leaves no partial file.
  writeFileSync(`${file}.new`, gzipSync(tar))
  renameSync(`${file}.new`, file)
  writeFileSync(stamp, version)
}
