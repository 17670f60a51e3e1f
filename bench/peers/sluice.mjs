// Sluice itself, through its public API, as the build in dist/ has it.
import { guaranteeOf, limit, rule, Sluice, task, useSluice } from '../../dist/index.js'

const anything = { '~standard': { version: 1, vendor: 'bench', validate: (value) => ({ value }) } }

/** The limit of the task, by what is measured. */
function limitsOf({ kind, rate, perTenant, published = false }) {
  if (kind === 'limited') return [limit('vendor', { rate, published })]
  if (kind === 'tenants') return [limit('tenant', { rate: perTenant, by: 'accountId' })]
  if (kind === 'keys') {
    return [limit('key', { rate: '100000000/min', by: 'accountId' }), limit('shared', { rate: '100000000/min' })]
  }
  if (kind === 'queues') return [limit('vendor', { rate: '1000000/min', by: 'accountId' })]
  if (kind === 'blocked') return [limit('key', { rate: '1/day', by: 'accountId' })]
  // One that is decided for each job and never binds.
  return [limit('shared', { rate: '100000000/min' })]
}

/** Jobs at once in one worker. */
const concurrencyOf = ({ kind, concurrency }) => concurrency ?? (kind === 'latency' ? 2 : kind === 'limited' ? 10 : 500)

/** As many queues as `queues` says, a task in each, and as many rules: half look when a job is sent, half before it runs. */
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

/** Opens any store, `redis` beside it where limits are shared; `sluice-embedded` and `sluice-redis` use it as well. */
export async function open({ url }, shape, redis = '') {
  const { names, rules } = shape.queues === undefined ? { names: ['noop'], rules: [] } : manyQueues(shape.queues)
  const sluice = await Sluice.open({ store: url, rules, redis })
  useSluice(sluice)
  let handle = () => {}
  const limits = limitsOf(shape)
  const tasks = names.map((name) => task(name, { input: anything, limits, queue: name, run: (input) => handle(input) }))
  const [job] = tasks
  let claims = 0
  const call = sluice.db.call.bind(sluice.db)
  sluice.db.call = (name, ...rest) => {
    if (name === 'claim') claims += 1
    return call(name, ...rest)
  }
  return {
    sluice,
    sendOne: (input) => (tasks[input.queue] ?? job).send(input),
    sendMany: (inputs) => job.sendMany(inputs),
    sendTo: (queue, input) => job.send(input, { queue }),
    /** A stream of inputs: it makes batches of its own. */
    sendStream: (inputs) => job.sendMany(inputs),
    async work(handler) {
      handle = handler
      return sluice.work(tasks, { concurrency: concurrencyOf(shape) })
    },
    /** Claims that this process has made. */
    calls: () => claims,
    close: () => sluice.close(),
  }
}

/** What a rate promises: `burst` at once, then `perSecond`; at most `worst` in any window. */
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
