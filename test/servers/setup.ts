import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
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

/**
 * Vitest's global set-up: one PostgreSQL and one RabbitMQ for the whole run, each started when the first test file requests
 * it, so that a run of pure tests does not pay for it.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let server: ReturnType<typeof openPostgres> | undefined
  let urls: Promise<RunUrls> | undefined
  let rabbit: ReturnType<typeof openRabbit> | undefined
  const request = (path: string | undefined): Promise<unknown> => {
    if (path === '/rabbitmq') return (rabbit ??= openRabbit()).then(({ node }) => node)
    server ??= openPostgres()
    return (urls ??= server.then(migrated))
  }
  const door = createServer(({ url }, response) => {
    request(url).then(
      (answer) => response.end(JSON.stringify(answer)),
      (error: unknown) => response.writeHead(500).end(error instanceof Error ? error.message : String(error)),
    )
  })
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve))
  project.provide('serverDoor', `http://127.0.0.1:${(door.address() as AddressInfo).port}`)
  return async () => {
    door.close()
    await urls?.then(({ adminUrl, template }) => dropDatabase(adminUrl, template)).catch(() => {})
    await (await server?.catch(() => undefined))?.close()
    await (await rabbit?.catch(() => undefined))?.close()
  }
}
