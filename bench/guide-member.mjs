// A dispatcher or a worker of guide.mjs; it sends the time when each task ended.
import { setTimeout as sleep } from 'node:timers/promises'
import { Sluice, task } from '../dist/index.js'
import { monotonicMs } from './load.mjs'

process.on('disconnect', () => process.exit(1))
// So that a profile is written.
process.on('SIGTERM', () => process.exit(0))
const sluice = await Sluice.open({ store: process.env.DATABASE_URL, amqp: process.env.AMQP_URL })
const times = []
const noop = task('noop', {
  run: async ({ ms, isLong }) => {
    if (ms > 0) await sleep(ms)
    times.push(monotonicMs())
    if (isLong) process.send({ times: [], longAt: times.at(-1) })
  },
})
if (process.argv[2] === 'dispatch') await sluice.dispatch([noop])
else if (process.argv[2] === 'work') await sluice.work([noop], { concurrency: Number(process.env.BENCH_SLOTS) })
else await sluice.execute([noop], { concurrency: Number(process.env.BENCH_SLOTS) })
process.send({ ready: true })
setInterval(() => {
  if (times.length > 0) process.send({ times: times.splice(0) })
}, 100)
