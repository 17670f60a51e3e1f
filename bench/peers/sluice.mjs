// Sluice itself, through its public API, from the build in dist/.
import { guaranteeOf, label, limit, rule, Sluice, task, useSluice } from '../../dist/index.js'

const anything = { '~standard': { version: 1, vendor: 'bench', validate: (value) => ({ value }) } }

/** Returns the limits of the task for a scenario. */
function limitsOf({ kind, rate, perTenant, published = false, isKeyed = false, isLabelled = false, cost = 1 }) {
  if (kind === 'limited' && isKeyed) return [limit('account', { rate, by: 'accountId' }), limit('vendor', { rate })]
  if (kind === 'limited' && isLabelled) return [limit('vendor', { rate, by: label('ip') })]
  if (kind === 'limited' && cost > 1)
    return [limit('vendor', { rate: rate.replace(/^\d+/, (calls) => String(calls * cost)), cost: () => cost })]
  if (kind === 'limited') return [limit('vendor', { rate, published })]
  if (kind === 'tenants') return [limit('tenant', { rate: perTenant, by: 'accountId' })]
  if (kind === 'keys') {
    return [limit('key', { rate: '100000000/min', by: 'accountId' }), limit('shared', { rate: '100000000/min' })]
  }
  if (kind === 'queues') return [limit('vendor', { rate: '1000000/min', by: 'accountId' })]
  if (kind === 'blocked') return [limit('key', { rate: '1/day', by: 'accountId' })]
  // This limit is decided for each job and never binds.
  return [limit('shared', { rate: '100000000/min' })]
}

/** How many jobs a worker runs at once. */
const concurrencyOf = ({ kind, concurrency }) => concurrency ?? (kind === 'latency' ? 2 : kind === 'limited' ? 10 : 500)

/** Makes `queues` queues with a task in each, and as many rules: half apply when a job is sent, half before it runs. */
function manyQueues(queues) {
  const rules = Array.from({ length: queues }, (_, i) =>
    i % 2 === 0
      ? rule(`urgent-${i}`, { tasks: `call-${i}`, when: ({ input }) => input.n % 5 === 0, do: { priority: 5 } })
      : rule(`barred-${i}`, {
          at: 'dispatch',
          tasks: `call-${i}`,
          when: ({ input }) => input.n < 0,
          do: { hold: '1min' },
        }),
  )
  return { names: Array.from({ length: queues }, (_, i) => `call-${i}`), rules }
}

/** Calls a vendor outside of jobs, in so many loops, until it is stopped. */
function takeForEver(limits, loops, handle) {
  let isOver = false
  const call = (url) => limits[0].fetch(url)
  const loop = async () => {
    while (!isOver) await handle({}, call)
  }
  const running = Array.from({ length: loops }, loop)
  return {
    stop() {
      isOver = true
      return Promise.all(running)
    },
  }
}

/** Opens any store, with `redis` if limits are shared; `sluice-embedded` and `sluice-redis` use it, too. */
export async function open({ url }, shape, redis = '') {
  const { names, rules } = shape.queues === undefined ? { names: ['noop'], rules: [] } : manyQueues(shape.queues)
  const allowPrivate = shape.vendor === undefined ? [] : [new URL(shape.vendor).host]
  const sluice = await Sluice.open({ store: url, rules, redis, allowPrivate })
  useSluice(sluice)
  let handle = () => {}
  const limits = limitsOf(shape)
  const tasks = names.map((name) =>
    task(name, { input: anything, limits, queue: name, allowPrivate, run: (input, ctx) => handle(input, ctx.fetch) }),
  )
  const [job] = tasks
  let claims = 0
  const call = sluice.db.call.bind(sluice.db)
  sluice.db.call = (name, ...rest) => {
    if (name === 'claim_jobs' || name === 'acquire_grants') claims += 1
    return call(name, ...rest)
  }
  return {
    sluice,
    sendOne: (input) => (tasks[input.queue] ?? job).send(input),
    sendMany: (inputs) => job.sendMany(inputs),
    sendTo: (queue, input) => job.send(input, { queue }),
    /** Sends a stream of inputs; `sendMany` makes the batches. */
    sendStream: (inputs) => job.sendMany(inputs),
    async work(handler) {
      handle = handler
      if (shape.takes > 0) return takeForEver(limits, shape.takes, handler)
      return sluice.work(tasks, { concurrency: concurrencyOf(shape) })
    },
    /** Returns how many claims and takes this process has sent. */
    calls: () => claims,
    /** Returns the margin in force of the scenario's limit, in microseconds. */
    async margin() {
      const [row] = await sluice.db.query(
        "select (spec->>'grantUs')::float8 as \"grantUs\", (spec->>'transitUs')::float8 as \"transitUs\" from sluice.limit_def where name <> 'account' order by version desc limit 1",
      )
      return row
    },
    close: () => sluice.close(),
  }
}

/** Returns what a rate guarantees: `burst` at once, then `perSecond`; at most `worst` in any window. */
function promise(rate) {
  const [{ burst, perSecond, worst }] = guaranteeOf(limit('promised', { rate })).rules
  return { burst, perSecond, worst }
}

export default {
  name: 'sluice',
  packages: ['sluice', 'pg'],
  server: 'postgres',
  settings: (shape) =>
    `concurrency ${concurrencyOf(shape)}, ${limitsOf(shape)
      .map(({ name, rules }) => `limit ${name} ${rules.map(({ rate }) => rate).join(' and ')}`)
      .join(', ')}, history kept`,
  promise: ({ rate }) => promise(rate),
  open,
}
