/** Sends beside an idle worker, on a server that prepares transactions for two-phase commit, or commits slowly. */
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { Sluice } from '../../src/sluice.ts'

import { quietTask } from '../claim/engine.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres.ts'
import { until } from '../until.ts'
import { calls } from './calls.ts'
import { idleWorkers, sendCalls } from './engine.ts'

const quiet = quietTask('quiet')

describe('beside an idle worker', () => {
  let server: PostgresServer
  let sluice: Sluice
  let client: pg.Client
  let stop: () => Promise<unknown>
  beforeAll(async () => {
    server = await startPostgres({ settings: { max_prepared_transactions: 5 } })
    sluice = await Sluice.open({ store: server.url })
    const worker = await sluice.work([quiet])
    stop = () => worker.stop()
    client = new pg.Client(server.url)
    await client.connect()
  })
  afterAll(async () => {
    await client.end()
    await stop()
    await sluice.close()
    await server.close()
  })

  it.each<[string, () => Promise<string>]>([
    ['a send', () => sluice.send(quiet, { n: 1 }, { tx: client, notify: false })],
    ['a send with tags', () => sluice.send(quiet, { n: 1 }, { tx: client, notify: false, tags: ['tagged'] })],
    [
      'sluice.send in SQL',
      async () => {
        const { rows } = await client.query<{ id: string }>(
          `select sluice.send('quiet', '{"n": 1}', '{"notify": false}') as id`,
        )
        return rows[0]?.id as string
      },
    ],
    [
      'many',
      async () => {
        await sluice.sendMany(quiet, [{ n: 1 }, { n: 2 }], { tx: client, notify: false })
        const { rows } = await client.query<{ id: string }>(`select id from sluice.job limit 1`)
        return rows[0]?.id as string
      },
    ],
  ])('a prepared transaction commits with %s without notification, and the worker finds the job', async (_, send) => {
    await until(async () => (await idleWorkers(sluice.db)).length === 1, 'the worker is idle')
    await client.query('begin')
    const id = await send()
    await client.query(`prepare transaction 'other'`)
    await client.query(`commit prepared 'other'`)
    // In its next rounds: every 2 s one worker looks for all.
    expect(await sluice.waitFor(id, { timeout: '20s' })).toMatchObject({ state: 'done' })
  })

  it('a prepared transaction is refused by PostgreSQL when the send notifies', async () => {
    await until(async () => (await idleWorkers(sluice.db)).length === 1, 'the worker is idle')
    await client.query('begin')
    await sluice.send(quiet, { n: 1 }, { tx: client })
    await expect(client.query(`prepare transaction 'other'`)).rejects.toThrow(/LISTEN, UNLISTEN, or NOTIFY/)
    await client.query('rollback')
  })

  it('a send with an id waits while others commit notifications slowly, and is not sent again', async () => {
    // Each commit of a notification takes 0.1 s, in which no other one can commit.
    const slow = new pg.Client(server.adminUrl)
    await slow.connect()
    await slow.query('set commit_delay = 100000; set commit_siblings = 0; create table slow (n integer)')
    let isOver = false
    const commits = (async () => {
      while (!isOver) await slow.query(`begin; insert into slow values (1); notify slow; commit`)
    })()
    try {
      const called = await calls(sluice.db, sendCalls.general, async () => {
        for (let n = 1; n <= 3; n++) {
          await until(async () => (await idleWorkers(sluice.db)).length === 1, 'the worker is idle')
          await sluice.send(quiet, { n }, { id: newId() })
        }
      })
      expect(called).toBe(3)
    } finally {
      isOver = true
      await commits
      await slow.end()
    }
  })
})
