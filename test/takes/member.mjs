// One process of the tests of takes: `node member.mjs '{"store","role",…}'`. Runs the built code.
import { limit, Sluice, task } from '../../dist/index.js'

const { store, role, count = 0, vendor } = JSON.parse(process.argv[2])
const sluice = await Sluice.open({ store, allowPrivate: ['127.0.0.1'] })
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`)
const shared = limit('shared', { rate: '160/4s', transit: '1s' })

const roles = {
  /** Tries this number of times; prints how often it was granted. A grant that came too late to be used is tried again. */
  async tries() {
    const ten = limit('ten', { rate: '60/min', burst: 10 })
    let granted = 0
    for (let n = 0; n < count; n++) {
      let tried = await sluice.takes.tryTake(ten)
      while (!tried.granted && tried.retryAfterMs === 0) tried = await sluice.takes.tryTake(ten)
      if (tried.granted) granted++
    }
    say(granted)
    await sluice.close()
  },
  /** Takes a place, reports it, and keeps it. */
  async holds() {
    await sluice.takes.take(limit('place', { concurrency: 1 }))
    say('held')
    setInterval(() => {}, 60_000)
  },
  /** Makes calls outside of jobs, five at a time. */
  async calls() {
    say('ready')
    await new Promise((resolve) => process.stdin.once('data', resolve))
    let left = count
    const line = async () => {
      while (left-- > 0) {
        try {
          await (await sluice.takes.fetch(shared, `${vendor}/take`)).text()
        } catch (error) {
          // On a machine that is busy connecting may take longer than grants live.
          if (error.code !== 'SLUICE_GRANT_STALE') throw error
          left++
        }
      }
    }
    await Promise.all(Array.from({ length: 5 }, line))
    say('done')
    process.stdin.destroy()
    await sluice.close()
  },
  /** Makes calls in jobs. */
  async works() {
    const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
    const call = task('call', {
      input: anything,
      limits: [shared],
      async run(_, { fetch }) {
        const response = await fetch(`${vendor}/job`)
        await response.text()
        if (!response.ok) throw new Error(`the vendor said ${response.status}`)
      },
    })
    await sluice.work([call], { concurrency: 8 })
    say('ready')
  },
}
await roles[role]()
