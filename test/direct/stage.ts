/** Workers without a store, and what they need: a broker, a Redis, and a vendor that records arrivals. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'vitest'
import { type DirectOptions, workDirectly } from '../../src/direct/open.ts'
import type { AnyTask } from '../../src/tasks/task.ts'

/** A vendor on loopback that answers everything (the next `refusals` with 429, after 1 s again), and remembers when each request arrived, in monotonic ms. */
export async function startVendor() {
  const arrivals: number[] = []
  const paths: string[] = []
  const vendor = { arrivals, paths, refusals: 0, url: '', close() {} }
  const server = createServer((request, response) => {
    arrivals.push(performance.now())
    paths.push(request.url ?? '')
    const isRefused = vendor.refusals-- > 0
    if (isRefused) response.writeHead(429, { 'retry-after': '1' })
    response.end('{}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  vendor.url = `http://127.0.0.1:${port}`
  vendor.close = () => void (server.closeAllConnections(), server.close())
  return vendor
}

/** Returns the most arrivals in any half-open window of this length, in ms. */
export function mostIn(times: readonly number[], windowMs: number): number {
  const sorted = times.toSorted((a, b) => a - b)
  let most = 0
  let from = 0
  for (const [i, at] of sorted.entries()) {
    while ((sorted[from] ?? at) <= at - windowMs) from++
    most = Math.max(most, i - from + 1)
  }
  return most
}

/** Starts a worker that ends with the test. */
export async function direct(
  { onTestFinished }: Pick<TestContext, 'onTestFinished'>,
  tasks: readonly AnyTask[],
  options: Omit<DirectOptions, 'celery'> & { celery?: string[] },
) {
  const worker = await workDirectly(tasks, { celery: ['celery'], allowPrivate: ['127.0.0.1'], ...options })
  onTestFinished(() => worker.abort())
  return worker
}
