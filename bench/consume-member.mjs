// A process of consume.mjs that executes: `amqplib` alone, or a worker of Sluice without a store. It sends the times of its tasks.
import amqplib from 'amqplib'
import { z } from 'zod'
import { task, workDirectly } from '../dist/index.js'
import { monotonicMs } from './load.mjs'

process.on('disconnect', () => process.exit(1))
// So that a profile is written.
process.on('SIGTERM', () => process.exit(0))
const { BENCH_AMQP: amqp, BENCH_QUEUE: queue, BENCH_PREFETCH } = process.env
const prefetch = Number(BENCH_PREFETCH)
const times = []
const noop = task('noop', { input: z.unknown(), run: () => void times.push(monotonicMs()) })
if (process.argv[2] === 'sluice')
  await workDirectly([noop], { celeryBroker: amqp, celery: [queue], concurrency: prefetch })
else {
  const connection = await amqplib.connect(amqp)
  connection.connection?.stream?.setNoDelay?.(true)
  const channel = await connection.createChannel()
  await channel.prefetch(prefetch)
  await channel.consume(queue, (message) => {
    times.push(monotonicMs())
    channel.ack(message)
  })
}
process.send({ ready: true })
setInterval(() => {
  if (times.length > 0) process.send({ times: times.splice(0) })
}, 100)
