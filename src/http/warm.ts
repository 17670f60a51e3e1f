/**
 * Prepares a cold process for its first call: the HTTP client compiles its parser at the first request, which takes
 * longer than the life of a grant.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Agent } from 'undici'
import { loadClient } from './client.ts'

let warming: Promise<void> | undefined

/**
 * Makes one request to an own server on loopback, once per process. A failure is harmless: then the first call is slow.
 */
export function warmClient(agent: Agent): Promise<void> {
  warming ??= request(agent).catch(() => {})
  return warming
}

async function request(agent: Agent): Promise<void> {
  const server = createServer((_request, response) => void response.end())
  try {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    await (
      await loadClient().fetch(`http://127.0.0.1:${port}/`, {
        method: 'POST',
        body: '{}',
        dispatcher: agent,
        headers: { connection: 'close' },
      })
    ).text()
  } finally {
    server.close()
  }
}
