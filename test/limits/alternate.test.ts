/** Versions of the code with different definitions of one limit that start over and over: definitions do not accumulate. */
import { randomUUID } from 'node:crypto'
import { z } from 'zod'
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import type { Rate } from '../../src/core/rate.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { limit } from '../../src/limits/limit.ts'
import { claimAll, count, emptied, endOverdue, mainEngines, ownClock } from '../claim/engine.ts'
import { takeIn, taker } from '../takes/engine.ts'
import { renewDefinitions } from '../claim/engine-parts.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { addBucket } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = 1_800_000_000_000
let names = 0

describe.each(mainEngines)(
  'on $name, processes that start in turns with different definitions of one limit',
  (engine) => {
    const at = emptied(engine)
    const digests = new Map<Rate, string>()
    let name: string
    let nowMs: number
    let clock: { set(ms: number): Promise<void> }
    beforeEach(async () => {
      name = `turns${++names}`
      nowMs = startMs
      clock = await ownClock(at.db, startMs)
      await clock.set(startMs)
      await addBucket(at.db, name, 'a')
      await workerSince('infinity')
      await at.db.query('delete from sluice.limit_source')
    })
    /** Starts a process that has this rate in its code. */
    const start = async (rate: Rate, afterMs = 60_000) => {
      await clock.set((nowMs += afterMs))
      digests.set(rate, await defineLimit(sqlOn(at.db), limit(name, { window: rate, concurrency: 9 })))
    }
    /** A process that has this rate in its code reports that it is alive. */
    const renew = async (rate: Rate, afterMs: number) => {
      await clock.set((nowMs += afterMs))
      await renewDefinitions(at.db, { [name]: digests.get(rate) })
    }
    /** A worker of these processes lives since then. */
    const workerSince = (time: string) => at.db.query('update sluice.worker set started_at = $1', [time])
    const beside = async () => (await at.sluice.limits.show(name)).beside.map(({ numbers }) => numbers.window)
    const take = async () => {
      const [row] = await at.db.query<{ granted: boolean }>(`select granted from ${takeIn('$1', '$2::bigint[]')}`, [
        randomUUID(),
        [hash64(`${name}:a`)],
      ])
      return row?.granted
    }
    const inForce = async () => (await at.sluice.limits.show(name)).numbers.window
    const versions = () => count(at.db, `sluice.limit_def where name = '${name}'`)

    it('append nothing once they have come and gone twice within an hour, and the newer code is in force', async () => {
      for (let n = 0; n < 100; n++) {
        await start('3/min')
        await start('5/min')
        if (n % 10 === 0) await take()
      }
      expect(await versions()).toBeLessThan(8)
      // While code with 3/min comes back again and again, both hold.
      expect(await inForce()).toBe('5/min')
      const granted = [await take(), await take(), await take(), await take()]
      expect(granted).toEqual([true, true, true, false])
    })

    it('both hold until one has been gone for 15 s, whichever started first, and a definition of an operator holds alone', async () => {
      await start('3/min')
      await start('5/min', 1_000)
      expect((await at.sluice.limits.show(name)).beside).toMatchObject([{ numbers: { window: '3/min' } }])
      await renew('5/min', 14_000)
      expect((await at.sluice.limits.show(name)).beside).toHaveLength(1)
      await renew('5/min', 2_000)
      expect(await at.sluice.limits.show(name)).toMatchObject({ numbers: { window: '5/min' }, beside: [] })
      await renew('5/min', 3_700_000)
      await start('3/min', 1_000)
      expect(await take()).toBe(true)
      await at.sluice.limits.set(name, { window: '9/min' }, { reason: 'they allow more' })
      expect(await at.sluice.limits.show(name)).toMatchObject({ numbers: { window: '9/min' }, beside: [] })
      await at.sluice.limits.unset(name)
      expect((await at.sluice.limits.show(name)).beside).toHaveLength(1)
      await renew('3/min', 16_000)
      expect(await at.sluice.limits.show(name)).toMatchObject({ numbers: { window: '3/min' }, beside: [] })
      const history = await at.sluice.limits.history(name)
      expect(
        history.map(({ numbers, beside }) => [numbers.window, ...beside.map((other) => other.numbers.window)]),
      ).toEqual([
        ['3/min'],
        ['5/min', '3/min'],
        ['9/min'],
        ['5/min', '3/min'],
        ['5/min'],
        ['5/min', '3/min'],
        ['3/min'],
      ])
    })

    it('end no definition of the other process because the store was away from both, or its clock was set', async () => {
      await workerSince('-infinity')
      await start('3/min')
      await start('50/min', 1_000)
      await renew('50/min', 60_000)
      expect(await beside()).toEqual(['3/min'])
      await renew('3/min', 5_000)
      await renew('50/min', 9_000)
      expect(await beside()).toEqual(['3/min'])
      await renew('50/min', 7_000)
      expect(await beside()).toEqual([])
    })

    it('end no definition of a fleet from which the store was away before they started', async () => {
      await workerSince('-infinity')
      await start('3/min')
      await start('50/min', 1_000)
      for (const rate of ['3/min', '50/min', '3/min', '50/min'] as const) await renew(rate, 5_000)
      await start('7/min', 60_000)
      expect(await beside()).toEqual(['50/min', '3/min'])
      await renew('7/min', 5_000)
      expect(await beside()).toEqual(['50/min', '3/min'])
      await renew('3/min', 5_000)
      await renew('7/min', 5_000)
      expect(await beside()).toEqual(['3/min'])
      await renew('7/min', 14_000)
      expect(await beside()).toEqual([])
    })

    it('end a definition that no process has had for an hour, however seldom the others record theirs', async () => {
      await workerSince('-infinity')
      await start('3/min')
      for (let minute = 0; minute < 60; minute++) {
        await start('50/min')
        expect(await beside()).toEqual(['3/min'])
      }
      await start('50/min')
      expect(await beside()).toEqual([])
    })

    it('end a definition that another limit of the same process has, too', async () => {
      await start('3/min')
      await start('5/min', 1_000)
      const other = await defineLimit(sqlOn(at.db), limit(`${name}-other`, { window: '3/min', concurrency: 9 }))
      await clock.set((nowMs += 16_000))
      await renewDefinitions(at.db, { [name]: digests.get('5/min'), [`${name}-other`]: other })
      expect((await at.sluice.limits.show(name)).beside).toEqual([])
    })

    it('a job that only the newer code allows keeps no other jobs waiting', async () => {
      await start('3/min')
      await clock.set((nowMs += 1_000))
      const input = z.object({ cost: z.number() })
      const own = limit(name, { window: '50/min', concurrency: 9, cost: (job: { cost: number }) => job.cost })
      const [dear, cheap] = [`${name}-dear`, `${name}-cheap`].map((of) =>
        task(of, { input, limits: [own], run: () => undefined }),
      ) as [AnyTask, AnyTask]
      await at.sluice.send(dear, { cost: 20 })
      await at.sluice.sendMany(cheap, copies(9, { cost: 1 }))
      const both = [dear.name, cheap.name]
      const begun: unknown[] = []
      for (let n = 0; n < 4; n++) {
        await clock.set((nowMs += 30_000))
        for (const job of await claimAll(at.db, at.worker, both, 5)) begun.push(job.input)
      }
      expect(begun).toEqual(copies(6, { cost: 1 }))
    })

    it.each([
      [{ rate: '20/min', burst: 20 }, { rate: '18/min' }],
      [{ rate: '18/min' }, { rate: '20/min', burst: 20 }],
    ] as const)('are proved each by its own kind of bucket: %j, then %j', async (older, newer) => {
      for (const numbers of [older, newer]) {
        await clock.set((nowMs += 1_000))
        await defineLimit(sqlOn(at.db), limit(name, numbers))
      }
      for (let n = 0; n < 90; n++) {
        await clock.set((nowMs += 2_000))
        await take()
      }
      expect(await count(at.db, `sluice.ledger where bucket = ${hash64(`${name}:a`)} and units > 0`)).toBeGreaterThan(
        40,
      )
      const { isProved, rules } = await at.sluice.verify({ limit: name })
      expect(isProved).toBe(true)
      expect(rules.filter(({ version }) => version === 2).map(({ rate }) => rate)).toEqual(
        'burst' in newer ? ['bucket(20, 20/min)', '18/min'] : ['18/min', 'bucket(20, 20/min)'],
      )
    })

    it('give keys and shares as the code that appeared last has them, also when the clock was set back meanwhile', async () => {
      await start('3/min')
      await start('5/min', -600_000)
      expect(await inForce()).toBe('5/min')
      const shared = (lendAfter: '1min' | '2min') =>
        limit(`${name}-shared`, { rate: '100/min', shares: { some: 0.3 }, lendAfter })
      for (const lendAfter of ['1min', '2min'] as const) {
        await clock.set((nowMs += 60_000))
        await defineLimit(sqlOn(at.db), shared(lendAfter))
      }
      const rows = await at.db.query(
        'select lend_us from sluice.limit_def where name = $1 order by version desc limit 1',
        [`${name}-shared/`],
      )
      expect(rows).toEqual([{ lend_us: '120000000' }])
    })

    it('a job that only the newer code allows waits for the older to be gone, and jobs that both allow pass it', async () => {
      await start('3/min')
      await start('50/min', 1_000)
      const own = limit(name, {
        window: '50/min',
        concurrency: 9,
        cost: (job: { n: number }) => job.n,
      })
      const work = task(name, { input: z.object({ n: z.number() }), limits: [own], run: () => undefined })
      const ids: string[] = []
      for (const n of [20, 1, 2]) ids.push(await at.sluice.send(work, { n }))
      const begun = async () => (await claimAll(at.db, at.worker, [name], 9)).map(({ id }) => id)
      expect(await begun()).toEqual(ids.slice(1))
      await endOverdue(at.db)
      const text = 'older code that still runs does not allow its cost'
      expect((await at.sluice.why(ids[0] as string))?.reasons).toContainEqual(expect.objectContaining({ text }))
      await renew('50/min', 14_000)
      await renew('50/min', 2_000)
      await clock.set((nowMs += 15_000))
      expect(await begun()).toEqual(ids.slice(0, 1))
    })

    it('a take that only the newer code allows waits for the older to be gone, and others pass it', async () => {
      await start('3/min')
      await start('50/min', 1_000)
      const dear = taker(at.db, `${name}:a`, 20)
      expect(await dear()).toMatchObject({ granted: false, waitMs: 1_000 })
      expect(await taker(at.db, `${name}:a`, 3)()).toMatchObject({ granted: true })
      await renew('50/min', 14_000)
      await renew('50/min', 2_000)
      expect(await dear()).toMatchObject({ granted: true })
    })

    it('keep the newest hundred definitions, and those under which a bucket may have been written', async () => {
      await start('7/min')
      expect(await take()).toBe(true)
      for (let n = 10; n < 140; n++) await start(`${n}/min` as Rate)
      await at.sluice.prune()
      const kept = await at.db.query<{ version: number }>(
        'select version from sluice.limit_def where name = $1 order by 1',
        [name],
      )
      expect(kept.map(({ version }) => version)).toEqual([1, ...Array.from({ length: 100 }, (_, n) => 32 + n)])
      expect(await take()).toBe(true)
      expect(await at.sluice.limits.history(name, { max: 1_000 })).toHaveLength(101)
    })

    it('keep a definition that did not count running jobs, because counts of an older one are no longer valid', async () => {
      await start('7/min')
      expect(await take()).toBe(true)
      await clock.set((nowMs += 60_000))
      await defineLimit(sqlOn(at.db), limit(name, { window: '8/min' }))
      for (let n = 10; n < 140; n++) await start(`${n}/min` as Rate)
      await at.sluice.prune()
      expect(await count(at.db, `sluice.limit_def where name = '${name}' and version <= 2`)).toBe(2)
    })
  },
)
