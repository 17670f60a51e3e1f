// A process that absorbs what Celery producers send, and executes none of it: `node member.mjs <store> <broker>`.
import { z } from 'zod'
import { Sluice, task } from '../../dist/index.js'

const [store, amqp] = process.argv.slice(2)
const sluice = await Sluice.open({ store, amqp })
const call = task('call', { input: z.unknown(), run: () => undefined })
await sluice.work([call], { celery: ['celery'], queues: ['elsewhere'] })
