// A vendor in a process of its own: an HTTP server on loopback that answers all requests and records when each arrived.
import { fork } from 'node:child_process'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { monotonicMs } from './load.mjs'

const file = fileURLToPath(import.meta.url)

/**
 * Starts a vendor. A request arrives up to `delayMs` after it was received, at random, as behind a proxy.
 * Resolves to its url, and `arrivals`, which stops it and resolves to the times of all arrivals (monotonic ms).
 */
export async function startVendor(delayMs) {
  const child = fork(file, [String(delayMs)], { stdio: ['ignore', 2, 2, 'ipc'] })
  const next = () =>
    new Promise((resolve, reject) => {
      child.once('message', resolve)
      child.once('exit', () => reject(new Error('the vendor ended')))
    })
  const { url } = await next()
  return {
    url,
    async arrivals() {
      const told = next()
      child.send({ stop: true })
      return (await told).times
    },
  }
}

if (process.argv[1] === file && process.send !== undefined) serve(Number(process.argv[2]))

function serve(delayMs) {
  const times = []
  const arrive = (response) => {
    times.push(monotonicMs())
    response.end('{}')
  }
  const server = createServer((_, response) => {
    if (delayMs === 0) arrive(response)
    else setTimeout(arrive, Math.random() * delayMs, response)
  })
  server.listen(0, '127.0.0.1', () => process.send({ url: `http://127.0.0.1:${server.address().port}/` }))
  process.on('message', () => process.send({ times }, () => process.exit(0)))
  process.on('disconnect', () => process.exit(1))
}
