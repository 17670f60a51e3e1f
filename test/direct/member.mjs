// A worker without a store in a process of its own: `node member.mjs <broker> <redis> <vendor> <rate> <slots> <acks> <visibility>`.
// Sends its counts on request.
import { z } from 'zod'
import { check, limit, task, workDirectly } from '../../dist/index.js'

const [celeryBroker, redis, vendor, rate, slots, acks, visibilityTimeout] = process.argv.slice(2)
const crm = limit('crm', { rate })
const input = z.unknown()
const seen =
  (what) =>
  (given, { ambiguous, fetch, attempt }) =>
    fetch(`${vendor}/${what}/${given}/${attempt}/${ambiguous ? 'again' : 'first'}`)
const tasks = [
  task('call', {
    input,
    limits: [crm],
    run: async ([n], context) => void (await check(await seen('call')(n, context))),
  }),
  task('free', { input, run: async ([n], context) => void (await check(await seen('free')(n, context))) }),
]
const worker = await workDirectly(tasks, {
  celeryBroker,
  redis,
  celery: ['celery'],
  visibilityTimeout,
  concurrency: Number(slots),
  acks,
  allowPrivate: ['127.0.0.1'],
})
process.on('message', () => process.send({ counts: worker.counts }))
process.on('SIGTERM', () => void worker.stop().then(() => process.exit(0)))
process.send({ ready: true })
