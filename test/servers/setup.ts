import { randomUUID } from 'node:crypto'
import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { openPostgres, type PostgresUrls } from './postgres.ts'
import { openRabbit } from './rabbitmq.ts'
import { createDatabase, dropDatabase, type RunUrls } from './template.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** The URL at which test files request the run's one PostgreSQL or RabbitMQ; the first request starts it. */
    serverDoor: string
  }
}

/** A database with this release's schema, to be copied: to make the schema anew takes four times as long. */
async function migrated({ url, adminUrl }: PostgresUrls): Promise<RunUrls> {
  const name = `template_${randomUUID().replaceAll('-', '')}`
  const { Sluice } = await import('../../src/sluice.ts')
  const { url: store } = await createDatabase({ url, adminUrl }, name, 'template0')
  await (await Sluice.open({ store })).close()
  return { url, adminUrl, template: name }
}

/** Below this much free memory temporary directories stay on the disk. */
const roomyBytes = 6 * 2 ** 30
const memory = '/dev/shm'

/**
 * Has this process and its children put temporary directories into memory, where there is enough: the servers of a run create
 * and delete many small files. A server that is killed finds there what it wrote, as on a disk. Returns the clean-up.
 */
function moveTemporaryFiles(): () => void {
  const { TMPDIR } = process.env
  if (TMPDIR !== undefined || !existsSync(memory)) return () => {}
  const { bavail, bsize } = statfsSync(memory)
  if (bavail * bsize < roomyBytes) return () => {}
  const folder = mkdtempSync(join(memory, 'sluice-tests-'))
  // Servers have a user of their own.
  chmodSync(folder, 0o1777)
  process.env['TMPDIR'] = folder
  return () => {
    delete process.env['TMPDIR']
    rmSync(folder, { recursive: true, force: true })
  }
}

/**
 * Of the run's server, which no test kills: the plans of short statements on small tables are not compiled, and no page is logged
 * twice. Doctor would complain of less than that.
 */
const settings = { jit: 'off', full_page_writes: 'off' }

/** The servers of a run, and the door at which test files request them. */
interface Servers {
  door: string
  close(): Promise<void>
}

async function openServers(): Promise<Servers> {
  let server: ReturnType<typeof openPostgres> | undefined
  let urls: Promise<RunUrls> | undefined
  let rabbit: ReturnType<typeof openRabbit> | undefined
  const request = (path: string | undefined): Promise<unknown> => {
    if (path === '/rabbitmq') return (rabbit ??= openRabbit()).then(({ node }) => node)
    server ??= openPostgres({ settings })
    return (urls ??= server.then(migrated))
  }
  const door = createServer(({ url }, response) => {
    request(url).then(
      (answer) => response.end(JSON.stringify(answer)),
      (error: unknown) => response.writeHead(500).end(error instanceof Error ? error.message : String(error)),
    )
  })
  const cleanUp = moveTemporaryFiles()
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve))
  const close = async () => {
    door.close()
    try {
      await urls?.then(({ adminUrl, template }) => dropDatabase(adminUrl, template)).catch(() => {})
      await (await server?.catch(() => undefined))?.close()
      await (await rabbit?.catch(() => undefined))?.close()
    } finally {
      cleanUp()
    }
  }
  return { door: `http://127.0.0.1:${(door.address() as AddressInfo).port}`, close }
}

/** Each project of the run loads this module anew. */
const run = globalThis as { [key: symbol]: { servers: Promise<Servers>; users: number } | undefined }
const key = Symbol.for('sluice.test.servers')

/**
 * Vitest's global set-up: one PostgreSQL and one RabbitMQ for the whole run, each started when the first test file requests
 * it, so that a run of pure tests does not pay for it.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const opened = (run[key] ??= { servers: openServers(), users: 0 })
  opened.users++
  const { door, close } = await opened.servers
  project.provide('serverDoor', door)
  return async () => {
    if (--opened.users > 0) return
    run[key] = undefined
    await close()
  }
}
