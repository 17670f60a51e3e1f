// Deleting finished jobs: dropping a partition, compared with DELETE and VACUUM FULL of a table with the same rows.
import pg from 'pg'
import { engineSchema } from '../../dist/db/store.js'
import { counter, fill } from '../load.mjs'

const engine = engineSchema('sluice')
const oldDayMs = 30 * 86_400_000
const portion = 500_000

export default {
  name: 'storage',
  about:
    'size of finished jobs, and getting rid of a day of them: prune (drops the partition) beside DELETE + VACUUM FULL of the same rows in one table: seconds, longest wait of a writer, bytes given back',
  peers: ['sluice'],
  runs: 1,
  full: { jobs: 10_000_000 },
  quick: { jobs: 100_000 },
  limitS: ({ jobs }) => 300 + jobs / 2_000,
  shape: () => ({ kind: 'throughput' }),
  async run({ peer, place, options: { jobs }, shape }) {
    const session = await peer.open(place, shape)
    await runSome(session)
    const client = await connect(place.url)
    const partition = await makeOldDay(client)
    await client.query(`create table plain (like sluice.done including all)`)
    await fillWith(client, partition, jobs)
    await client.query(`insert into plain select * from ${partition}`)
    await client.query('analyze')
    const bytes = await sizeOf(client, partition)
    const drop = await watched(place, client, 'sluice.done', () => session.sluice.prune())
    const plainBytes = await sizeOf(client, 'plain')
    const remove = await watched(place, client, 'plain', () =>
      client.query("delete from plain where finished_at < clock_timestamp() - interval '1 day'"),
    )
    const vacuum = await watched(place, client, 'plain', () => client.query('vacuum (full) plain'))
    const left = await sizeOf(client, 'plain')
    await client.end()
    await session.close()
    const mb = (value) => value / 2 ** 20
    return [
      { bench: 'storage-bytes', value: bytes / jobs, unit: 'bytes/finished job, indexes included' },
      { bench: 'storage-drop', value: drop.tookS, unit: 's' },
      { bench: 'storage-drop-wait', value: drop.longestMs, unit: 'ms: longest wait of a writer' },
      { bench: 'storage-drop-freed', value: mb(drop.freed), unit: 'MB' },
      { bench: 'storage-delete', value: remove.tookS, unit: 's' },
      { bench: 'storage-delete-wait', value: remove.longestMs, unit: 'ms: longest wait of a writer' },
      { bench: 'storage-delete-freed', value: mb(remove.freed), unit: 'MB' },
      { bench: 'storage-vacuum-full', value: vacuum.tookS, unit: 's' },
      { bench: 'storage-vacuum-full-wait', value: vacuum.longestMs, unit: 'ms: longest wait of a writer' },
      { bench: 'storage-vacuum-full-freed', value: mb(plainBytes - left), unit: 'MB' },
    ]
  },
}

/** Runs a few jobs, whose history rows are the model for the others. */
async function runSome(session) {
  await fill(session, 100)
  const ran = counter()
  const worker = await session.work(ran.handle)
  await ran.until(100)
  await worker.stop()
}

async function connect(url) {
  const client = new pg.Client(url)
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Creates the partition of a day a month ago, as maintenance would have. */
async function makeOldDay(client) {
  const day = Math.floor((Date.now() - oldDayMs) / 86_400_000) * 86_400_000
  const name = `done_${new Date(day).toISOString().slice(0, 10).replaceAll('-', '')}`
  await client.query(`create table sluice.${name} partition of sluice.done
    for values from (${engine}.id_floor(${day})) to (${engine}.id_floor(${day + 86_400_000}))`)
  return `sluice.${name}`
}

/** Inserts rows like those of the jobs that ran, with ids and times of that day. */
async function fillWith(client, partition, jobs) {
  const day = Date.parse(partition.replace(/.*_(\d{4})(\d\d)(\d\d)$/, '$1-$2-$3T00:00:00Z'))
  const { rows: columns } = await client.query(`select attname as name from pg_attribute
    where attrelid = 'sluice.done'::regclass and attnum > 0 and not attisdropped order by attnum`)
  const at = `to_timestamp((${day} + n * 86399999.0 / ${jobs}) / 1000)`
  const own = {
    id: `overlay(replace(gen_random_uuid()::text, '-', '') placing
      lpad(to_hex((${day} + n * 86399999.0 / ${jobs})::bigint), 12, '0') || '7' from 1 for 13)::uuid`,
    created_at: at,
    dispatched_at: at,
    started_at: at,
    finished_at: at,
  }
  const picked = columns.map(({ name }) => own[name] ?? `t.${name}`)
  for (let from = 0; from < jobs; from += portion) {
    const to = Math.min(from + portion, jobs) - 1
    await client.query(`insert into ${partition} (${columns.map(({ name }) => name).join(', ')})
      select ${picked.join(', ')} from (select * from sluice.done limit 1) t, generate_series(${from}, ${to}) n`)
  }
}

async function sizeOf(client, table) {
  const { rows } = await client.query('select pg_total_relation_size($1::regclass)::float as size', [table])
  return rows[0].size
}

/** Measures how long it takes, how many bytes it frees, and the longest wait of steady writers to `table`. */
async function watched(place, client, table, body) {
  const writer = await connect(place.url)
  const size = async () =>
    (await client.query('select pg_database_size(current_database())::float as size')).rows[0].size
  const before = await size()
  let isOn = true
  let longestMs = 0
  const writing = (async () => {
    while (isOn) {
      const since = performance.now()
      await writer.query(`insert into ${table} (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, finished_at)
        select ${engine}.new_id(), 'done', 'noop', 'noop', 0, 1, 0, 0, false, clock_timestamp(), clock_timestamp()`)
      longestMs = Math.max(longestMs, performance.now() - since)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  })()
  const since = performance.now()
  await body()
  const tookS = (performance.now() - since) / 1000
  isOn = false
  await writing
  await writer.end()
  return { tookS, longestMs, freed: before - (await size()) }
}
