// Makes a checkout runnable: installs the packages of the lockfile if they are not there yet, then builds.
// Every README command runs this, so that a fresh machine needs only Node and npm.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const [major, minor] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`sluice needs Node 20.19 or later; this is ${process.version}`)
  process.exit(3)
}

const stamp = join(root, 'node_modules', '.sluice-lock')
const lockHash = createHash('sha256')
  .update(readFileSync(join(root, 'package-lock.json')))
  .digest('hex')
if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== lockHash) {
  execFileSync('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: root, stdio: ['ignore', 2, 2] })
  writeFileSync(stamp, lockHash)
}

const built = join(root, 'dist', 'index.js')
if (!existsSync(built) || newest(join(root, 'src')) > statSync(built).mtimeMs) {
  execFileSync(process.execPath, [join(root, 'scripts', 'embed.mjs')], { cwd: root, stdio: ['ignore', 2, 2] })
  execFileSync(join(root, 'node_modules', '.bin', 'tsc'), ['-p', 'tsconfig.build.json'], {
    cwd: root,
    stdio: ['ignore', 2, 2],
  })
  execFileSync(process.execPath, [join(root, 'scripts', 'bundle.mjs')], { cwd: root, stdio: ['ignore', 2, 2] })
}
execFileSync(process.execPath, [join(root, 'scripts', 'template.mjs')], { cwd: root, stdio: ['ignore', 2, 2] })

/** The latest modification time, in ms, of any file below a folder. */
function newest(dir) {
  let latest = 0
  for (const entry of readdirSync(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name)
    latest = Math.max(latest, entry.isDirectory() ? newest(path) : statSync(path).mtimeMs)
  }
  return latest
}
