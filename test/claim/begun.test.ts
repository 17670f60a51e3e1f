/** A send from a process with an idle worker claims the job in the statement that records it, unless another job comes first. */
import { describe, expect, it } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { rescue } from '../fleet/engine.ts'
import {
  claimAll,
  claimsInHand,
  count,
  done,
  emptied,
  engines,
  enter,
  finish,
  mainEngines,
  ownClock,
  perTenant,
  quietTask,
  sendClaimed,
} from './engine.ts'

const startMs = 1_800_000_000_000

/** A store in which tasks have been worked on before. */
function setting(engine: (typeof engines)[number]) {
  const at = emptied(engine)
  /** Sends one job as a process with an idle worker does; returns the job if it was claimed. */
  const begin = async (to: AnyTask, input = {}, worker = at.worker): Promise<ClaimedJob | undefined> => {
    await at.sluice.define([to])
    return (await sendClaimed(at.db, newId(), worker, to, input))?.[0]
  }
  /** A job of each tenant has run, so that the class, the lanes and the buckets are known. */
  const used = async (to: AnyTask, ...tenants: string[]) => {
    await at.sluice.sendMany(to as never, (tenants.length > 0 ? tenants : ['']).map((tenant) => ({ tenant })) as never)
    await done(at.db, await claimAll(at.db, at.worker, [to.name], 100))
  }
  return Object.assign(at, { begin, used })
}

describe.each(mainEngines)('on $name: a job that is sent by a process with an idle worker', (engine) => {
  const at = setting(engine)
  const wide = () => quietTask('wide', [limit('wide', { rate: '1000/s', burst: 1_000 })])

  it('is claimed and charged in the statement that records it, just as by a claim', async () => {
    const both = quietTask('both', [perTenant('own', '100/s', 100), limit('all', { window: '10/1h' })])
    await at.used(both, 'a')
    await at.sluice.send(both, { tenant: 'a', text: '"ä\u2028' })
    const [claimed] = await claimAll(at.db, at.worker, ['both'], 1)
    const arrivals = await count(at.db, 'sluice.arrival')
    const begun = await at.begin(both, { tenant: 'a', text: '"ä\u2028' })
    // The sender knows the input.
    const own = (job: object | undefined) => ({ ...job, claim: '', id: '', seq: 0, createdMs: 0, input: undefined })
    expect(own(begun)).toEqual(own(claimed))
    const [charged] = await at.db.query<{ n: number; units: number }>(
      'select count(*)::int as n, sum(units)::int as units from sluice.ledger where claim = $1',
      [begun?.claim],
    )
    expect(charged).toEqual({ n: 2, units: 2 })
    expect(await count(at.db, 'sluice.arrival')).toBe(arrivals)
    // No other worker has the job, and it ends like any other.
    expect(await claimAll(at.db, at.worker, ['both'], 10)).toEqual([])
    expect(await at.sluice.jobs.get(begun?.id ?? '')).toMatchObject({ state: 'running', attempt: 1 })
    expect(await done(at.db, [claimed, begun] as never)).toEqual([])
    expect(await claimsInHand(at.db)).toBe(0)
    expect(await at.sluice.jobs.get(begun?.id ?? '')).toMatchObject({ state: 'done' })
  })

  it('is claimed likewise when its task has no limits', async () => {
    const free = quietTask('free')
    await at.used(free)
    for (let i = 0; i < 5; i++) expect(await at.begin(free)).toMatchObject({ buckets: null, attempt: 1 })
    expect(await count(at.db, 'sluice.job where dispatched_at >= created_at')).toBe(5)
  })

  it('is retried like any other job', async () => {
    const to = wide()
    await at.used(to)
    const begun = await at.begin(to)
    await finish(at.db, [{ job: begun as never, outcome: 'retry', delayUs: 0 }])
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toMatchObject([{ id: begun?.id, attempt: 2, failed: 1 }])
  })

  it('waits behind an earlier job of its lane, whether that is ready or still an unread arrival', async () => {
    const to = wide()
    await at.used(to)
    await at.sluice.send(to, {})
    expect(await at.begin(to)).toBe(undefined)
    const first = await claimAll(at.db, at.worker, ['wide'], 1)
    expect(first).toHaveLength(1)
    expect(await at.begin(to)).toBe(undefined)
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(2)
    expect(await at.begin(to)).not.toBe(undefined)
  })

  it('waits while another lane of its class is ready', async () => {
    const to = quietTask('keyed', [perTenant('each', '100/s', 100)])
    await at.used(to, 'a', 'b')
    await at.sluice.sendMany(to, [{ tenant: 'b' }, { tenant: 'b' }])
    await claimAll(at.db, at.worker, ['keyed'], 1)
    expect(await at.begin(to, { tenant: 'a' })).toBe(undefined)
  })

  it('waits for its limits, and behind a job of another task that waits for one of them', async () => {
    const clock = await ownClock(at.db, startMs)
    const one = limit('one', { rate: '1/s', burst: 1 })
    const [first, second] = [quietTask('first', [one]), quietTask('second', [one])]
    await at.used(first)
    expect(await at.begin(first)).toBe(undefined)
    await clock.set(startMs + 2_000)
    expect(await claimAll(at.db, at.worker, ['first'], 5)).toHaveLength(1)
    await clock.set(startMs + 4_000)
    await at.used(second)
    // The job waits for the bucket, which then has room again.
    await at.sluice.send(first, {})
    expect(await claimAll(at.db, at.worker, ['first'], 5)).toEqual([])
    await clock.set(startMs + 6_000)
    expect(await at.begin(second)).toBe(undefined)
    await at.db.query('delete from sluice.limit_pause')
  })

  it('waits while a pause, a gate or a parked bucket holds it back', async () => {
    const to = wide()
    await at.used(to)
    await at.sluice.pause({ limit: 'wide' }, { reason: 'test' })
    expect(await at.begin(to)).toBe(undefined)
    await at.sluice.resume({ limit: 'wide' })
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(1)
    await at.sluice.pause({ task: 'wide' }, { reason: 'test' })
    expect(await at.begin(to)).toBe(undefined)
    await at.sluice.resume({ task: 'wide' })
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(1)
    await at.sluice.pause({ task: 'another*' }, { reason: 'test' })
    expect(await at.begin(to)).not.toBe(undefined)
    await at.db.query('update sluice.bucket set parked = true where id = $1', [hash64('wide')])
    expect(await at.begin(to)).toBe(undefined)
  })

  it('waits while its lane is parked, and after the server restarted', async () => {
    const to = wide()
    await at.used(to)
    const states: [string, string][] = [
      ['update sluice.lane set list = 1', 'update sluice.lane set list = null'],
      ['update sluice.lane set costed = true', 'update sluice.lane set costed = false'],
      ['update sluice.epoch set server_at = now()', 'update sluice.epoch set server_at = pg_postmaster_start_time()'],
    ]
    for (const [set, back] of states) {
      await at.db.query(set)
      expect(await at.begin(to), set).toBe(undefined)
      await at.db.query(back)
      await claimAll(at.db, at.worker, ['wide'], 5)
      expect(await at.begin(to), back).not.toBe(undefined)
    }
  })

  it('has the epoch under which Redis has to confirm it, unless another epoch is just being put in force', async () => {
    const to = wide()
    await at.used(to)
    expect(await at.begin(to)).not.toHaveProperty('epoch')
    await at.db.query(`insert into sluice.shared (owner, epoch, at) values ('test', 'one', now())`)
    expect(await at.begin(to)).toMatchObject({ epoch: 'one' })
    if (engine.name === 'PGlite') return
    // As the statement that replaces the epoch does.
    await at.db.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(1397511523, -15)')
      expect(await at.begin(to)).toBe(undefined)
    })
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(1)
    expect(await at.begin(to)).toMatchObject({ epoch: 'one' })
  })

  it('is claimed likewise when the key of its limit is an email address', async () => {
    const keyed = quietTask('keyed', [perTenant('own', '100/s', 100)])
    await at.used(keyed, 'joe@example.com')
    expect(await at.begin(keyed, { tenant: 'joe@example.com' })).not.toBe(undefined)
  })

  it('is left to claims when its limits need a label or a pool', async () => {
    const labelled = quietTask('labelled', [limit('ip', { rate: '100/s', by: label('host') })])
    const pooled = quietTask('pooled', [limit('sender', { rate: '100/s', pool: ['x', 'y'] } as never)])
    for (const to of [labelled, pooled]) {
      await at.used(to)
      expect(await at.begin(to)).toBe(undefined)
    }
    const to = wide()
    await at.used(to)
    expect(await at.begin(to)).not.toBe(undefined)
  })

  it('is only recorded when the worker is gone, or when its lane is not known yet', async () => {
    const to = wide()
    expect(await at.begin(to)).toBe(undefined)
    await claimAll(at.db, at.worker, ['wide'], 5)
    const gone = await enter(at.db)
    await rescue(at.db, gone)
    expect(await at.begin(to, {}, gone)).toBe(undefined)
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(1)
    expect(await at.begin(to)).not.toBe(undefined)
  })

  it('is returned when its worker signs off, and becomes ambiguous when its worker is lost', async () => {
    const to = wide()
    await at.used(to)
    const [one, two] = [await enter(at.db), await enter(at.db)]
    const [begun, other] = [await at.begin(to, {}, one), await at.begin(to, {}, two)]
    await rescue(at.db, one, 'shutdown')
    await rescue(at.db, two)
    const again = await claimAll(at.db, at.worker, ['wide'], 5)
    expect(again.map(({ id, attempt, ambiguous }) => ({ id, attempt, ambiguous }))).toEqual([
      { id: begun?.id, attempt: 1, ambiguous: false },
      { id: other?.id, attempt: 2, ambiguous: true },
    ])
  })
})

describe('a job that is sent by a process with an idle worker', () => {
  const at = setting(engines[0])

  it('is only recorded when its bucket or its worker is locked: the send does not wait', async () => {
    const to = quietTask('wide', [limit('wide', { rate: '1000/s', burst: 1_000 })])
    await at.used(to)
    const locks = [`1397511523, ($1::bigint & 1023)::int`, `1397511525, ($1::bigint & 2147483647)::int`]
    for (const [i, lock] of locks.entries()) {
      await at.db.transaction(async (tx) => {
        await tx.query(`select pg_advisory_xact_lock(${lock})`, [i === 0 ? hash64('wide') : at.worker])
        expect(await at.begin(to)).toBe(undefined)
      })
      expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(1)
    }
    expect(await at.begin(to)).not.toBe(undefined)
  })

  it('does not overtake a job whose transaction was open when the class was read, and has committed since', async () => {
    const to = quietTask('wide', [limit('wide', { rate: '1000/s', burst: 1_000 })])
    await at.used(to)
    await at.db.transaction(async (tx) => {
      await at.sluice.send(to, {}, { tx: tx as never })
      await at.used(to)
    })
    expect(await at.begin(to)).toBe(undefined)
    expect(await claimAll(at.db, at.worker, ['wide'], 5)).toHaveLength(2)
  })
})
