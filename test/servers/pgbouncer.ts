import { fork } from 'node:child_process'
import { accessSync, chownSync, constants, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort, install, serverUser } from '../../scripts/postgres.mjs'
import { until } from '../until.ts'

/** A pgbouncer in transaction mode, before one database. */
export interface Pgbouncer {
  /** The database, through it. */
  url: string
  /** Ends it. It ends with this process in any case. */
  close(): Promise<void>
}

const watchdog = fileURLToPath(new URL('../../scripts/watchdog.mjs', import.meta.url))

/** Starts a pgbouncer before the database of this URL, with a few connections that all its clients share. */
export async function startPgbouncer(target: string, poolSize = 4): Promise<Pgbouncer> {
  const file = await binary()
  const owner = await serverUser()
  const base = mkdtempSync(join(tmpdir(), 'sluice-pgbouncer-'))
  const port = await freePort()
  const { hostname, port: serverPort, username, password, pathname } = new URL(target)
  const login = `user=${decodeURIComponent(username)}${password === '' ? '' : ` password=${decodeURIComponent(password)}`}`
  const settings = {
    listen_addr: '127.0.0.1',
    listen_port: port,
    unix_socket_dir: '',
    auth_type: 'any',
    pool_mode: 'transaction',
    default_pool_size: poolSize,
    max_client_conn: 200,
  }
  const config = join(base, 'pgbouncer.ini')
  writeFileSync(
    config,
    `[databases]\n* = host=${hostname} port=${serverPort || '5432'} ${login}\n[pgbouncer]\n${Object.entries(settings)
      .map(([name, value]) => `${name} = ${value}\n`)
      .join('')}`,
  )
  if (owner.uid !== undefined) for (const path of [base, config]) chownSync(path, owner.uid, owner.gid ?? owner.uid)
  const child = fork(watchdog, [base], { execArgv: [], detached: true, stdio: 'ignore' })
  child.unref()
  child.channel?.unref()
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  const log = join(base, 'log')
  child.send({ run: { file, args: [config], cwd: base, log, endSignal: 'SIGKILL', ...owner } })
  await until(() => answers(port), 'pgbouncer answers').catch((error: unknown) => {
    const text = existsSync(log) ? readFileSync(log, 'utf8').slice(-2_000) : ''
    child.disconnect()
    throw new Error(`pgbouncer did not start. Its log ends with:\n${text}`, { cause: error })
  })
  return {
    url: `postgresql://anybody@127.0.0.1:${port}${pathname}`,
    async close() {
      child.disconnect()
      await ended
    },
  }
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    }).once('error', () => resolve(false))
  })
}

/** In PATH or Debian's place, or there after an installation. */
async function binary(): Promise<string> {
  const found = find()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) await install('pgbouncer')
  const installed = find()
  if (installed !== undefined) return installed
  throw new Error(
    'No pgbouncer found, in PATH or /usr/sbin. Install it, with `apt-get install pgbouncer` or as your system does; ' +
      'its test needs the binary, since it leads to a server that is private to the run.',
  )
}

function find(): string | undefined {
  return [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin']
    .map((place) => join(place, 'pgbouncer'))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
}
