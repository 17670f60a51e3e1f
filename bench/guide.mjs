// Measures what Celery's guide to optimizing states of prefetch multipliers and acknowledgement, with Celery and, beside it, with a
// dispatcher and workers of Sluice (docs/optimizing.md). Each has two slots a process. `--quick`: a tenth of the tasks; `--json`.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { openCelery } from './celery.mjs'
import { start as startPostgres } from './servers/postgres.mjs'
import { start as startRabbitmq } from './servers/rabbitmq.mjs'

const { values } = parseArgs({ options: { quick: { type: 'boolean' }, json: { type: 'boolean' } } })
const scale = values.quick ? 10 : 1
const multipliers = values.quick ? [1, 64] : [1, 4, 16, 64, 128]
const member = fileURLToPath(new URL('guide-member.mjs', import.meta.url))
/** Each has so many tasks of so many ms, which wait when the workers start. */
const loads = [
  { name: 'short', tasks: 4_000 / scale, ms: 0, workers: 1 },
  { name: 'long', tasks: 300 / scale, ms: 20, workers: 1 },
  { name: 'restart', tasks: 200 / scale, ms: 100, workers: 2 },
]
const slots = 2

/** Tasks a second, from the first end to the last; and which part of the ideal rate that is. */
function rated({ tasks, ms, workers }, times) {
  const sorted = times.toSorted((a, b) => a - b)
  const tookS = (sorted.at(-1) - sorted[0]) / 1_000
  const idealS = (tasks * ms) / 1_000 / (slots * workers)
  return { perSecond: (sorted.length - 1) / tookS, ofIdeal: idealS === 0 ? undefined : idealS / (tookS + ms / 1_000) }
}

async function celery(broker, load, { multiplier, isLate }) {
  const env = { BENCH_MULTIPLIER: String(multiplier), ...(isLate ? { BENCH_LATE: '1' } : {}) }
  const session = await openCelery(await broker.place(), env)
  try {
    await session.produce('fill', load.tasks, load.ms)
    await session.work(load.workers)
    await session.until(load.tasks, 120)
    return rated(
      load,
      session.records().map(({ at }) => at),
    )
  } finally {
    session.end()
  }
}

async function sluice(broker, postgres, load, slotsEach) {
  const { Sluice, task } = await import('../dist/index.js')
  const [amqp, place] = [(await broker.place()).url, await postgres.place()]
  const env = { ...process.env, DATABASE_URL: place.url, AMQP_URL: amqp, BENCH_SLOTS: String(slotsEach) }
  const sender = await Sluice.open({ store: place.url })
  await sender.sendMany(
    task('noop', { run: () => {} }),
    Array.from({ length: load.tasks }, () => ({ ms: load.ms })),
  )
  const times = []
  const members = []
  let isDone, hasFailed
  const done = new Promise((resolve, reject) => ([isDone, hasFailed] = [resolve, reject]))
  done.catch(() => {})
  const begin = (role) =>
    new Promise((resolve, reject) => {
      const child = fork(member, [role], { env })
      members.push(child)
      child.once('exit', () => {
        const error = new Error(`a process that was to ${role} has ended`)
        reject(error)
        hasFailed(error)
      })
      child.on('message', (news) => {
        if (news.ready) return resolve()
        times.push(...news.times)
        if (times.length >= load.tasks) isDone()
      })
    })
  try {
    await begin('dispatch')
    await Promise.all(Array.from({ length: load.workers }, () => begin('execute')))
    await done
    return rated(load, times)
  } finally {
    for (const child of members) child.kill('SIGKILL')
    await sender.close()
    await place.remove?.()
  }
}

/** Messages a second that are published and confirmed, 1,000 at once, and ms of one at a time. */
async function published(broker, { queueType, persistent }) {
  const { openBroker } = await import('../dist/amqp/broker.js')
  const { silent } = await import('../dist/core/log.js')
  const { url, queue } = await broker.place()
  const client = await openBroker({ url, name: 'guide', log: silent })
  await client.declare({ queues: [{ name: queue, arguments: { 'x-queue-type': queueType } }] })
  const message = { exchange: '', routingKey: queue, body: Buffer.alloc(256, 120), properties: { persistent } }
  const timed = async (run) => {
    const sinceMs = performance.now()
    await run()
    return performance.now() - sinceMs
  }
  const one = () => timed(() => client.publish(message))
  for (let i = 0; i < 20; i++) await one()
  const singles = []
  for (let i = 0; i < 200 / scale; i++) singles.push(await one())
  const count = 20_000 / scale
  let left = 5_000
  const flow = async () => {
    while (left-- > 0) await client.publish(message)
  }
  const flows = () => timed(() => Promise.all(Array.from({ length: 1_000 }, flow)))
  // The first ones compile.
  await flows()
  left = count
  const tookMs = await flows()
  await client.close()
  return { perSecond: count / (tookMs / 1_000), p50Ms: singles.toSorted((a, b) => a - b)[singles.length >> 1] }
}

const broker = await startRabbitmq({})
const postgres = await startPostgres({})
const lines = []
const note = (line) => {
  lines.push(line)
  if (!values.json) console.log(JSON.stringify(line))
}
try {
  for (const queueType of ['classic', 'quorum'])
    for (const persistent of queueType === 'classic' ? [true, false] : [true])
      note({ load: 'publish', queueType, persistent, ...(await published(broker, { queueType, persistent })) })
  for (const load of loads) {
    for (const multiplier of multipliers)
      for (const isLate of [false, true])
        note({
          load: load.name,
          by: 'celery',
          multiplier,
          acks: isLate ? 'late' : 'early',
          ...(await celery(broker, load, { multiplier, isLate })),
        })
    for (const slotsEach of load.ms === 0 ? [slots, 100] : [slots])
      note({ load: load.name, by: 'sluice', slots: slotsEach, ...(await sluice(broker, postgres, load, slotsEach)) })
  }
} finally {
  await broker.close()
  await postgres.close()
}
if (values.json) console.log(JSON.stringify({ about: [broker.about, postgres.about], lines }))
