import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Debian's packages of what tests import. */
const packages = {
  psycopg2: 'python3-psycopg2',
  redis: 'python3-redis',
  celery: 'python3-celery',
  django: 'python3-django',
}
type Module = keyof typeof packages

/**
 * A Python 3 that has these modules: in PATH, in Debian's place, or there after an installation with apt-get (as root on
 * Debian, like PostgreSQL itself). Throws an error that names the missing packages when there is none.
 */
export async function findPython(...modules: Module[]): Promise<string> {
  const found = await python(modules)
  if (found !== undefined) return found
  const names = modules.map((one) => packages[one]).join(' ')
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) {
    await install(names)
    const installed = await python(modules)
    if (installed !== undefined) return installed
  }
  throw new Error(`No Python 3 with ${modules.join(', ')} found. Install it: on Debian \`apt-get install ${names}\`.`)
}

async function python(modules: readonly Module[]): Promise<string | undefined> {
  for (const name of ['python3', '/usr/bin/python3']) {
    const has = await run(name, ['-c', `import ${modules.join(', ')}`]).then(
      () => true,
      () => false,
    )
    if (has) return name
  }
  return undefined
}

async function install(names: string): Promise<void> {
  process.stderr.write(`Installing ${names} with apt-get.\n`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const apt = (...args: string[]) => run('apt-get', args, { env, maxBuffer: 64 * 1024 * 1024 })
  // A failed update may be harmless; another test may hold apt's lock.
  await apt('update').catch(() => {})
  const options = ['-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=300']
  await apt('install', ...options, ...names.split(' ')).catch((error: Error) =>
    process.stderr.write(`apt-get could not install ${names}: ${error.message}\n`),
  )
}
