// One process of the tests of limits shared in Redis: `node member.mjs '{"store","redis","vendor","role",…}'`. Runs the built code.
import { limit, Sluice, task } from '../../dist/index.js'

const {
  store,
  redis,
  vendor,
  role,
  rate,
  published,
  count = 0,
  concurrency = 8,
  stores = 1,
  path = '/job',
} = JSON.parse(process.argv[2])
const log = { debug() {}, info() {}, warn() {}, error: (text, about) => console.error(text, about) }
const sluice = await Sluice.open({ store, redis, redisStores: stores, allowPrivate: ['127.0.0.1'], log })
const say = (line) => process.stdout.write(`${line}\n`)
const shared = limit('shared', { rate, transit: '1s', published })

const roles = {
  /** Makes calls in jobs. */
  async works() {
    const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
    const call = task('call', {
      input: anything,
      limits: [shared],
      retry: { attempts: 5, base: 50, max: 500 },
      async run(_, { fetch, job, attempt }) {
        const headers = { 'idempotency-key': job.id, 'x-sluice-attempt': String(attempt) }
        const response = await fetch(`${vendor}${path}`, { headers })
        await response.text()
        if (!response.ok) throw new Error(`the vendor said ${response.status}`)
      },
    })
    const worker = await sluice.work([call], { concurrency })
    say('ready')
    process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
  },
  /** Makes this number of calls outside of jobs, as a web process does; five at a time. */
  async calls() {
    say('ready')
    await new Promise((resolve) => process.stdin.once('data', resolve))
    let left = count
    const line = async () => {
      while (left-- > 0) {
        try {
          await (await sluice.takes.fetch(shared, `${vendor}/web`)).text()
        } catch (error) {
          if (!['SLUICE_GRANT_STALE', 'SLUICE_REDIS_UNREACHABLE'].includes(error.code)) throw error
          left++
        }
      }
    }
    await Promise.all(Array.from({ length: 5 }, line))
    say('done')
    process.stdin.destroy()
    await sluice.close()
  },
}
await roles[role]()
