// One worker process of a fleet that fires schedules: `node member.mjs <url>`. Runs the built code.
import { schedule, scheduledFor, Sluice, task } from '../../dist/index.js'

const [store] = process.argv.slice(2)
const anything = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } }
const note = task('note', { input: anything, run: (_, { job }) => scheduledFor(job).toISOString() })
const schedules = [
  schedule('seconds', { task: note, cron: '* * * * * *', zone: 'Europe/Berlin', input: {} }),
  schedule('every', { task: note, every: '1s', input: {}, overlap: 'skip' }),
]
const sluice = await Sluice.open({ store })
const worker = await sluice.work([note], { schedules, concurrency: 5 })
process.stdout.write('ready\n')
process.once('SIGTERM', () => void worker.stop().then(() => sluice.close()))
