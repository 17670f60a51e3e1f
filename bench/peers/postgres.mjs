// The upper bound: what the same server does with rows of the same columns and indexes as Sluice's, without limits, fence,
// or order between tenants. It is not a queue to use.
import pg from 'pg'
import { newId, Sluice } from '../../dist/index.js'

const batch = 500
const insert = `insert into bench.job (id, lane, priority, created_at, task, queue, buckets, input)
  select id, 1, 0, clock_timestamp(), 'noop', 'default', '{shared}', input::jsonb from unnest($1::uuid[], $2::text[]) u (id, input)`
const claim = `update bench.job set claim = $1, attempt = attempt + 1, dispatched_at = clock_timestamp() where id = any (array(
  select id from bench.job where due_at is null and claim is null and lane = 1 and seq > $3 order by lane, seq limit $2
  for update skip locked)) returning id, seq::text, input`
const finish = `with gone as (delete from bench.job where id = any ($1) returning *)
  insert into bench.done (id, state, task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at,
    started_at, finished_at, buckets, input, claim)
  select id, 'done', task, queue, priority, attempt, failed, crashes, ambiguous, created_at, dispatched_at, dispatched_at,
    clock_timestamp(), buckets, input, claim from gone`

async function open({ url }) {
  // Sluice's migrations create the tables that these are copied from.
  const sluice = await Sluice.open({ store: url })
  await sluice.db.script(`create schema bench;
    create table bench.job (like sluice.job including all);
    create table bench.done (like sluice.done including all)`)
  await sluice.close()
  const pool = new pg.Pool({ connectionString: url, max: 20 })
  const ask = (name, text, values) => pool.query({ name, text, values })
  const record = (inputs) =>
    ask('insert', insert, [inputs.map(() => newId()), inputs.map((input) => JSON.stringify(input))])
  return {
    sendOne: (input) => record([input]),
    sendMany: record,
    async work(handle) {
      let isOn = true
      // Each claimer continues from its last position, so it never walks over deleted rows.
      let since = '0'
      const loop = async () => {
        let finishing = Promise.resolve()
        while (isOn) {
          const { rows } = await ask('claim', claim, [newId(), batch, since])
          if (rows.length === 0) {
            await new Promise((resolve) => setTimeout(resolve, 1))
            continue
          }
          since = rows.reduce((most, { seq }) => (BigInt(seq) > BigInt(most) ? seq : most), since)
          for (const { input } of rows) handle(input)
          await finishing
          finishing = ask('finish', finish, [rows.map(({ id }) => id)])
        }
        await finishing
      }
      const done = loop()
      return {
        stop: () => {
          isOn = false
          return done
        },
      }
    },
    close: () => pool.end(),
  }
}

export default {
  name: 'postgres',
  packages: ['pg'],
  server: 'postgres',
  settings: () =>
    `the ceiling: inserts of 1,000 rows, claims and finishes of ${batch}, one loop, same columns and indexes`,
  open,
}
