import { fork } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { until } from '../until.ts'
import { emptyDatabase } from './database.ts'
import { startPostgres } from './postgres.ts'

describe('startPostgres', () => {
  it('keeps committed rows through a crash, on the same port', async () => {
    const server = await startPostgres()
    await query(server.url, 'CREATE TABLE kept AS SELECT 42 AS answer')
    const first = server.pid
    await server.stop('immediate')
    expect(server.pid).toBeUndefined()
    expect(isRunning(first)).toBe(false)
    await expect(query(server.url, 'SELECT 1')).rejects.toThrow('ECONNREFUSED')

    await server.start()
    expect(server.pid).not.toBe(first)
    expect(await query(server.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }])

    const { pid, dir } = server
    await server.close()
    expect(isRunning(pid)).toBe(false)
    expect(existsSync(dir)).toBe(false)
    await expect(server.start()).rejects.toThrow('startPostgres()')
  })

  it('starts a durable server unless a setting overrides that, with an ordinary role', async () => {
    const server = await startPostgres({ settings: { max_connections: 7 } })
    const [settings] = await query(
      server.url,
      `SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit,
        current_setting('max_connections') AS connections, current_setting('is_superuser') AS superuser`,
    )
    expect(settings).toEqual({ fsync: 'on', commit: 'on', connections: '7', superuser: 'off' })
    await server.stop()
    await server.close()
  })

  it('reports why a server did not start', async () => {
    await expect(startPostgres({ settings: { fsync: 'perhaps' } })).rejects.toThrow(
      /did not start .*"fsync" requires a Boolean/s,
    )
  })

  it.each(['SIGKILL', 'SIGTERM', 'exit'] as const)('leaves nothing behind when its owner ends by %s', async (how) => {
    const owner = fork(fileURLToPath(new URL('owner.mjs', import.meta.url)), { execArgv: [] })
    const [server] = (await once(owner, 'message')) as [{ pid: number; dir: string; url: string }]
    expect(await query(server.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }])
    if (how === 'exit') owner.send('end')
    else owner.kill(how)
    await until(() => !isRunning(server.pid) && !existsSync(server.dir))
  })
})

describe('emptyDatabase', () => {
  it('gives every caller an empty database of its own', async () => {
    const [a, b] = await Promise.all([emptyDatabase(), emptyDatabase()])
    await query(a.url, 'CREATE TABLE mine AS SELECT 1 AS one')
    expect(await query(b.url, `SELECT to_regclass('mine') AS found`)).toEqual([{ found: null }])
    await Promise.all([a.drop(), b.drop()])
    await expect(query(a.url, 'SELECT 1')).rejects.toThrow('does not exist')
  })
})

async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url)
  try {
    await client.connect()
    return (await client.query<Record<string, unknown>>(sql)).rows
  } finally {
    await client.end()
  }
}

function isRunning(pid: number | undefined): boolean {
  if (pid === undefined) throw new Error('no pid to look for')
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
