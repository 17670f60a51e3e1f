// Writes dist/*.js: the modules of src/ in few files, since Node needs most of a command's start to find and link 350 of them.
// What is shared by entries is in chunks/, as deep below dist/ as every module of src/ is below src/, so that a path relative to
// a module leads to the same file from either place.
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('..', import.meta.url))
const dist = join(root, 'dist')
const entries = [
  // What package.json exports.
  'index',
  'celery/index',
  'testing/index',
  'cli/main',
  // Programs and threads that these start.
  'fleet/pulse',
  'testing/serve',
  'worker/thread',
  // What the benchmarks, the census and scripts/template.mjs load by themselves.
  'amqp/broker',
  'core/log',
  'core/version',
  'db/migrate',
  'db/store',
  'db/template',
  'redis/limiter',
  'testing/vendor',
]

const bundle = await rolldown({
  cwd: root,
  input: Object.fromEntries(entries.map((name) => [name, `./src/${name}.ts`])),
  platform: 'node',
  external: (id) => !/^[./]/.test(id),
})
const { output } = await bundle.write({
  dir: dist,
  format: 'esm',
  sourcemap: true,
  chunkFileNames: 'chunks/[name]-[hash].js',
})
await bundle.close()
// Last, because a program may be loading the old files meanwhile.
const written = new Set(output.map(({ fileName }) => fileName))
for (const name of readdirSync(dist, { recursive: true })) {
  if (/\.js(\.map)?$/.test(name) && !written.has(name.replace(/\.map$/, '').replaceAll('\\', '/')))
    rmSync(join(dist, name))
}
