// What the benchmarks do with Sluice itself, through its public API. Each returns lines { peer, value, unit }.
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { limit, newId, Sluice, task, useSluice } from '../dist/index.js'

const anything = { '~standard': { version: 1, vendor: 'bench', validate: (value) => ({ value }) } }
// 220 bytes of JSON, as in the peers' benchmarks.
const input = { accountId: 'a1', contactId: '123456', pad: 'x'.repeat(168) }
const concurrency = 500

/** A Sluice in a schema of its own, dropped afterwards. */
async function inFreshSchema(store, body) {
  const schema = `bench_${randomBytes(4).toString('hex')}`
  const sluice = await Sluice.open({ store, schema })
  useSluice(sluice)
  try {
    return await body(sluice, schema)
  } finally {
    if (store.startsWith('postgres')) await sluice.db.script(`drop schema ${schema} cascade`)
    await sluice.close()
  }
}

/** A task under one shared limit that does not bind; `ran` counts. */
function noop() {
  const counter = { ran: 0, reached: () => {}, goal: Infinity }
  const shared = limit('shared', { rate: '100000000/min' })
  const run = () => {
    if (++counter.ran >= counter.goal) counter.reached()
  }
  return { job: task('noop', { input: anything, limits: [shared], run }), counter }
}

function untilRan(counter, goal) {
  counter.goal = goal
  return counter.ran >= goal ? Promise.resolve() : new Promise((resolve) => (counter.reached = resolve))
}

function* inputs(count) {
  for (let i = 0; i < count; i++) yield input
}

const seconds = (since) => (performance.now() - since) / 1000

/** Bulk, one by one and 16 at once, beside raw INSERTs. */
export async function send({ url, jobs = 20_000 }) {
  return inFreshSchema(url, async (sluice, schema) => {
    const { job } = noop()
    const lines = []
    const rate = async (bench, peer, count, body) => {
      const since = performance.now()
      await body(count)
      lines.push({ bench, peer, value: count / seconds(since), unit: 'jobs/s' })
    }
    await job.send(input)
    const few = Math.ceil(jobs / 20)
    await rate('send-bulk', 'sluice', jobs, (n) => job.sendMany(inputs(n)))
    await rate('send-single', 'sluice', few, async (n) => {
      for (let i = 0; i < n; i++) await job.send(input)
    })
    await rate('send-16', 'sluice', few * 4, (n) =>
      Promise.all(
        Array.from({ length: 16 }, async () => {
          for (let i = 0; i < n / 16; i++) await job.send(input)
        }),
      ),
    )
    await sluice.db.script(`create table ${schema}.raw (like ${schema}.job including all)`)
    const raw = `insert into ${schema}.raw (id, lane, priority, created_at, task, queue, takes, input)
      select id, 1, 0, clock_timestamp(), 'noop', 'default', '{shared}', input::jsonb from unnest($1::uuid[], $2::text[]) u (id, input)`
    const rows = (n) => [Array.from({ length: n }, newId), Array(n).fill(JSON.stringify(input))]
    await rate('send-bulk', 'postgres', jobs, async (n) => {
      for (let i = 0; i < n; i += 500) await sluice.db.call('raw', raw, rows(500))
    })
    await rate('send-single', 'postgres', few, async (n) => {
      for (let i = 0; i < n; i++) await sluice.db.call('raw', raw, rows(1))
    })
    return lines
  })
}

/** A backlog, drained by one worker. */
export async function drain({ url, jobs = 20_000 }) {
  return inFreshSchema(url, async (sluice) => {
    const { job, counter } = noop()
    await job.sendMany(inputs(jobs))
    const since = performance.now()
    const worker = await sluice.work([job], { concurrency })
    await untilRan(counter, jobs)
    await worker.stop()
    return [{ peer: 'sluice', value: jobs / seconds(since), unit: 'jobs/s' }]
  })
}

/** Bulk send, claim under a limit, no-op handler, history, all at once in one process. */
export async function endToEnd({ url, jobs = 30_000 }) {
  return inFreshSchema(url, async (sluice) => {
    const { job, counter } = noop()
    const worker = await sluice.work([job], { concurrency })
    const since = performance.now()
    await Promise.all([job.sendMany(inputs(jobs)), untilRan(counter, jobs)])
    await worker.stop()
    return [{ peer: 'sluice', value: jobs / seconds(since), unit: 'jobs/s' }]
  })
}

/** From `send` being called to the handler's first line, at low load, on both engines. */
export async function latency({ url, jobs = 200 }) {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-bench-'))
  try {
    const postgres = await inFreshSchema(url, (sluice) => latencyOf(sluice, jobs, 'sluice'))
    const embedded = await inFreshSchema(join(dir, 'data'), (sluice) => latencyOf(sluice, jobs, 'sluice-embedded'))
    return [...postgres, ...embedded]
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

async function latencyOf(sluice, jobs, peer) {
  const took = []
  let started = () => {}
  const job = task('latency', {
    input: anything,
    run: ({ since }) => {
      took.push(performance.now() - since)
      started()
    },
  })
  const worker = await sluice.work([job], { concurrency: 2 })
  for (let i = 0; i < jobs + 20; i++) {
    const start = new Promise((resolve) => (started = resolve))
    await job.send({ since: performance.now() })
    await start
    // 20 ms apart, so that the worker is idle again.
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  await worker.stop()
  const sorted = took.slice(20).toSorted((a, b) => a - b)
  const at = (share) => sorted[Math.floor(sorted.length * share)]
  return [
    { bench: 'latency-p50', peer, value: at(0.5), unit: 'ms' },
    { bench: 'latency-p99', peer, value: at(0.99), unit: 'ms' },
  ]
}

/** Claim time while an idle REPEATABLE READ transaction holds back all cleaning: last fifth over first fifth. */
export async function held({ url, jobs = 100_000 }) {
  const { default: pg } = await import('pg')
  return inFreshSchema(url, async (sluice, schema) => {
    const { job, counter } = noop()
    const holder = new pg.Client(url)
    await holder.connect()
    await holder.query('begin isolation level repeatable read')
    await holder.query(`select count(*) from ${schema}.job`)
    const times = []
    const call = sluice.db.call.bind(sluice.db)
    sluice.db.call = async (name, ...rest) => {
      const since = performance.now()
      const rows = await call(name, ...rest)
      if (name === 'claim' && rows[0]?.jobs?.length >= 100)
        times.push((performance.now() - since) / rows[0].jobs.length)
      return rows
    }
    const worker = await sluice.work([job], { concurrency })
    await Promise.all([job.sendMany(inputs(jobs)), untilRan(counter, jobs)])
    await worker.stop()
    await holder.end()
    const fifth = Math.floor(times.length / 5)
    const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1]
    return [
      {
        bench: 'held-xmin',
        peer: 'sluice',
        value: median(times.slice(-fifth)) / median(times.slice(0, fifth)),
        unit: 'last fifth / first fifth',
      },
    ]
  })
}
