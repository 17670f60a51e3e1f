/** The rows or definition of a bucket, however vast or odd, stop no other bucket: no claim fails because of them. */
import { beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { hash64 } from '../../src/core/hash.ts'
import { task } from '../../src/tasks/task.ts'
import { type LimitOptions, limit } from '../../src/limits/limit.ts'
import { claimAll, type Claimed, done, emptied, mainEngines, finish, ownClock, settle } from '../claim/engine.ts'

const startMs = 1_800_000_000_000
const vast = 2_000_000_000
const why = { reason: 'test' }
let names = 0

describe.each(mainEngines)('vast numbers and odd definitions on $name', (engine) => {
  const at = emptied(engine)
  let clock: { set(ms: number): Promise<void> }
  beforeEach(async () => {
    clock = await ownClock(at.db, startMs)
    await clock.set(startMs)
  })
  const input = z.object({ key: z.string() })
  const made = (options: LimitOptions) => {
    const name = `v${++names}`
    const own = limit(name, { transit: 0, ...options, by: 'key' } as LimitOptions & { by: 'key' })
    return task(name, { input, limits: [own], run: () => undefined })
  }
  const other = task('other', { input, run: () => undefined })
  const take = (what: { name: string }, want = 1): Promise<Claimed[]> =>
    claimAll(at.db, at.worker, [what.name, 'other'], want)
  /** Claims in which a job of another task, and one of another key of this limit, start. */
  const goOn = async (what: ReturnType<typeof made>) => {
    await at.sluice.sendMany(what, [{ key: 'a' }, { key: 'b' }])
    await at.sluice.send(other, { key: 'other' })
    expect((await take(what, 3)).map((job) => (job.input as { key: string }).key).toSorted()).toEqual(['b', 'other'])
  }

  it('a settlement beyond 32 bits and a new definition delay that bucket until its window is over, and no other bucket', async () => {
    const bytes = made({ window: '10/min' })
    await at.sluice.sendMany(bytes, [{ key: 'a' }, { key: 'a' }, { key: 'a' }])
    const jobs = await take(bytes, 3)
    for (const job of jobs) await settle(at.db, job, bytes.name, vast)
    await done(at.db, jobs)
    await at.sluice.limits.set(bytes.name, { window: '11/min' }, why)
    await goOn(bytes)
    await clock.set(startMs + 63_000)
    expect(await take(bytes)).toHaveLength(1)
  })

  it('a grant from before a vast debt can be refunded', async () => {
    const slow = made({ rate: '1/day', burst: 2 })
    await at.sluice.sendMany(slow, [{ key: 'a' }, { key: 'a' }])
    const [first] = (await take(slow)) as [Claimed]
    const [second] = (await take(slow)) as [Claimed]
    await settle(at.db, second, slow.name, vast)
    expect(await finish(at.db, [{ job: first, outcome: 'unused' }])).toEqual([])
    await goOn(slow)
  })

  it('a claim with a time in the future is charged for its usage all the same', async () => {
    const bytes = made({ window: '10/min' })
    await at.sluice.sendMany(bytes, [{ key: 'a' }, { key: 'a' }])
    const [job] = (await take(bytes)) as [Claimed]
    await at.db.query('update sluice.claim set at = at + 600000000')
    await at.db.query('delete from sluice.ledger')
    await settle(at.db, job, bytes.name, 11)
    await done(at.db, [job])
    expect(await take(bytes)).toEqual([])
  })

  it('a quota goes on when the periods have ended that were computed before, and its older definitions stay as they are', async () => {
    const few = made({ quota: '1/min' })
    await clock.set(startMs + 10_000)
    await at.sluice.sendMany(few, [{ key: 'a' }, { key: 'a' }, { key: 'a' }, { key: 'a' }, { key: 'a' }])
    await at.sluice.limits.set(few.name, { quota: '2/min' }, why)
    await done(at.db, await take(few, 5))
    await clock.set(startMs + 3_610_000)
    await done(at.db, await take(few, 5))
    expect(await at.db.query('select count(*)::int as waiting from sluice.job')).toEqual([{ waiting: 1 }])
    const reaches = `select version, periods[1][7] > $2::bigint as reaches from sluice.limit_def where name = $1 order by 1`
    expect(await at.db.query(reaches, [few.name, String((startMs + 3_610_000) * 1_000)])).toEqual([
      { version: 1, reaches: false },
      { version: 2, reaches: true },
    ])
  })

  it.each([{ zone: 'Mars/Olympus' }, { zone: null }, { anchorUs: 'noon' }])(
    'a quota whose calendar the store can no longer read (%o) is closed, and no other limit',
    async (calendar) => {
      const daily = made({ quota: '10/day', zone: 'Europe/Berlin' })
      await at.sluice.send(daily, { key: 'a' })
      await done(at.db, await take(daily))
      const change = (to: object) =>
        at.db.query(
          `update sluice.limit_def set spec = jsonb_set(spec, '{rules,0,quota}', spec -> 'rules' -> 0 -> 'quota' || $2) where name = $1`,
          [daily.name, JSON.stringify(to)],
        )
      await change(calendar)
      await clock.set(startMs + 30 * 86_400_000) // The store keeps the starts of some days.
      await at.sluice.send(daily, { key: 'a' })
      await at.sluice.send(other, { key: 'x' })
      expect((await take(daily, 2)).map((job) => (job.input as { key: string }).key)).toEqual(['x'])
      const [hold] = await at.db.query<{ hold: string }>(`select hold from sluice.ledger where bucket = $1`, [
        hash64(`${daily.name}:a`),
      ])
      expect(hold).toEqual({ hold: '0' })
      await change({ zone: 'Europe/Berlin', anchorUs: null })
      await clock.set(startMs + 30 * 86_400_000 + 2_000)
      expect(await take(daily)).toHaveLength(1)
    },
  )
})
