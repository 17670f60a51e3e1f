import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { promisify } from 'node:util'

const run = promisify(execFile)

/**
 * A Python 3 that has psycopg2: in PATH, in Debian's place, or there after an installation with apt-get (as root on
 * Debian, like PostgreSQL itself). Throws, saying what to install, when there is none.
 */
export async function findPython(): Promise<string> {
  const found = await python()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) {
    await install()
    const installed = await python()
    if (installed !== undefined) return installed
  }
  throw new Error('No Python 3 with psycopg2 found. Install it: on Debian `apt-get install python3-psycopg2`.')
}

async function python(): Promise<string | undefined> {
  for (const name of ['python3', '/usr/bin/python3']) {
    const has = await run(name, ['-c', 'import psycopg2']).then(
      () => true,
      () => false,
    )
    if (has) return name
  }
  return undefined
}

async function install(): Promise<void> {
  process.stderr.write('No psycopg2 found: installing python3-psycopg2 with apt-get.\n')
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const apt = (...args: string[]) => run('apt-get', args, { env, maxBuffer: 64 * 1024 * 1024 })
  // A failed update need not matter; another test may hold apt's lock.
  await apt('update').catch(() => {})
  await apt('install', '-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=300', 'python3-psycopg2').catch(
    (error: Error) => process.stderr.write(`apt-get could not install python3-psycopg2: ${error.message}\n`),
  )
}
