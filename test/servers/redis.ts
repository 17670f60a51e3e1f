/** A real Redis for tests: private port, temporary directory, nothing on disk, gone with this process. */
import { execFile } from 'node:child_process'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { freePort, install, isExecutable } from '../../scripts/postgres.mjs'
import { atEnd } from '../ends.ts'
import { serve, type Server } from './program.ts'
import { connectRedis, type Connection } from './resp.ts'

/** A Redis of a test's own. It starts empty each time. */
export type RedisServer = Server

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
  return serveRedis(base, port, args)
}

/** A Redis for the tests of one file, with a connection to it; both end with the file. */
export async function freshRedis(): Promise<{ server: RedisServer; client: Connection }> {
  const server = await startRedis()
  const client = await connectRedis(server.port)
  atEnd(async () => {
    client.close()
    await server.close()
  })
  return { server, client }
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
  return serveRedis(base, port, [file, '--sentinel'])
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
  const command = existsSync(cli) ? cli : cli.replace('redis-cli', 'valkey-cli')
  // It waits without end for nodes that do not find each other.
  const made = await promisify(execFile)(command, ['--cluster', 'create', ...places, '--cluster-yes'], {
    timeout: 60_000,
  })
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

async function serveRedis(base: string, port: number, args: readonly string[]): Promise<RedisServer> {
  const file = await redisBinary()
  const url = `redis://127.0.0.1:${port}/0`
  return serve({ name: 'Redis', file, args, base, port, url, isReady: () => answers(port) })
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
