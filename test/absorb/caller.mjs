// A worker that absorbs what Celery producers send, and calls a vendor: `node caller.mjs <store> <broker> <vendor> <slots>`.
import { z } from 'zod'
import { check, limit, Sluice, task } from '../../dist/index.js'

const [store, celeryBroker, vendor, slots] = process.argv.slice(2)
const sluice = await Sluice.open({ store, celeryBroker, allowPrivate: ['127.0.0.1'] })
const call = task('call', {
  input: z.tuple([z.number()]),
  limits: [limit('crm', { rate: '100/s' })],
  run: async ([n], { fetch, attempt, ambiguous }) =>
    void (await check(await fetch(`${vendor}/call/${n}/${attempt}/${ambiguous ? 'again' : 'first'}`))),
})
const free = task('free', {
  input: z.tuple([z.number()]),
  run: async ([n], { fetch }) => void (await check(await fetch(`${vendor}/free/${n}/1/first`))),
})
await sluice.work([call, free], { celery: { queues: ['celery'] }, concurrency: Number(slots) })
process.on('SIGTERM', () => void sluice.close().then(() => process.exit(0)))
process.send('ready')
