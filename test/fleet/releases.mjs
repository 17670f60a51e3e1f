// One process of a fleet of two releases: `node releases.mjs '{"release","as","store","vendor","said"}'`. `release`: the package's
// main file; `as`: sender or worker; `said`: a file to which it appends a line for each error, and each job that was recorded.
import { appendFileSync } from 'node:fs'

const { release, name, as, store, vendor, said } = JSON.parse(process.argv[2])
const { limit, Sluice, task } = await import(release)

const tell = (what, text) => appendFileSync(said, `${JSON.stringify({ what, name, as, text })}\n`)
const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const call = task('call', {
  input: anything,
  limits: [
    limit('fleet', { rate: '400/4s', transit: '1s' }),
    limit('key', { window: '200/4s', concurrency: 4, by: 'key', transit: '1s' }),
  ],
  allowPrivate: ['127.0.0.1'],
  retry: { attempts: 1 },
  async run({ key }, { fetch, job, attempt, ambiguous }) {
    if (attempt > 1 || ambiguous) tell('again', job.id)
    const headers = { 'x-key': key, 'idempotency-key': job.id, 'x-release': name }
    await (await fetch(`${vendor}/${job.id}`, { headers })).text()
  },
})

const error = (message, fields) => tell('error', `${message} ${JSON.stringify(fields ?? {})}`)
const sluice = await Sluice.open({ store, log: { debug() {}, info() {}, warn: error, error } })
let isOver = false
let stopped
if (as === 'worker') {
  const worker = await sluice.work([call], { concurrency: 8 })
  stopped = () => worker.stop()
} else {
  const sending = send()
  stopped = () => sending
}
process.stdout.write('ready\n')
process.once('SIGTERM', () => {
  isOver = true
  void stopped().then(() => sluice.close())
})

async function sendSql(input) {
  const [row] = await sluice.db.query(`select sluice.send('call', $1) as id`, [JSON.stringify(input)])
  return row.id
}

/** Sends in code and in SQL, until a stop is requested. */
async function send() {
  const input = (n) => ({ key: `k${n % 5}` })
  for (let n = 0; !isOver; n++) {
    try {
      for (const id of await Promise.all([sluice.send(call, input(n)), sendSql(input(n + 1))])) tell('sent', id)
    } catch (failure) {
      tell('error', String(failure?.stack ?? failure))
    }
    await new Promise((resolve) => setTimeout(resolve, 40))
  }
}
