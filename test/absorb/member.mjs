// A process that absorbs what Celery producers send, and executes none of it:
// `node member.mjs <store> <broker> [<visibility time-out of a Redis>]`.
import { z } from 'zod'
import { Sluice, task } from '../../dist/index.js'

const [store, celeryBroker, visibilityTimeout] = process.argv.slice(2)
const sluice = await Sluice.open({ store, celeryBroker })
const call = task('call', { input: z.unknown(), run: () => undefined })
await sluice.work([call], { celery: { queues: ['celery'], visibilityTimeout }, queues: ['elsewhere'] })
