/** A worker that was given up reports on a job that another one runs by then: the report changes nothing. */
import { describe, expect, it } from 'vitest'
import type { Readmission } from '../../src/tasks/placement.ts'
import { limit } from '../../src/limits/limit.ts'
import {
  claimAll,
  type Claimed,
  claimsInHand,
  done,
  emptied,
  enter,
  finish,
  mainEngines,
  perTenant,
  quietTask,
  settle,
} from './engine.ts'
import { further } from '../takes/engine.ts'
import { rescue } from '../fleet/engine.ts'

const by = ({ tenant = '' }: { tenant?: string | undefined }) => tenant
const task = quietTask('late', [perTenant('calls', '1000/h', 1_000), limit('seats', { concurrency: 2, by })])
const outcomes = ['done', 'failed', 'retry', 'return', 'unused', 'denied', 'readmit', 'discard', 'interrupt']

describe.each(mainEngines)('a worker that was given up, on $name', (engine) => {
  const at = emptied(engine)

  /** A job that was lost once: as the first worker had it, and in the hands of the second. */
  const lost = async (): Promise<[Claimed, Claimed]> => {
    await at.sluice.send(task, { tenant: 'a' })
    const [first] = await claimAll(at.db, at.worker, ['late'], 1)
    await rescue(at.db, at.worker)
    const [second] = await claimAll(at.db, await enter(at.db), ['late'], 1)
    return [first as Claimed, second as Claimed]
  }
  /** The job, and the usage of its limits. */
  const look = async () => ({
    job: await at.db.query(
      'select id, claim, attempt, failed, crashes, ambiguous, due_at, queue, error from sluice.job',
    ),
    limits: await at.db.query(
      `select b.name, sum(l.units)::int as units, (select debt[1]::text from sluice.ledger n where n.bucket = b.id order by at desc, n.n desc limit 1) as debt
       from sluice.bucket b join sluice.ledger l on l.bucket = b.id where b.name = 'seats' group by b.id
       union all select b.name, sum(l.units)::int, '' from sluice.bucket b join sluice.ledger l on l.bucket = b.id where b.name = 'calls' group by b.id`,
    ),
    claims: await claimsInHand(at.db),
  })

  it.each(outcomes)('changes nothing when it reports %s for a job that another one runs', async (outcome) => {
    const [first, second] = await lost()
    const before = await look()
    const report = {
      job: first,
      outcome,
      beganUs: 1_000,
      reason: 'exhausted',
      result: '1',
      error: null,
      delayUs: 1_000,
    }
    const place = { lane: '1', queue: 'other', buckets: null } as Readmission
    expect(await finish(at.db, [outcome === 'readmit' ? { ...report, place } : report])).toEqual([first.seq])
    expect(await look()).toEqual(before)
    expect(await done(at.db, [second])).toEqual([])
    expect((await at.sluice.jobs.status()).done).toBe(1)
  })

  it('changes nothing when it settles', async () => {
    const [first] = await lost()
    const before = await look()
    expect(await settle(at.db, first, 'calls', 0, { isFull: true })).toBe(true)
    expect(await look()).toEqual(before)
  })

  it('changes nothing when it requests a further grant, or gives one back', async () => {
    const [first] = await lost()
    const before = await look()
    const answer = await further(at.db, first, ['calls:a', 'seats:a'], { back: first.claim })
    expect(answer).toEqual({ granted: false, lost: true })
    expect(await look()).toEqual(before)
  })

  it("takes nothing from another worker's attempt of a job that it once had, when it is rescued itself", async () => {
    await at.sluice.sendMany(task, [{ tenant: 'a' }, { tenant: 'a' }])
    const [job, kept] = (await claimAll(at.db, at.worker, ['late'], 2)) as [Claimed, Claimed]
    await finish(at.db, [{ job, outcome: 'retry', delayUs: 0 }], [])
    const [again] = (await claimAll(at.db, await enter(at.db), ['late'], 1)) as [Claimed]
    expect(again.id).toBe(job.id)
    await rescue(at.db, at.worker)
    expect(await at.db.query('select id, claim, crashes from sluice.job order by seq')).toEqual([
      { id: job.id, claim: again.claim, crashes: 0 },
      { id: kept.id, claim: null, crashes: 1 },
    ])
    expect(await done(at.db, [again])).toEqual([])
  })
})
