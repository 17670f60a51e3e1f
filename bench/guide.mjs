// Measures what Celery's guide to optimizing states of prefetch multipliers and acknowledgement, with Celery and, beside it, with a
// dispatcher and workers of Sluice (docs/optimizing.md). Each has two slots a process. `--quick`: a tenth of the tasks; `--loads publish,mixed`:
// only these; `--json`.
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { openCelery } from './celery.mjs'
import { start as startPostgres } from './servers/postgres.mjs'
import { start as startRabbitmq } from './servers/rabbitmq.mjs'

const { values } = parseArgs({
  options: { quick: { type: 'boolean' }, loads: { type: 'string' }, json: { type: 'boolean' } },
})
const isWanted = (load) => values.loads?.split(',').includes(load) ?? true
const scale = values.quick ? 10 : 1
const multipliers = values.quick ? [1, 64] : [1, 4, 16, 64, 128]
const member = fileURLToPath(new URL('guide-member.mjs', import.meta.url))
/** Each has so many tasks of so many ms, which wait when the workers start. */
const loads = [
  { name: 'short', tasks: 4_000 / scale, ms: 0, workers: 1 },
  { name: 'long', tasks: 300 / scale, ms: 20, workers: 1 },
  { name: 'restart', tasks: 200 / scale, ms: 100, workers: 2 },
]
/** One task that takes long, and then so many short ones, which the other slot could execute meanwhile. */
const mixed = { name: 'mixed', tasks: 100, ms: 20, longMs: 8_000, workers: 1 }
const slots = 2

/** Tasks a second, from the first end to the last; and which part of the ideal rate that is. */
function rated({ tasks, ms, workers }, times) {
  const sorted = times.toSorted((a, b) => a - b)
  const tookS = (sorted.at(-1) - sorted[0]) / 1_000
  const idealS = (tasks * ms) / 1_000 / (slots * workers)
  return { perSecond: (sorted.length - 1) / tookS, ofIdeal: idealS === 0 ? undefined : idealS / (tookS + ms / 1_000) }
}

/** How many short tasks ended after the long one, and until when all of them had, in seconds from the first end on. */
function stuckOf(times, longAt) {
  const short = times.filter((at) => at !== longAt)
  return { stuck: short.filter((at) => at > longAt).length, tookS: (Math.max(...short) - Math.min(...short)) / 1_000 }
}

async function celery(broker, load, { multiplier, isLate, anyPipe = false }) {
  const late = isLate ? { BENCH_LATE: '1' } : {}
  const env = { BENCH_MULTIPLIER: String(multiplier), ...late, ...(anyPipe ? { BENCH_ANY_PIPE: '1' } : {}) }
  const session = await openCelery(await broker.place(), env)
  const { tasks, ms, longMs, workers } = load
  try {
    await (longMs === undefined ? session.produce('fill', tasks, ms) : session.produce('mixed', tasks, ms, longMs))
    await session.work(workers)
    await session.until(longMs === undefined ? tasks : tasks + 1, 120)
    const records = session.records()
    const times = records.map(({ at }) => at)
    return longMs === undefined ? rated(load, times) : stuckOf(times, records.find(({ mark }) => mark === 1).at)
  } finally {
    session.end()
  }
}

async function sluice(broker, postgres, load, slotsEach) {
  const { Sluice, task } = await import('../dist/index.js')
  const [amqp, place] = [(await broker.place()).url, await postgres.place()]
  const env = { ...process.env, DATABASE_URL: place.url, AMQP_URL: amqp, BENCH_SLOTS: String(slotsEach) }
  const sender = await Sluice.open({ store: place.url })
  const long = load.longMs === undefined ? [] : [{ ms: load.longMs, isLong: true }]
  const inputs = [...long, ...Array.from({ length: load.tasks }, () => ({ ms: load.ms }))]
  await sender.sendMany(task('noop', { run: () => {} }), inputs)
  const times = []
  let longAt
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
        longAt ??= news.longAt
        if (times.length >= inputs.length) isDone()
      })
    })
  try {
    await begin('dispatch')
    await Promise.all(Array.from({ length: load.workers }, () => begin('execute')))
    await done
    return longAt === undefined ? rated(load, times) : stuckOf(times, longAt)
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
  for (const queueType of isWanted('publish') ? ['classic', 'quorum'] : [])
    for (const persistent of queueType === 'classic' ? [true, false] : [true])
      note({ load: 'publish', queueType, persistent, ...(await published(broker, { queueType, persistent })) })
  for (const load of loads.filter(({ name }) => isWanted(name))) {
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
  for (const multiplier of isWanted(mixed.name) ? [1, 4, 64] : [])
    for (const anyPipe of [true, false])
      note({
        load: mixed.name,
        by: 'celery',
        multiplier,
        acks: 'early',
        strategy: anyPipe ? 'first writable pipe' : 'fair',
        ...(await celery(broker, mixed, { multiplier, isLate: false, anyPipe })),
      })
  if (isWanted(mixed.name))
    note({ load: mixed.name, by: 'sluice', slots, ...(await sluice(broker, postgres, mixed, slots)) })
} finally {
  await broker.close()
  await postgres.close()
}
if (values.json) console.log(JSON.stringify({ about: [broker.about, postgres.about], lines }))
