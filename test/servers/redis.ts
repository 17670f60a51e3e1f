/** A real Redis for tests: private port, temporary directory, nothing on disk, gone with this process. */
import { execFile, fork } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freePort, install, isExecutable } from '../../scripts/postgres.mjs'

/** A Redis of a test's own. */
export interface RedisServer {
  readonly port: number
  readonly url: string
  /** Undefined while it does not run. */
  readonly pid: number | undefined
  /** Starts it again, empty. */
  start(): Promise<void>
  /** Kills it, as a crash does; its data are lost. */
  kill(): Promise<void>
  /** Ends it for good. */
  close(): Promise<void>
}

const watchdog = fileURLToPath(new URL('../../scripts/watchdog.mjs', import.meta.url))
const startMaxMs = 60_000

/** Starts a Redis. `settings` are those of redis.conf. */
export async function startRedis(settings: Record<string, string> = {}): Promise<RedisServer> {
  const base = mkdtempSync(join(tmpdir(), 'sluice-redis-'))
  const port = await freePort()
  const all = {
    bind: '127.0.0.1',
    save: '',
    appendonly: 'no',
    'maxmemory-policy': 'noeviction',
    dir: base,
    ...settings,
  }
  const args = ['--port', String(port), ...Object.entries(all).flatMap(([name, value]) => [`--${name}`, value])]
  return serve(base, port, args)
}

/** Starts a sentinel that watches the master `limits`, and lets a replica take over when it is gone for half a second. */
export async function startSentinel(master: RedisServer): Promise<RedisServer> {
  const base = mkdtempSync(join(tmpdir(), 'sluice-redis-'))
  const port = await freePort()
  const lines = [
    `port ${port}`,
    'bind 127.0.0.1',
    `dir ${base}`,
    `sentinel monitor limits 127.0.0.1 ${master.port} 1`,
    'sentinel down-after-milliseconds limits 500',
    'sentinel failover-timeout limits 5000',
  ]
  const file = join(base, 'sentinel.conf')
  writeFileSync(file, `${lines.join('\n')}\n`)
  return serve(base, port, [file, '--sentinel'])
}

/** Starts three masters, and makes a cluster of them. */
export async function startCluster(): Promise<RedisServer[]> {
  const nodes = await Promise.all(
    [1, 2, 3].map(async () => {
      const own = { 'cluster-enabled': 'yes', 'cluster-node-timeout': '2000', 'cluster-port': String(await freePort()) }
      return startRedis(own)
    }),
  )
  const places = nodes.map(({ port }) => `127.0.0.1:${port}`)
  const cli = join(dirname(await redisBinary()), 'redis-cli')
  const made = await promisify(execFile)(existsSync(cli) ? cli : cli.replace('redis-cli', 'valkey-cli'), [
    '--cluster',
    'create',
    ...places,
    '--cluster-yes',
  ])
  if (!made.stdout.includes('All 16384 slots covered')) throw new Error(`no cluster: ${made.stdout}`)
  return nodes
}

/** Writes a certificate for 127.0.0.1 that nobody but itself vouches for; returns the paths of it and of its key. */
export async function selfSigned(): Promise<{ cert: string; key: string }> {
  const base = mkdtempSync(join(tmpdir(), 'sluice-redis-'))
  const [cert, key] = [join(base, 'cert.pem'), join(base, 'key.pem')]
  const about = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2']
  const how = ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, ...about]
  await promisify(execFile)('openssl', how)
  return { cert, key }
}

async function serve(base: string, port: number, args: readonly string[]): Promise<RedisServer> {
  const file = await redisBinary()
  // A session of its own: signals to our process group must not reach the server before we have ended.
  const child = fork(watchdog, [base], { execArgv: [], detached: true, stdio: 'ignore' })
  child.unref()
  child.channel?.unref()
  let pid: number | undefined
  const state: { ended?: string } = {}
  let isAlive = true
  child.on('message', (told: { pid?: number; exited?: string }) => {
    pid = told.pid
    if (told.exited !== undefined) state.ended = told.exited
  })
  child.once('exit', () => (isAlive = false))
  const log = join(base, 'log')
  const isEnded = () => state.ended !== undefined
  const server: RedisServer = {
    port,
    url: `redis://127.0.0.1:${port}/0`,
    get pid() {
      return pid
    },
    async start() {
      delete state.ended
      child.send({ run: { file, args, cwd: base, log, endSignal: 'SIGKILL' } })
      await until(async () => isEnded() || (pid !== undefined && (await answers(port))))
      if (!isEnded()) return
      const told = existsSync(log) ? readFileSync(log, 'utf8').slice(-2000) : ''
      throw new Error(`Redis did not start (${String(state.ended)}). Its log ends with:\n${told}`)
    },
    async kill() {
      child.send({ signal: 'SIGKILL' })
      await until(() => pid === undefined)
    },
    async close() {
      if (child.connected) child.disconnect()
      await until(() => !isAlive)
    },
  }
  try {
    await server.start()
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const startMs = performance.now()
  while (!(await isTrue())) {
    if (performance.now() - startMs > startMaxMs) throw new Error(`Redis did not do so within ${startMaxMs} ms.`)
    await sleep(5)
  }
}

/** True when it answers a PING. */
function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('PING\r\n'))
    socket.setTimeout(1_000, () => socket.destroy())
    socket.once('data', (reply) => {
      resolve(reply.toString().startsWith('+PONG'))
      socket.destroy()
    })
    socket.once('error', () => resolve(false))
    socket.once('close', () => resolve(false))
  })
}

/** `SLUICE_TEST_REDIS_SERVER` (a Valkey, for example), else in PATH, or there after an installation of Debian's package. */
async function redisBinary(): Promise<string> {
  const named = process.env['SLUICE_TEST_REDIS_SERVER']
  if (named !== undefined && named !== '') return named
  const places = (process.env['PATH'] ?? '').split(delimiter).filter((place) => place !== '')
  const find = () =>
    ['redis-server', 'valkey-server'].flatMap((name) => places.map((place) => join(place, name))).find(isExecutable)
  const found = find()
  if (found !== undefined) return found
  if (process.getuid?.() === 0 && existsSync('/etc/debian_version')) await install('redis-server')
  const installed = find()
  if (installed !== undefined) return installed
  throw new Error('No redis-server found in PATH. Install Redis or Valkey (Debian: apt-get install redis-server).')
}
