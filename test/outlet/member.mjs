// A process of a fleet, which reports each attempt that it begins to its parent.
import { existsSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { limit, Sluice, task, workInFleet } from '../../dist/index.js'

const [role, store, amqp, slots, workers] = process.argv.slice(2)
const open = () => Sluice.open({ store, amqp })
const paced = limit('paced', { rate: '200/s', by: 'key' })
const waiting = {
  input: z.object({ gate: z.string().optional(), key: z.string().optional() }),
  retry: { attempts: 3, base: 100, max: 500 },
  timeout: '5min',
  async run({ gate }, { attempt, ambiguous, job }) {
    process.send({ id: job.id, attempt, ambiguous, pid: process.pid, atMs: Date.now() })
    // Not in an attempt that follows a loss.
    while (gate !== undefined && !ambiguous && !existsSync(gate)) await sleep(20)
  },
}
const note = task('note', waiting)
const rare = task('rare', { ...waiting, limits: [limit('rare', { window: '1/h' })] })
const call = task('call', {
  input: z.object({ key: z.string() }),
  limits: [paced],
  run: (_, { job, attempt, ambiguous }) =>
    void process.send({ id: job.id, attempt, ambiguous, pid: process.pid, atMs: Date.now() }),
})
const ring = task('ring', {
  input: z.object({ url: z.string() }),
  limits: [limit('ringing', { rate: process.env.RING_RATE })],
  allowPrivate: ['127.0.0.1'],
  run: async ({ url }, { fetch }) => void (await fetch(url, { method: 'POST' })),
})
const tasks = [note, rare, call, ring]
const concurrency = Number(slots)
const all = []
if (role === 'dispatch') {
  all.push(await open())
  await all[0].dispatch(tasks)
} else if (role === 'join') {
  const worker = await workInFleet(tasks, { amqp, concurrency })
  all.push({ close: () => worker.stop() })
} else {
  while (all.length < Number(workers)) all.push(await open())
  await Promise.all(all.map((one) => one.execute(tasks, { concurrency })))
}
process.on('SIGTERM', () => void Promise.all(all.map((one) => one.close())).then(() => process.exit(0)))
process.send('ready')
