/** Makes a cold process ready to call: the HTTP client compiles its parser at its first request, which outlasts a grant. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Agent, fetch } from 'undici'

let warming: Promise<void> | undefined

/** Makes one request to a server of our own on loopback; once per process. Failing is no harm: then the first call is slow. */
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
      await fetch(`http://127.0.0.1:${port}/`, {
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
