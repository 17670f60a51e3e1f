// A real PostgreSQL for tests and benchmarks: private port, temporary directory, durable settings; it ends with the process that
// started it. The functions are documented in postgres.d.mts.
import { execFile, fork } from 'node:child_process'
import { randomInt } from 'node:crypto'
import {
  accessSync,
  chownSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import pg from 'pg'

const run = promisify(execFile)
const watchdog = fileURLToPath(new URL('watchdog.mjs', import.meta.url))
const signals = { smart: 'SIGTERM', fast: 'SIGINT', immediate: 'SIGQUIT' }
const startMaxMs = 60_000
const compose =
  `echo 'services: {postgres: {image: "postgres:17", ports: ["127.0.0.1:5432:5432"], ` +
  `environment: {POSTGRES_HOST_AUTH_METHOD: trust}}}' | docker compose -f - up -d --wait`

export async function openPostgres(options) {
  const given = process.env.SLUICE_TEST_DATABASE_URL
  return given ? { url: given, adminUrl: given, close: async () => {} } : await startPostgres(options)
}

export async function startPostgres({ settings = {}, dir } = {}) {
  const bin = await findBinaries()
  const owner = await serverUser()
  const base = mkdtempSync(join(tmpdir(), 'sluice-postgres-'))
  const data = dir ?? join(base, 'data')
  const isNew = !existsSync(join(data, 'PG_VERSION'))
  const child = keep(base)
  try {
    if (isNew) mkdirSync(data, { recursive: true, mode: 0o700 })
    if (owner.uid !== undefined) for (const path of [base, data]) chownSync(path, owner.uid, owner.gid)
    if (isNew) await initialise(bin, data, owner)
    const port = await freePort()
    const file = join(bin, 'postgres')
    const args = serverArguments({ data, port, base, settings })
    const log = join(base, 'log')
    const server = serve(child, { file, args, cwd: base, log, endSignal: signals.immediate, ...owner }, data)
    await server.start()
    const at = (role, database) => `postgresql://${role}@127.0.0.1:${port}/${database}`
    const urls = { url: at('sluice', 'sluice'), adminUrl: at('postgres', 'postgres') }
    if (isNew) await createRole(urls.adminUrl)
    return Object.defineProperties(server, Object.getOwnPropertyDescriptors({ ...urls, port, dir: data }))
  } catch (error) {
    child.disconnect()
    throw error
  }
}

export async function freePort() {
  for (let tries = 0; tries < 100; tries++) {
    const port = randomInt(20_000, 32_000)
    const free = await new Promise((resolve) => {
      const server = createServer()
      server.once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
    })
    if (free) return port
  }
  throw new Error('No free port between 20000 and 32000 on 127.0.0.1 in 100 tries: end some servers.')
}

/** Forks the watchdog that owns `base`. It has a channel to this process, and does not keep it alive. */
function keep(base) {
  // Detached, so that Ctrl-C and signals to this process group do not reach the server before this process has ended.
  const child = fork(watchdog, [base], { execArgv: [], detached: true, stdio: 'ignore' })
  child.unref()
  child.channel.unref()
  return child
}

/** Returns the methods of one server that the watchdog `child` runs. */
function serve(child, command, data) {
  let pid
  let ended = 'not started'
  let isAlive = true
  child.on('message', (message) => {
    pid = message.pid
    ended = message.exited
  })
  child.once('exit', () => {
    isAlive = false
    pid = undefined
    ended ??= 'the watchdog ended'
  })
  const log = () => (existsSync(command.log) ? readFileSync(command.log, 'utf8').slice(-2000) : '')
  return {
    get pid() {
      return pid
    },
    async start() {
      if (!isAlive) throw new Error('This PostgreSQL was closed: start another with startPostgres().')
      if (pid !== undefined) return
      ended = undefined
      child.send({ run: command })
      await until(
        () => ended !== undefined || (pid !== undefined && isReady(data, pid)),
        startMaxMs,
        () => log(),
      )
      if (ended !== undefined) throw new Error(`PostgreSQL did not start (${ended}). Its log ends with:\n${log()}`)
    },
    async stop(mode = 'fast') {
      if (pid === undefined) return
      child.send({ signal: signals[mode] })
      await until(
        () => pid === undefined,
        startMaxMs,
        () => `stop('${mode}') did not end PostgreSQL.\n${log()}`,
      )
    },
    async close() {
      if (child.connected) child.disconnect()
      await until(
        () => !isAlive,
        startMaxMs,
        () => 'The watchdog of PostgreSQL did not end.',
      )
    },
  }
}

/** Returns whether the postmaster `pid` has written that it accepts connections (a standby: to read), which pg_ctl checks, too. */
function isReady(data, pid) {
  try {
    const lines = readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')
    return Number(lines[0]) === pid && ['ready', 'standby'].includes(lines[7]?.trim())
  } catch (error) {
    if (error.code === 'ENOENT') return false
    throw error
  }
}

async function until(isTrue, limitMs, explain) {
  const startMs = performance.now()
  while (!isTrue()) {
    if (performance.now() - startMs > limitMs) throw new Error(`Not within ${limitMs} ms. ${explain()}`)
    await sleep(5)
  }
}

async function initialise(bin, data, owner) {
  // Only initdb runs without fsync; the server itself is durable.
  const args = ['--no-sync', '--auth=trust', '--username=postgres', '--encoding=UTF8', '--locale=C', '--pgdata', data]
  await run(join(bin, 'initdb'), args, { ...owner, cwd: data })
}

function serverArguments({ data, port, base, settings }) {
  const all = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: base,
    fsync: 'on',
    synchronous_commit: 'on',
    max_connections: 400,
    ...settings,
  }
  return ['-D', data, ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])]
}

/** Creates the ordinary role and its database, because most tests, like users, do not run as superuser. */
async function createRole(adminUrl) {
  const client = new pg.Client(adminUrl)
  await client.connect()
  try {
    await client.query('CREATE ROLE sluice LOGIN')
    await client.query('CREATE DATABASE sluice OWNER sluice')
  } finally {
    await client.end()
  }
}

/** Returns the user for servers. PostgreSQL does not run as root, so for root it is `postgres`, or `nobody` if that is missing. */
export async function serverUser() {
  if (process.getuid?.() !== 0) return {}
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all(['-u', '-g'].map((flag) => run('id', [flag, name])))
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
    } catch {
      // No such user: the next name.
    }
  }
  throw new Error('PostgreSQL does not run as root, and there is no user postgres or nobody: run as another user.')
}

/** Finds the folder of `postgres` and `initdb`: in PATH, in Debian's place, or there after installing the package. */
async function findBinaries() {
  const found = binaries()
  if (found) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) {
    await install()
    const installed = binaries()
    if (installed) return installed
  }
  throw new Error(
    'No PostgreSQL found (postgres and initdb, in PATH or /usr/lib/postgresql). Install it, or start one with\n' +
      `  ${compose}\nand set SLUICE_TEST_DATABASE_URL=postgresql://postgres@127.0.0.1:5432/postgres; tests that stop ` +
      'and kill servers still need the binaries.',
  )
}

function binaries() {
  const debian = '/usr/lib/postgresql'
  const versions = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : []
  const places = [
    ...(process.env.PATH ?? '').split(delimiter),
    ...versions.map((version) => join(debian, version, 'bin')),
  ]
  return places.find((place) => place && ['postgres', 'initdb'].every((name) => isExecutable(join(place, name))))
}

export function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

export async function install(name = 'postgresql') {
  process.stderr.write(`No ${name} found: installing it with apt-get.\n`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const apt = (...args) => run('apt-get', args, { env, maxBuffer: 64 * 1024 * 1024 })
  // Two test processes may install at once: one waits for the other's lock. A failed update may be harmless.
  await apt('update').catch(() => {})
  await apt('install', '-y', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=300', name).catch((error) => {
    process.stderr.write(`apt-get could not install ${name}: ${error.stderr || error.message}\n`)
  })
}
