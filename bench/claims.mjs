// Measures what a claim costs the server: its time and buffers, by pg_stat_statements (server postgres-stats).
import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { counter } from './load.mjs'

/** Reads the statistics of the claims of one database. */
export async function watchClaims({ adminUrl }) {
  const client = new pg.Client(adminUrl)
  client.on('error', () => {})
  await client.connect()
  return {
    reset: () => client.query('select pg_stat_statements_reset()'),
    async read() {
      const { rows } = await client.query(`select sum(calls)::float as calls, sum(total_exec_time)::float as ms,
        max(max_exec_time)::float as longest,
        sum(shared_blks_hit + shared_blks_read + local_blks_hit + local_blks_read)::float as buffers
        from pg_stat_statements where query like 'select * from %.claim_jobs($%'`)
      if (rows[0].calls === null)
        throw new Error('pg_stat_statements has no claim, maybe because the statement is another one')
      return rows[0]
    },
    /** Returns the rows that were inserted or changed since the database was created, by table. */
    async written() {
      await client.query('select pg_sleep(1.5)') // Other sessions report their writes once a second.
      const { rows } = await client.query(`select relname as name, (n_tup_ins + n_tup_upd)::float as n
        from pg_stat_user_tables where schemaname = 'sluice' and n_tup_ins + n_tup_upd > 0 order by 1`)
      return Object.fromEntries(rows.map(({ name, n }) => [name, n]))
    },
    /** Counts the arrivals that no claim has read yet. */
    async unread() {
      const { rows } = await client.query(`select count(*)::int as n from (select 1 from sluice.class c
        cross join lateral (select snap, target from sluice.class_state s where s.class = c.id order by n desc limit 1) s
        where s.target is not null or exists (
          select 1 from sluice.arrival a where a.class = c.id and a.xid >= pg_snapshot_xmax(s.snap))) x`)
      return rows[0].n
    },
    close: () => client.end(),
  }
}

/** Claims one after the other, without a worker's loop; claimed jobs count as running at once. */
export async function claimer({ url }) {
  const client = new pg.Client(url)
  client.on('error', () => {})
  await client.connect()
  const { rows: places } = await client.query(
    String.raw`select nspname from pg_namespace where nspname like 'sluice\_%'`,
  )
  const engine = places[0].nspname
  const { rows: workers } = await client.query(`insert into sluice.worker (host, pid, version, tasks, slots, started_at)
    values ('bench', 1, '0', '{noop}', 1, sluice.now()) returning id`)
  return {
    /** Claims up to `want` jobs; resolves to how many it got, and whether to claim again at once. */
    async claim(want) {
      const { rows } = await client.query({
        name: 'claim',
        text: `select * from ${engine}.claim_jobs($1, $2, '{noop}', $3, null, false)`,
        values: [randomUUID(), workers[0].id, want],
      })
      if (rows[0].announced) await client.query(`select ${engine}.create_announced_classes()`)
      return { count: rows[0].jobs === null ? 0 : JSON.parse(rows[0].jobs).length, again: rows[0].again }
    },
    /** Finishes all claimed jobs. */
    async finish() {
      await client.query(`select ${engine}.finish_attempts(array_agg(distinct c.id), array_agg(distinct c.id), array_agg(j.seq), array_agg(j.id),
        array_agg(array_position(a.ids, j.claim)), array_agg('done'::text), null, null, null, null, null)
        from sluice.job j join sluice.claim c on c.id = j.claim,
        (select array_agg(distinct id order by id) as ids from sluice.claim) a`)
    },
    close: () => client.end(),
  }
}

/** Opens a session whose worker can run a given number of jobs, repeatedly. */
export function stepper(session) {
  const ran = counter()
  return {
    ran,
    async run(jobs) {
      const goal = ran.count + jobs
      const worker = await session.work(ran.handle)
      await ran.until(goal)
      await worker.stop()
    },
  }
}

/** Runs `jobs` more jobs; resolves to the averages of a claim: { ms, buffers, granted }. */
export async function claimCost(watch, steps, jobs) {
  const before = steps.ran.count
  await watch.reset()
  await steps.run(jobs)
  const { calls, ms, buffers } = await watch.read()
  return { ms: ms / calls, buffers: buffers / calls, granted: (steps.ran.count - before) / calls }
}

/** Makes the lines of one point of the curve. */
export function costLines(name, { ms, buffers, granted }) {
  return [
    { bench: `${name}-ms`, value: ms, unit: 'ms/claim' },
    { bench: `${name}-buffers`, value: buffers, unit: 'buffers/claim' },
    { bench: `${name}-granted`, value: granted, unit: 'jobs/claim' },
  ]
}
