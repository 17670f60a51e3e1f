import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestProject } from 'vitest/node'
import { openPostgres } from './postgres.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where test files ask for the run's one PostgreSQL; the first to ask has it started. */
    postgresDoor: string
  }
}

/**
 * Vitest's global set-up: one PostgreSQL for the whole run, started when the first test file asks for a database, so
 * that a run of pure tests does not pay for it.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let server: ReturnType<typeof openPostgres> | undefined
  const door = createServer((_request, response) => {
    server ??= openPostgres()
    server.then(
      ({ url, adminUrl }) => response.end(JSON.stringify({ url, adminUrl })),
      (error: unknown) => response.writeHead(500).end(error instanceof Error ? error.message : String(error)),
    )
  })
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve))
  project.provide('postgresDoor', `http://127.0.0.1:${(door.address() as AddressInfo).port}`)
  return async () => {
    door.close()
    await (await server?.catch(() => undefined))?.close()
  }
}
