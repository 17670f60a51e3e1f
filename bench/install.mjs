// Installs the peers into bench/node_modules, from bench/package-lock.json. They are no dependency of Sluice.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))

/** Installs once for each lockfile; ends the process with a message if that fails. */
export function install() {
  const stamp = `${here}node_modules/.sluice-lock`
  const hash = createHash('sha256')
    .update(readFileSync(`${here}package-lock.json`))
    .digest('hex')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return
  process.stderr.write('Installing the peers into bench/node_modules (npm ci).\n')
  try {
    // graphile-worker and pg-boss require Node 22 but run on 20. Install scripts are skipped, because all are optional.
    const args = ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
    execFileSync('npm', args, { cwd: here, stdio: ['ignore', 2, 2] })
  } catch (error) {
    console.error(
      `The peers could not be installed: ${error.message}\n` +
        'They come from the npm registry, so this needs a network, or a cache that has them. Try again with\n' +
        '  cd bench && npm ci --ignore-scripts',
    )
    process.exit(3)
  }
  writeFileSync(stamp, hash)
}
