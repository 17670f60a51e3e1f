import pg from 'pg'
import { expect, test, onTestFinished } from 'vitest'
import { silent } from '../../src/core/log.ts'
import { Heartbeat } from '../../src/fleet/heartbeat.ts'
import { emptyDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

/** A database whose table `beat` counts the beats of two workers. */
async function stage() {
  const { url } = await emptyDatabase()
  const client = new pg.Client(url)
  await client.connect()
  onTestFinished(() => client.end())
  await client.query(`create table beat as select worker, 0 as n from unnest('{a,b}'::text[]) worker`)
  const lost: string[] = []
  return {
    client,
    /** The losses that were reported. */
    lost,
    count: async (worker: string) => {
      const { rows } = await client.query<{ n: number }>('select n from beat where worker = $1', [worker])
      return rows[0]?.n ?? 0
    },
    connections: async () => {
      const { rows } = await client.query<{ n: number }>(`select count(*)::int as n from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`)
      return rows[0]?.n
    },
    begin(worker: string, beatMs = 20) {
      const heartbeat = new Heartbeat({
        url,
        sql: 'update beat set n = n + 1 where worker = $1',
        beatMs,
        lost: (id) => void lost.push(`${id} of ${worker}`),
        log: silent,
      })
      heartbeat.beatFor(worker)
      return heartbeat
    },
  }
}

test('the workers of a process share a thread, in which each beats for itself, until it stops or is given up', async () => {
  const { client, lost, count, connections, begin } = await stage()
  const [a, b] = [begin('a'), begin('b')]
  await until(async () => (await count('a')) > 1 && (await count('b')) > 1, 'both beat')

  a.stop()
  await until(async () => (await connections()) === 1, 'the first has ended')
  const [before, others] = [await count('a'), await count('b')]
  await until(async () => (await count('b')) > others + 1, 'the second goes on')
  expect(await count('a')).toBe(before)

  await client.query(`delete from beat where worker = 'b'`)
  await until(() => lost.length > 0, 'the second is given up')
  expect(lost).toEqual(['b of b'])
  b.stop()
  await until(async () => (await connections()) === 0, 'the second has ended')
})

test('the thread connects only for a worker whose rounds have stopped', async () => {
  const { count, connections, begin } = await stage()
  const [a, b] = [begin('a', 1_000), begin('b')]
  const rounds = setInterval(() => a.recordBeat(), 1)
  // Meanwhile the thread checks the first one, too.
  await until(async () => (await count('b')) > 60, 'the second beats')
  expect(await connections()).toBe(1)
  clearInterval(rounds)
  await until(async () => (await count('a')) > 1, 'the first beats')
  a.stop()
  b.stop()
  await until(async () => (await connections()) === 0, 'both have ended')
})
