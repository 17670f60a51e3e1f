/**
 * Webhooks per customer: each endpoint has its own limit (10 a second, 2 at one time), so no endpoint affects another. One
 * is down: its deliveries are retried, fail for good, and a rule switches the endpoint off. One answers 429 with
 * Retry-After: only its own deliveries wait. The endpoints are started here, on loopback. At the end the program prints
 * what each of them received.
 *
 *     npm run setup && npx jiti examples/webhooks.ts
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { check, limit, rule, Sluice, task, useSluice } from 'sluice'
import { z } from 'zod'

const eventsEach = 6
const customers = ['north', 'south', 'down', 'slow']
const got: { customer: string; event: number; status: number }[] = []
const { url, close } = await startEndpoints()

// Endpoints that are switched off. In a fleet this would be a column of your customers' table; `when` below may be async.
const off = new Set<string>()

const deliver = task('deliver', {
  input: z.object({ customer: z.string(), event: z.number() }),
  limits: [limit('hooks', { rate: '10/s', concurrency: 2, by: 'customer' })],
  retry: { attempts: 6, base: '100ms', max: '500ms' },
  timeout: '10s',
  // Only because the endpoints of this example are on loopback. Real endpoints are chosen by customers: leave this out, so
  // that no customer can make you call your own network.
  allowPrivate: ['127.0.0.1'],
  async run({ customer, event }, { fetch, job }) {
    const response = await fetch(`${url}/${customer}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': job.id },
      body: JSON.stringify({ event }),
    })
    // After a 429 this customer's bucket is held, on every worker. A 410, as any other 4xx, fails at once: it was removed.
    await (await check(response)).arrayBuffer()
  },
  // Runs as a separate job, recorded together with the failure, so it is not lost if this process ends now.
  onFailed: ({ input }) => void off.add(input.customer),
})

const sluice = await Sluice.open({
  store: 'memory:',
  rules: [
    // Applied just before a delivery would run, so a discarded one was not tried. `hold: '1h'` would postpone it instead.
    rule<{ customer: string }>('switched-off', {
      at: 'dispatch',
      tasks: 'deliver',
      when: ({ input }) => off.has(input.customer),
      do: { discard: 'the endpoint is switched off' },
    }),
  ],
})
useSluice(sluice)

const ids: string[] = []
for (let event = 1; event <= eventsEach; event++)
  for (const customer of customers) ids.push(await deliver.send({ customer, event }))
await sluice.work([deliver])

const jobs = await Promise.all(ids.map((id) => sluice.waitFor(id)))
for (const customer of customers) {
  const states = jobs
    .filter(({ input }) => (input as { customer: string }).customer === customer)
    .map(({ state }) => state)
  const counted = [...new Set(states)].sort().map((state) => `${states.filter((one) => one === state).length} ${state}`)
  const calls = got.filter((one) => one.customer === customer).map(({ event, status }) => `${event}:${status}`)
  console.log(`${customer}: ${counted.join(', ')}; got ${calls.join(' ')}`)
}
const silent = got.findIndex(({ status }) => status === 429)
const resumed = got.findIndex(({ customer }, n) => customer === 'slow' && n > silent)
const others = got.slice(silent, resumed).filter(({ customer, status }) => customer !== 'slow' && status === 200)
console.log(`while slow was left alone, others got ${others.length} deliveries`)
console.log(`switched off: ${[...off].join(', ')}`)

await sluice.close()
close()

/** One server for all endpoints: a path for each customer. */
async function startEndpoints(): Promise<{ url: string; close(): void }> {
  // `slow` answers 429 until the others have received all of theirs. If the others waited for it, the example would not end.
  const isBusy = () =>
    got.filter(({ customer, status }) => /north|south/.test(customer) && status === 200).length < 2 * eventsEach
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { event } = (await json(request)) as { event: number }
    const customer = request.url?.slice(1) ?? ''
    const status = customer === 'down' ? 503 : customer === 'slow' && isBusy() ? 429 : 200
    got.push({ customer, event, status })
    response.writeHead(status, status === 429 ? { 'retry-after': '2' } : {}).end()
  }
  const server = createServer((request, response) => void answer(request, response))
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
}
