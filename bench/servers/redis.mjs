// Redis in memory, or with its append-only file flushed every second; it is emptied for each sample.
import { Redis } from 'ioredis'
import { freePort } from '../../scripts/postgres.mjs'
import { directory, program, serve } from './process.mjs'

/** Starts Redis; `mode` is memory or aof. */
export async function start({ redis: mode }) {
  const file = await program('redis-server', 'redis-server')
  const base = directory('redis')
  const port = await freePort()
  const persistence = mode === 'aof' ? ['--appendonly', 'yes', '--appendfsync', 'everysec'] : ['--appendonly', 'no']
  const args = ['--port', String(port), '--bind', '127.0.0.1', '--dir', base, '--save', '', ...persistence]
  const server = await serve({ file, args: [...args, '--maxmemory-policy', 'noeviction'], base, port })
  const client = new Redis(port, '127.0.0.1')
  const version = /redis_version:(\S+)/.exec(await client.info('server'))[1]
  return {
    pid: server.pid,
    about: `Redis ${version}, ${mode === 'aof' ? 'appendfsync everysec' : 'no persistence'}`,
    async place() {
      await client.flushall()
      return { url: `redis://127.0.0.1:${port}/0`, remove: () => client.flushall() }
    },
    async close() {
      client.disconnect()
      await server.close()
    },
  }
}
