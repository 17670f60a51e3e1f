// Shared by the scenarios of endurance: full load for minutes with a short backlog, measured all the time.
import pg from 'pg'
import { setTimeout as sleep } from 'node:timers/promises'
import { residentMb } from './cpu.mjs'
import { batches, counter } from './load.mjs'

/** The most jobs that wait: senders pause above it, so that the backlog does not grow. */
const waitingMax = 20_000

/** Warm-up, because Node compiles code that runs often, which would hide the slope to measure. */
const warmUpS = 5

/** `held`: an idle transaction holds a snapshot from the start, so that no dead row can be removed. */
export function enduring({ name, held }) {
  return {
    name,
    about: `full load for minutes${held ? ' while an idle REPEATABLE READ transaction holds back all cleaning' : ''}: jobs a second, the last part beside the first, dead rows, sizes`,
    peers: ['sluice', 'graphile-worker', 'pg-boss', ...(held ? [] : ['bullmq'])],
    runs: 1,
    full: { seconds: 600, part: 60 },
    quick: { seconds: 20, part: 4 },
    limitS: ({ seconds }) => seconds + 300,
    shape: () => ({ kind: 'throughput' }),
    run: (asked) => enduringRun(name, held, asked),
  }
}

async function enduringRun(name, held, { peer, place, options: { seconds, part }, shape }) {
  const session = await peer.open(place, shape)
  const ran = counter()
  const worker = await session.work(ran.handle)
  const [batch] = batches(1000)
  await session.sendMany(batch)
  await ran.until(batch.length)
  const admin = place.adminUrl === undefined ? undefined : new pg.Client(place.adminUrl)
  await admin?.connect()
  const holder = held ? await hold(place.adminUrl) : undefined
  const sizeBefore = await sizeOf(admin)
  let sent = batch.length
  let isOn = true
  const sender = (async () => {
    while (isOn) {
      if (sent - ran.count < waitingMax) {
        await session.sendMany(batch)
        sent += batch.length
      } else await sleep(1)
    }
  })()
  await sleep(warmUpS * 1000)
  const counts = []
  const rss = []
  const ranBefore = ran.count
  for (let second = 0; second < seconds; second++) {
    await sleep(1000)
    counts.push(ran.count)
    rss.push(residentMb(process.pid))
  }
  isOn = false
  await sender
  const between = (from, to) => (counts[to - 1] - (from === 0 ? ranBefore : counts[from - 1])) / (to - from)
  const first = between(0, part)
  const last = between(seconds - part, seconds)
  const dead = await deadRows(admin)
  const grown = admin === undefined ? undefined : (await sizeOf(admin)) - sizeBefore
  await holder?.end()
  await admin?.end()
  await worker.stop()
  await session.close()
  return [
    { bench: `${name}-rate`, value: between(0, seconds), unit: 'jobs/s' },
    {
      bench: `${name}-last`,
      value: (last / first) * 100,
      unit: `% of the first ${part} s`,
      perPart: parts(between, seconds, part),
    },
    { bench: `${name}-dead`, value: dead, unit: 'dead rows' },
    {
      bench: `${name}-grown`,
      value: grown === undefined ? undefined : grown / 2 ** 20,
      unit: 'MB more in the database',
    },
    { bench: `${name}-rss`, value: rss.at(-1), unit: 'MB' },
    {
      bench: `${name}-rss-growth`,
      value: rss.at(-1) - rss[Math.min(part, rss.length) - 1],
      unit: `MB more than after ${part} s`,
    },
  ]
}

/** Returns the jobs a second in each part, which show the slope. */
function parts(between, seconds, part) {
  const starts = Array.from({ length: Math.floor(seconds / part) }, (_, i) => i * part)
  return starts.map((from) => Math.round(between(from, from + part)))
}

async function hold(adminUrl) {
  const client = new pg.Client(adminUrl)
  client.on('error', () => {})
  await client.connect()
  await client.query('begin isolation level repeatable read')
  await client.query('select count(*) from pg_class')
  return client
}

async function sizeOf(client) {
  if (client === undefined) return undefined
  const { rows } = await client.query('select pg_database_size(current_database())::float as size')
  return rows[0].size
}

async function deadRows(client) {
  if (client === undefined) return undefined
  const { rows } = await client.query('select coalesce(sum(n_dead_tup), 0)::float as dead from pg_stat_user_tables')
  return rows[0].dead
}
