// A worker of a fleet in a process of its own, which calls a vendor under a limit: `node ringer.mjs <store> <amqp> <limit as JSON>`.
import { z } from 'zod'
import { limit, Sluice, task } from '../../dist/index.js'

const [store, amqp, numbers] = process.argv.slice(2)
const sluice = await Sluice.open({ store, amqp, allowPrivate: ['127.0.0.1'] })
const ring = task('ring', {
  input: z.object({ url: z.string() }),
  limits: [limit('calls', JSON.parse(numbers))],
  run: async ({ url }, { fetch }) => void (await fetch(url, { method: 'POST' })),
})
await sluice.execute([ring], { concurrency: 4 })
process.send('ready')
