/** Fleets of workers without a store, each a process, and what their vendor saw. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { startProducer } from '../absorb/stage.ts'
import { openProducer, type Producer } from '../../src/celery/index.ts'
import type { DirectCounts } from '../../src/direct/read-ahead.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { member as flags } from '../v8.ts'
import { type Kind, startHost } from './brokers.ts'

const member = fileURLToPath(new URL('member.mjs', import.meta.url))

/** One request as the vendor saw it. */
export interface Arrival {
  what: string
  n: number
  /** The attempt's number, and whether it knew that the call may have been made before. */
  attempt: number
  isAgain: boolean
  /** Wall time in ms. */
  atMs: number
}

/** A vendor on loopback that answers everything (while `isShut` with 429, after 10 s again), and records arrivals, but for those that it refuses. */
export async function startRecorder() {
  const arrivals: Arrival[] = []
  const vendor = { arrivals, isShut: false, url: '', close: () => (server.closeAllConnections(), server.close()) }
  const server = createServer((request, response) => {
    const [, what = '', n, attempt, kind] = (request.url ?? '').split('/')
    const atMs = wallMs()
    if (vendor.isShut) return void response.writeHead(429, { 'retry-after': '10' }).end('{}')
    arrivals.push({ what, n: Number(n), attempt: Number(attempt), isAgain: kind === 'again', atMs })
    response.end('{}')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  vendor.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return vendor
}

/** Starts a worker in a process, and resolves when it executes. */
export async function startMember(
  url: { broker: string; redis: string; vendor: string; visible?: string },
  rate: string,
  slots: number,
  crashAt = '',
  acks: 'late' | 'early' = 'late',
) {
  const env = { ...process.env, SLUICE_CRASH_AT: crashAt }
  const args = [url.broker, url.redis, url.vendor, rate, String(slots), acks, url.visible ?? '1h']
  const child = fork(member, args, {
    execArgv: flags,
    stdio: 'inherit',
    env,
  })
  await Promise.race([
    once(child, 'message'),
    once(child, 'exit').then(() => Promise.reject(new Error('a worker has ended'))),
  ])
  return child
}

/** Ends workers, and returns what all of them have done. */
export async function endMembers(children: readonly ChildProcess[]): Promise<DirectCounts> {
  const all = await Promise.all(
    children.map(async (child) => {
      child.send('counts')
      const [{ counts }] = (await once(child, 'message')) as [{ counts: DirectCounts }]
      child.kill('SIGTERM')
      await once(child, 'exit')
      return counts
    }),
  )
  const sum = (name: keyof DirectCounts) => all.reduce((total, one) => total + one[name], 0)
  return { delivered: sum('delivered'), denied: sum('denied'), begun: sum('begun'), done: sum('done') }
}

/** Sends tasks to a queue that have nothing to do with what waits there, and finds out how long each waited until the vendor saw it. */
export function createUnrelated(producer: Pick<Producer, 'delay'>, vendor: { arrivals: readonly Arrival[] }) {
  const sent: number[] = []
  return {
    get count() {
      return sent.length
    },
    /** Sends so many, one after the other, `gapMs` apart. */
    async send(count: number, gapMs = 0) {
      for (let i = 0; i < count; i++) {
        const atMs = wallMs() + gapMs
        await until(() => wallMs() >= atMs, 'the gap is over')
        sent.push(wallMs())
        await producer.delay('free', [sent.length - 1])
      }
    },
    /** How long each waited, in ms, in the order in which they were sent. */
    waits: () =>
      vendor.arrivals
        .filter(({ what }) => what === 'free')
        .toSorted((a, b) => a.n - b.n)
        .map(({ n, atMs }) => atMs - (sent[n] ?? 0)),
  }
}

/** How a proof runs; see the fields. */
export interface Proof {
  kind: Kind
  tasks: number
  rate: string
  workers: number
  slots: number
  /** So many unrelated tasks of the same queue are sent right behind the others, and as many, `gapMs` apart, while those wait. */
  free: number
  gapMs: number
}

/** Has a Python producer send tasks under a limit, and workers execute them. Returns what the vendor saw. */
export async function prove({ kind, tasks, rate, workers, slots, free, gapMs }: Proof) {
  const [broker, redis, vendor] = await Promise.all([startHost(kind), startRedis(), startRecorder()])
  const python = await startProducer(broker.url)
  const node = await openProducer({ broker: broker.url, results: 'none' })
  const url = { broker: broker.url, redis: redis.url, vendor: vendor.url }
  const children = await Promise.all(Array.from({ length: workers }, () => startMember(url, rate, slots)))
  const unrelated = createUnrelated(node, vendor)
  try {
    await python.ask('many', { task: 'call', n: tasks })
    await unrelated.send(free)
    // From now on all others wait for their times.
    await until(async () => (await broker.depth('celery')) === 0, 'those that wait are denied', 60_000)
    await unrelated.send(free, gapMs)
    await until(() => vendor.arrivals.length >= tasks + unrelated.count, 'all were called', 180_000)
    const counts = await endMembers(children)
    const arrivals = vendor.arrivals.filter(({ what }) => what === 'call')
    return { arrivals, counts, waits: unrelated.waits(), deliveries: (counts.delivered - unrelated.count) / tasks }
  } finally {
    for (const child of children) child.kill('SIGKILL')
    python.close()
    vendor.close()
    await Promise.all([node.close(), redis.close()])
    await broker.close()
  }
}

const wallMs = () => performance.timeOrigin + performance.now()

/** Returns the value below which this part of the values is. */
export function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0
}
