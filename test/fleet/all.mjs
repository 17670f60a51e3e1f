// One worker process of the fleet that does everything at once: `node all.mjs '{"store","vendors","concurrency"}'`. Runs the
// built code; the test takes its definitions from here.
import { limit, rule, schedule, Sluice, task } from '../../dist/index.js'

const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const transit = '1s'
const all = limit('all', { rate: '160/4s', transit })
const perKey = limit('per-key', { rate: '80/4s', by: 'key', transit })
const windows = limit('windows', { window: ['60/4s', '300/30s'], concurrency: 3, by: 'key', transit })
const retry = { attempts: 20, base: 50, max: 500 }

let vendors = {}
const call =
  (name) =>
  async ({ key }, { fetch, attempt, job, ambiguous }) => {
    const headers = { 'x-key': key, 'idempotency-key': job.id, 'x-sluice-attempt': `${attempt}${ambiguous ? '?' : ''}` }
    const response = await fetch(`${vendors[name]}/${job.id}`, { headers })
    await response.text()
    if (!response.ok) throw new Error(`the vendor said ${response.status}`)
  }

/** Under a rate in all and one for each key; tenants have different shares. */
export const rated = task('rated', {
  input: anything,
  limits: [all, perKey],
  weight: ({ n }) => 1 + (n % 3),
  allowPrivate: ['127.0.0.1'],
  retry,
  run: call('rated'),
})
/** Under two windows and a concurrency for each key. */
export const windowed = task('windowed', {
  input: anything,
  limits: [windows],
  allowPrivate: ['127.0.0.1'],
  retry,
  run: call('windowed'),
})
/** Sent by a schedule every second, also for the seconds in which no worker could. */
export const tick = task('tick', { input: anything, retry, run: () => undefined })
export const tasks = [rated, windowed, tick]
export const schedules = [schedule('every-second', { task: tick, cron: '* * * * * *', input: {}, catchUp: 'all' })]
export const rules = [
  rule('fast', { tasks: 'rated', when: ({ input }) => input.n % 3 === 0, do: { queue: 'fast', priority: 5 } }),
  rule('drop', { when: ({ input }) => input.n % 50 === 7, do: { discard: 'every fiftieth' } }),
  rule('aside', { at: 'dispatch', queues: 'default', when: ({ input }) => input.n % 40 === 1, do: { queue: 'aside' } }),
  rule('later', {
    at: 'dispatch',
    queues: 'aside',
    when: ({ input }) => input.n % 80 === 1,
    do: { queue: 'last', priority: -3 },
  }),
]

if (process.argv[2]) {
  const options = JSON.parse(process.argv[2])
  vendors = options.vendors
  const sluice = await Sluice.open({ store: options.store, rules })
  const worker = await sluice.work(tasks, { concurrency: options.concurrency, schedules })
  process.stdout.write('ready\n')
  process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
}
