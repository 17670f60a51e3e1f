// Installs the peers into bench/node_modules, as bench/package-lock.json says. They are no dependency of Sluice.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))

/** Once for each lockfile; ends the process with a message when it cannot. */
export function install() {
  const stamp = `${here}node_modules/.sluice-lock`
  const hash = createHash('sha256')
    .update(readFileSync(`${here}package-lock.json`))
    .digest('hex')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === hash) return
  process.stderr.write('Installing the peers into bench/node_modules (npm ci).\n')
  try {
    // graphile-worker and pg-boss declare Node 22 and run on 20 all the same. No install scripts: all are optional.
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
