// A worker process of the tests, which reports each attempt that it begins to its parent.
import { z } from 'zod'
import { limit, Sluice, task } from '../../dist/index.js'

// The store and the queues (default: all).
const [store, ...queues] = process.argv.slice(2)
const sluice = await Sluice.open({ store })
const note = task('note', {
  input: z.object({
    hangs: z.boolean().optional(),
    blocksMs: z.number().optional(),
    text: z.string().optional(),
    n: z.number().optional(),
  }),
  retry: { attempts: 50, base: 100, max: 500 },
  async run({ hangs, blocksMs }, { attempt, ambiguous, job }) {
    process.send({ id: job.id, attempt, ambiguous, pid: process.pid })
    if (blocksMs) for (const end = performance.now() + blocksMs; performance.now() < end;);
    if (hangs && !ambiguous) await new Promise(() => {})
  },
})
const paced = task('paced', {
  limits: [limit('pace', { rate: '200/s' })],
  run(_, { attempt, ambiguous, job }) {
    process.send({ id: job.id, attempt, ambiguous, pid: process.pid })
  },
})
// Without this, a handler that hangs would not keep the process alive.
setInterval(() => {}, 60_000)
await sluice.work([note, paced], { concurrency: 20, ...(queues.length === 0 ? {} : { queues }) })
process.send('ready')
