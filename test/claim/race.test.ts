/** Two sessions that write one row at the same moment: a claim and a rescue, a heartbeat and a rescue, a claim and a foreign lock. */
import pg from 'pg'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { Queryable } from '../../src/db/db.ts'
import { sqlOn } from '../../src/db/store.ts'
import { later, until } from '../until.ts'
import { rescue, suspect, watchWorkers, workersSeen } from '../fleet/engine.ts'
import { queryable } from '../servers/database.ts'
import {
  blocked,
  claim,
  claimAll,
  claimsInHand,
  count,
  emptied,
  engines,
  enter,
  mainEngines,
  ownClock,
  quietTask,
} from './engine.ts'
import { planClaim, promoteDue } from './engine-parts.ts'

const quiet = quietTask('quiet')

describe('on two connections', () => {
  const at = emptied(engines[0])
  let client: pg.Client
  let other: Queryable
  beforeEach(async () => {
    client = new pg.Client(at.sluice.url)
    await client.connect()
    other = queryable(client)
  })
  afterEach(() => client.end())

  /** Runs the statement while the other connection's transaction is open, which commits once `meanwhile` waits for it, or is over. */
  const besideCommit = async <T>(meanwhile: Promise<T>): Promise<PromiseSettledResult<T>> => {
    let isOver = false
    const over = later(meanwhile.finally(() => (isOver = true)))
    await until(async () => isOver || (await blocked(at.db)) > 0, 'it waits, or is over')
    await other.query('commit')
    const [settled] = await Promise.allSettled([over])
    return settled
  }

  it('a worker that is rescued during its claim returns the jobs of that claim with the rest', async () => {
    await at.sluice.send(quiet, {})
    await other.query('begin')
    expect((await claim(other, at.worker, ['quiet'], 1)).jobs).toHaveLength(1)
    await besideCommit(rescue(at.db, at.worker))
    expect((await at.sluice.jobs.status()).workers).toBe(0)
    expect(await claimsInHand(at.db)).toBe(0)
    expect(await claimAll(at.db, await enter(at.db), ['quiet'], 1)).toMatchObject([{ attempt: 2, ambiguous: true }])
  })

  it('a worker that claims during its rescue gets nothing', async () => {
    await at.sluice.send(quiet, {})
    await other.query('begin')
    await rescue(other, at.worker)
    const claimed = await besideCommit(claim(at.db, at.worker, ['quiet'], 1))
    expect(claimed).toMatchObject({ status: 'rejected', reason: { code: 'SLW01' } })
    expect(await claimsInHand(at.db)).toBe(0)
  })

  it('a worker whose heartbeat arrives during its rescue is kept', async () => {
    await at.sluice.send(quiet, {})
    const { jobs } = await claim(at.db, at.worker, ['quiet'], 1)
    await suspect(at.db)
    await other.query('begin')
    await sqlOn(other).run('fleet/count_heartbeat', [at.worker])
    await besideCommit(watchWorkers(at.db))
    expect((await at.sluice.jobs.status()).workers).toBe(1)
    expect(await count(at.db, `sluice.job where claim is not null and crashes = 0`)).toBe(jobs.length)
    // The heartbeat is seen to have moved, so the worker is doubted no more.
    await watchWorkers(at.db)
    expect(await workersSeen(at.db, 10_000_000)).toBe(1)
  })

  it('a worker without heartbeats is rescued', async () => {
    await suspect(at.db)
    await watchWorkers(at.db)
    expect((await at.sluice.jobs.status()).workers).toBe(0)
  })

  it('a claim that plans its statements holds no lock for which other claims wait', async () => {
    await other.query('begin')
    // Planning waits for this one, for a second at most.
    await other.query('lock table sluice.ledger in access exclusive mode')
    const plan = (): Promise<unknown> =>
      planClaim(at.db, at.worker).catch((error: { code?: unknown }) => {
        if (error.code !== '55P03') throw error
        return plan()
      })
    const planned = later(plan())
    const held = async () =>
      at.db.query<{ classid: string | null }>(
        `select h.classid from pg_locks w left join pg_locks h on h.pid = w.pid and h.granted and h.classid = 1397511524
         where not w.granted and w.relation = 'sluice.ledger'::regclass`,
      )
    let locks: Awaited<ReturnType<typeof held>> = []
    await until(async () => (locks = await held()).length > 0, 'it waits')
    expect(locks).toEqual([{ classid: null }])
    await other.query('rollback')
    await planned
  })

  it('a due job that a transaction keeps locked stays, and other due jobs go on', async () => {
    await at.sluice.send(quiet, {}, { delay: 1 })
    await at.sluice.send(quiet, {}, { delay: 1 })
    await until(async () => (await count(at.db, 'sluice.job where due_at < sluice.now()')) === 2, 'both are due')
    await other.query('begin')
    const [locked] = await other.query<{ id: string }>('select id from sluice.job order by due_at limit 1 for update')
    const jobs = await claimAll(at.db, at.worker, ['quiet'], 2)
    expect(jobs).toHaveLength(1)
    expect(jobs[0]?.id).not.toBe(locked?.id)
    await other.query('commit')
    expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toMatchObject([{ id: locked?.id }])
  })
})

describe.each(mainEngines)('when the clock of the store was set back by an hour, on $name', (engine) => {
  const at = emptied(engine)
  const startMs = 1_790_000_000_000
  const hourMs = 3_600_000
  let store: Awaited<ReturnType<typeof ownClock>>
  beforeAll(async () => {
    store = await ownClock(at.db, startMs)
    await at.db.query('update sluice.epoch set clock_offset_us = $1', [hourMs * 1_000])
  })
  beforeEach(() => store.set(startMs))

  it('a delay ends by the store clock, without the correction that limits make for the step', async () => {
    const id = await at.sluice.send(quiet, {}, { delay: '30min' })
    const sooner = await at.sluice.send(quiet, {}, { delay: 1 })
    expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toEqual([])
    await store.set(startMs + hourMs / 2 - 1)
    expect(await claimAll(at.db, at.worker, ['quiet'], 2)).toMatchObject([{ id: sooner }])
    await store.set(startMs + hourMs / 2)
    expect(await claimAll(at.db, at.worker, ['quiet'], 1)).toMatchObject([{ id }])
  })

  it('a search for newly due jobs since the last search goes by the store clock, too', async () => {
    await at.sluice.send(quiet, {}, { delay: 1_000 })
    await store.set(startMs + 2_000)
    const promoted = (sinceMs: number) => promoteDue(at.db, (sinceMs + hourMs) * 1_000)
    expect(await promoted(startMs + 1_500)).toBe(0)
    expect(await promoted(startMs + 500)).toBe(1)
  })
})
