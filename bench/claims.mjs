// What a claim costs the server: its time and the buffers that it touches, by pg_stat_statements (server postgres-stats).
import pg from 'pg'
import { counter } from './load.mjs'

/** Watches the claims of one database. */
export async function watchClaims({ adminUrl }) {
  const client = new pg.Client(adminUrl)
  client.on('error', () => {})
  await client.connect()
  return {
    reset: () => client.query('select pg_stat_statements_reset()'),
    async read() {
      const { rows } = await client.query(`select sum(calls)::float as calls, sum(total_exec_time)::float as ms,
        sum(shared_blks_hit + shared_blks_read + local_blks_hit + local_blks_read)::float as buffers
        from pg_stat_statements where query like 'select * from %claim_v%'`)
      return rows[0]
    },
    close: () => client.end(),
  }
}

/** A session whose worker can be let run for a number of jobs, again and again. */
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

/** Claims while `jobs` more run: { ms, buffers, granted } of a claim on average. */
export async function claimCost(watch, steps, jobs) {
  const before = steps.ran.count
  await watch.reset()
  await steps.run(jobs)
  const { calls, ms, buffers } = await watch.read()
  return { ms: ms / calls, buffers: buffers / calls, granted: (steps.ran.count - before) / calls }
}

/** The lines of one point. */
export function costLines(name, { ms, buffers, granted }) {
  return [
    { bench: `${name}-ms`, value: ms, unit: 'ms/claim' },
    { bench: `${name}-buffers`, value: buffers, unit: 'buffers/claim' },
    { bench: `${name}-granted`, value: granted, unit: 'jobs/claim' },
  ]
}
