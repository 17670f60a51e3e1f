// Writes dist/*.js: the modules of src/, and those of small packages, in few files, since Node needs most of a command's start to
// find and link 350 of them.
// What is shared by entries is in chunks/, as deep below dist/ as every module of src/ is below src/, so that a path relative to
// a module leads to the same file from either place.
import { chmodSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
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
  'fleet/heartbeat-thread',
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
  'testing/window',
]

// Packages that every command loads, and nobody else can meet: their files would take a fifth of its start. Others stay what a
// program's other code may have loaded, or replaced, as tracing replaces pg.
const inside = ['commander', 'croner', 'ipaddr.js', 'uuid']

const bundle = await rolldown({
  cwd: root,
  input: Object.fromEntries(entries.map((name) => [name, `./src/${name}.ts`])),
  platform: 'node',
  external: (id) => !/^[./]/.test(id) && !inside.includes(id),
})
const { output } = await bundle.write({
  dir: dist,
  format: 'esm',
  sourcemap: true,
  chunkFileNames: 'chunks/[name]-[hash].js',
})
await bundle.close()
// npm does this only when it installs the package, and a project links to a checkout that is built again.
chmodSync(join(dist, 'cli', 'main.js'), 0o755)
writeFileSync(join(dist, 'licences.txt'), inside.map(licence).join('\n'))
// Last, because a program may be loading the old files meanwhile.
const written = new Set(output.map(({ fileName }) => fileName))
for (const name of readdirSync(dist, { recursive: true })) {
  if (/\.js(\.map)?$/.test(name) && !written.has(name.replace(/\.map$/, '').replaceAll('\\', '/')))
    rmSync(join(dist, name))
}

// Where an optional package is not installed, its types are unknown, which is no error of the program that compiles.
const { peerDependencies } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const fromPeer = new RegExp(`^import .* from '(?:${Object.keys(peerDependencies).join('|')})';$`, 'gm')
for (const name of readdirSync(dist, { recursive: true }).filter((each) => each.endsWith('.d.ts'))) {
  const text = readFileSync(join(dist, name), 'utf8')
  const mended = text.replaceAll(fromPeer, '// @ts-ignore: an optional package\n$&')
  if (mended !== text) writeFileSync(join(dist, name), mended)
}

/** The licence of a package, which demands to be passed on with it. */
function licence(name) {
  const folder = join(root, 'node_modules', name)
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each))
  if (file === undefined) throw new Error(`${name} has no licence`)
  return `${name}\n\n${readFileSync(join(folder, file), 'utf8')}`
}
