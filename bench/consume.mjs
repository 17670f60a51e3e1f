// Measures a worker without a store (docs/celery-direct.md) beside a consumer of amqplib alone, on the same queue, messages and prefetch, in turns;
// and, on this machine, a Celery worker (prefork of 2, prefetch multiplier 64). Classic and quorum queues; tasks that do nothing. Then the time
// from a publish to the start of the task, one at a time. `--tasks n`, `--turns n`, `--prefetch n`, `--queues classic,quorum`, `--profile folder`, `--json`.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import amqplib from 'amqplib'
import { openProducer } from '../dist/celery/index.js'
import { openCelery } from './celery.mjs'
import { cpuSeconds } from './cpu.mjs'
import { calledSingly, monotonicMs, quantile } from './load.mjs'
import { start as startRabbitmq } from './servers/rabbitmq.mjs'

const { values } = parseArgs({
  options: {
    tasks: { type: 'string', default: '20000' },
    turns: { type: 'string', default: '2' },
    prefetch: { type: 'string', default: '100' },
    queues: { type: 'string', default: 'classic,quorum' },
    profile: { type: 'string' },
    json: { type: 'boolean' },
  },
})
const tasks = Number(values.tasks)
const singles = 200
/** Celery has no more tasks, because it is slower. */
const celeryMost = 5_000
const member = fileURLToPath(new URL('consume-member.mjs', import.meta.url))

/** A new queue of this kind. */
async function queueOn(broker, kind) {
  const { url, queue } = await broker.place()
  const connection = await amqplib.connect(url)
  const channel = await connection.createChannel()
  await channel.assertQueue(queue, {
    durable: true,
    arguments: kind === 'quorum' ? { 'x-queue-type': 'quorum' } : {},
  })
  await connection.close()
  return { url, queue }
}

/** Starts processes that execute, and returns the times at which tasks did. */
async function execute(who, { url, queue }, count, { begin, before, processes = 1 }) {
  const env = { ...process.env, BENCH_AMQP: url, BENCH_QUEUE: queue, BENCH_PREFETCH: values.prefetch }
  const execArgv = values.profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${values.profile}`]
  await before?.()
  const children = Array.from({ length: processes }, () => fork(member, [who], { env, execArgv }))
  const times = []
  const done = new Promise((resolve) => {
    for (const child of children)
      child.on('message', (news) => {
        times.push(...(news.times ?? []))
        if (times.length >= count) resolve()
      })
  })
  await Promise.all(children.map((child) => once(child, 'message')))
  await begin?.()
  await done
  const cpuMs = (cpuSeconds(children.map(({ pid }) => pid)) / count) * 1_000
  const ended = children.map((child) => once(child, 'exit'))
  for (const child of children) child.kill('SIGTERM')
  await Promise.all(ended)
  return { times, cpuMs }
}

const rate = (times) => (times.length - 1) / ((Math.max(...times) - Math.min(...times)) / 1_000)

async function measure(broker, who, kind, processes) {
  const place = await queueOn(broker, kind)
  const { url, queue } = place
  const producer = await openProducer({ broker: url, results: 'none' })
  const send = () => producer.delay('noop', [monotonicMs()], { queue, ignoreResult: true })
  const fill = async () => {
    for (let left = tasks; left > 0; left -= 1_000) await Promise.all(Array.from({ length: 1_000 }, send))
  }
  const many = await execute(who, place, tasks, { before: fill, processes })
  let sent = []
  const begin = async () => (sent = await calledSingly(singles, send))
  const few = await execute(who, place, singles, { begin })
  await producer.close()
  const waits = few.times.map((at, i) => at - sent[i])
  return { perSecond: rate(many.times), cpuMs: many.cpuMs, p50: quantile(waits, 0.5), p99: quantile(waits, 0.99) }
}

async function celery(broker) {
  const session = await openCelery(await broker.place(), { BENCH_MULTIPLIER: '64' })
  try {
    const some = Math.min(tasks, celeryMost)
    await session.produce('fill', some, 0)
    await session.work(1)
    await session.until(some, 120)
    return { perSecond: rate(session.records().map(({ at }) => at)) }
  } finally {
    session.end()
  }
}

function tell(found) {
  if (values.json) return console.log(JSON.stringify(found))
  const { who, kind, perSecond, cpuMs, p50, p99 } = found
  const more =
    cpuMs === undefined
      ? ''
      : `; CPU ${cpuMs.toFixed(3)} ms a task; one at a time p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)} ms`
  console.log(`${who}, ${kind}: ${Math.round(perSecond)} tasks/s${more}`)
}

const broker = await startRabbitmq()
try {
  for (let turn = 0; turn < Number(values.turns); turn++) {
    for (const kind of values.queues.split(','))
      for (const who of ['amqplib', 'sluice']) tell({ who, kind, ...(await measure(broker, who, kind)) })
    // Celery's prefork of two has as many processes.
    tell({ who: 'sluice, 2 processes', kind: 'classic', ...(await measure(broker, 'sluice', 'classic', 2)) })
    tell({ who: 'celery', kind: 'classic', ...(await celery(broker)) })
  }
} finally {
  await broker.close()
}
