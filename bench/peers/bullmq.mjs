// BullMQ on Redis, finished jobs removed.
import { scriptsRun, windowOf } from '../load.mjs'

const concurrencyOf = ({ kind }) => (kind === 'limited' ? 10 : kind === 'tenants' ? 5 : kind === 'latency' ? 2 : 100)

async function open({ url }, shape) {
  const { Queue, Worker } = await import('bullmq')
  const { Redis } = await import('ioredis')
  const connection = new Redis(url, { maxRetriesPerRequest: null })
  const rate = shape.rate ?? shape.perTenant
  const { units: max, windowMs: duration } = rate === undefined ? {} : windowOf(rate)
  const limiter = rate === undefined ? {} : { limiter: { max, duration } }
  const queues = new Map()
  // Rates for groups need BullMQ Pro; without it each tenant has a queue.
  const nameOf = (input) => (shape.kind === 'tenants' ? `noop-${input.accountId}` : 'noop')
  const queueOf = (name) => {
    if (!queues.has(name)) queues.set(name, new Queue(name, { connection }))
    return queues.get(name)
  }
  const specOf = (data) => ({ name: 'noop', data, opts: { removeOnComplete: true } })
  return {
    sendOne: (input) => queueOf(nameOf(input)).add('noop', input, { removeOnComplete: true }),
    sendMany: (inputs) =>
      Promise.all([...grouped(inputs, nameOf)].map(([name, some]) => queueOf(name).addBulk(some.map(specOf)))),
    async work(handle) {
      const names = shape.kind === 'tenants' ? shape.tenants.map((accountId) => nameOf({ accountId })) : ['noop']
      const options = { connection, concurrency: concurrencyOf(shape), ...limiter }
      const workers = names.map((name) => new Worker(name, async ({ data }) => handle(data), options))
      for (const worker of workers) worker.on('error', () => {})
      await Promise.all(workers.map((worker) => worker.waitUntilReady()))
      return { stop: () => Promise.all(workers.map((worker) => worker.close(true))) }
    },
    /** It claims, limits and finishes by scripts. */
    sharedCalls: () => scriptsRun(connection),
    async close() {
      await Promise.all([...queues.values()].map((queue) => queue.close()))
      connection.disconnect()
    },
  }
}

function grouped(inputs, nameOf) {
  const groups = new Map()
  for (const input of inputs) {
    const name = nameOf(input)
    if (!groups.has(name)) groups.set(name, [])
    groups.get(name).push(input)
  }
  return groups
}

export default {
  name: 'bullmq',
  packages: ['bullmq', 'ioredis'],
  server: 'redis',
  settings: (shape) =>
    `concurrency ${concurrencyOf(shape)}, removeOnComplete${shape.kind === 'tenants' ? ', a queue and a worker for each tenant' : ''}`,
  /** Its limiter counts fixed windows: a whole window's units at once, and up to twice as many in one window's length. */
  promise: ({ rate }) => ({
    burst: Number.parseInt(rate, 10),
    perSecond: Number.parseInt(rate, 10),
    worst: Number.parseInt(rate, 10),
  }),
  open,
}
