/** Takes of limits outside of jobs, one by one, on a clock of the test's own. */
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { claim, claimAll, count, done, emptied, mainEngines, ownClock, quietTask } from '../claim/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import { acquire, endTakes, expireHolders, holders, placesTaken, renewHolder, taker } from './engine.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'

const startMs = Date.UTC(2026, 10, 21)
const ten = limit('ten', { rate: '60/min', burst: 10 })
const each = limit('each', { rate: '60/min', burst: 1, by: 'tenant' })
const three = limit('three', { concurrency: 3 })

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    let clock: Awaited<ReturnType<typeof ownClock>>
    beforeEach(async () => {
      await at.db.query('drop table if exists sluice.test_clock')
      clock = await ownClock(at.db, startMs)
    })
    const takes = () => at.sluice.takes
    const ledger = () => count(at.db, 'sluice.ledger')

    it('a take grants exactly the free units, and charges nothing when it denies', async () => {
      const tries = await Promise.all(Array.from({ length: 15 }, () => acquireFresh()))
      expect(tries.filter(({ granted }) => granted)).toHaveLength(10)
      expect(await ledger()).toBe(10)
      expect(await takes().tryTake(ten)).toEqual({ granted: false, retryAfterMs: 1_000 })
      await clock.set(startMs + 999)
      expect(await takes().tryTake(ten)).toEqual({ granted: false, retryAfterMs: 1 })
      await clock.set(startMs + 1_000)
      expect(await acquire(at.db, 'ten')).toMatchObject({ granted: true })
    })
    const acquireFresh = async () => {
      await at.sluice.define([quietTask('any', [ten])])
      return acquire(at.db, 'ten')
    }

    it('a take that is repeated under one id grants once', async () => {
      const grant = randomUUID()
      await at.sluice.define([quietTask('any', [ten, three])])
      for (let n = 0; n < 3; n++) expect(await acquire(at.db, 'ten', { grant })).toMatchObject({ granted: true })
      expect(await ledger()).toBe(1)
      const holder = newId()
      for (let n = 0; n < 3; n++)
        expect(await acquire(at.db, 'three', { grant, holder })).toMatchObject({ granted: true })
      expect(await placesTaken(at.db)).toBe(1)
    })

    it('a take of a place is repeated though many others were granted meanwhile', async () => {
      const [grant, holder] = [randomUUID(), newId()]
      await at.sluice.define([quietTask('any', [three])])
      const ask = () => acquire(at.db, 'three', { grant, holder })
      await ask()
      await at.db.query(`insert into sluice.ledger (bucket, n, at, debt, version, units, claim)
        select bucket, n + i, at + i, debt, version, 0, gen_random_uuid() from sluice.ledger, generate_series(1, 1001) i`)
      expect(await ask()).toMatchObject({ granted: true, lost: false })
      expect(await placesTaken(at.db)).toBe(1)
    })

    it('a take is charged once that is requested again after many others were granted', async () => {
      const grant = randomUUID()
      await at.sluice.define([quietTask('any', [ten])])
      const ask = (requestedAgoMs?: number) => acquire(at.db, 'ten', { grant, requestedAgoMs, cost: 3 })
      await ask()
      await at.db.query(`insert into sluice.ledger (bucket, n, at, debt, version, units, claim)
        select bucket, n + i, at + i, debt, version, 0, gen_random_uuid() from sluice.ledger, generate_series(1, 1001) i`)
      expect(await ask(60_000)).toMatchObject({ granted: true })
      expect(await unitsUsed(at.db)).toEqual({ ten: 3 })
    })

    it('a take counts costs, and returns when that many units are free', async () => {
      await at.sluice.define([quietTask('any', [ten])])
      expect(await acquire(at.db, 'ten', { cost: 7 })).toMatchObject({ granted: true })
      expect(await acquire(at.db, 'ten', { cost: 5 })).toMatchObject({ granted: false, soonestMs: 2_000 })
      expect(await acquire(at.db, 'ten', { cost: 0 })).toMatchObject({ granted: true })
      expect(await acquire(at.db, 'ten', { cost: 3 })).toMatchObject({ granted: true })
      await expect(takes().tryTake(ten, { cost: 11 })).rejects.toMatchObject({ code: 'SLUICE_COST_ABOVE_CAPACITY' })
    })

    it('a take gives unused units back, once', async () => {
      await at.sluice.define([quietTask('any', [ten])])
      await acquire(at.db, 'ten', { cost: 9 })
      const tried = await takes().tryTake(ten)
      // Its grant may be too old on a busy machine: then it was refunded by itself.
      if (tried.granted) {
        await tried.lease.giveBack()
        await tried.lease.giveBack()
      }
      expect(await acquire(at.db, 'ten')).toMatchObject({ granted: true })
      expect(await acquire(at.db, 'ten')).toMatchObject({ granted: false })
    })

    it('a take that waits is notified when a pause ends, and when its limit gets other numbers', async () => {
      await at.sluice.define([quietTask('any', [limit('shut', { concurrency: 1 })])])
      const told: string[] = []
      // Call-backs of grants ahead of time come over the same channel.
      const listen = (bucket: string) => void (bucket.startsWith('!') || told.push(bucket))
      const stop = await at.db.listen('sluice.take', listen)
      await until(() => at.db.listening(), 'it listens')
      await at.sluice.pause({ limit: 'shut' }, { reason: 'test' })
      expect(await taker(at.db, 'shut')()).toMatchObject({ granted: false })
      await at.sluice.resume({ limit: 'shut' })
      await until(() => told.length > 0, 'it is notified of the end')
      await at.sluice.limits.pin('shut', { concurrency: 2 }, { reason: 'test' })
      await until(() => told.length > 1, 'it is notified of the change')
      expect(told).toEqual([hash64('shut'), hash64('shut')])
      await stop()
    })

    it('a take keeps keys apart, and refuses missing and superfluous ones', async () => {
      await at.sluice.define([quietTask('any', [each as never])])
      for (const key of ['a', 'b']) expect(await acquire(at.db, `each:${key}`)).toMatchObject({ granted: true })
      expect(await takes().tryTake(each, { key: 'a' })).toMatchObject({ granted: false })
      await expect(takes().tryTake(each)).rejects.toMatchObject({ code: 'SLUICE_MISSING_KEY' })
      await expect(takes().tryTake(ten, { key: 'a' })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
      await expect(takes().tryTake(ten, { cost: 1.5 })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
      for (const key of [Number.NaN, Infinity])
        await expect(takes().tryTake(each, { key })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
      for (const maxWaitMs of [Number.NaN, -1, '100', null])
        await expect(takes().take(ten, { maxWaitMs: maxWaitMs as number })).rejects.toMatchObject({
          code: 'SLUICE_BAD_OPTION',
        })
    })

    it('a take may wait for longer than the store can count', async () => {
      for (const maxWaitMs of [1e16, Number.MAX_VALUE])
        expect(await takes().take(ten, { maxWaitMs })).toMatchObject({ isUncharged: false })
    })

    it('a dead process keeps its places until its lease expires, and no instant has more places than the limit', async () => {
      await at.sluice.define([quietTask('any', [three])])
      const ask = (holder: string) => acquire(at.db, 'three', { holder, lifeMs: 30_000 })
      const [dead, live] = [newId(), newId()]
      expect(await ask(dead)).toMatchObject({ granted: true, lifeMs: 30_000 })
      for (let n = 0; n < 2; n++) expect(await ask(live)).toMatchObject({ granted: true })
      for (const second of [0, 10, 20, 29.999]) {
        await clock.set(startMs + second * 1_000)
        expect(await renewHolder(at.db, live)).toBe('30000000')
        expect(await ask(live)).toMatchObject({ granted: false, lost: false })
      }
      await clock.set(startMs + 30_000)
      expect(await ask(live)).toMatchObject({ granted: true })
      expect(await ask(live)).toMatchObject({ granted: false })
      expect(await placesTaken(at.db)).toBe(3)
      // A holder that was given up learns that, and gets nothing under the same id.
      expect(await renewHolder(at.db, dead)).toBe(null)
    })

    it('a repeated reply contains a place only while its holder has it', async () => {
      await at.sluice.define([quietTask('any', [three])])
      const [grant, holder] = [randomUUID(), newId()]
      const ask = () => acquire(at.db, 'three', { grant, holder, lifeMs: 30_000 })
      expect(await ask()).toMatchObject({ granted: true, lost: false })
      await clock.set(startMs + 29_999)
      expect(await ask()).toMatchObject({ granted: true, lost: false, lifeMs: 1 })
      await clock.set(startMs + 30_000)
      expect(await ask()).toMatchObject({ granted: false, lost: true })
    })

    it('a take of zero units waits, too, while the vendor demands silence', async () => {
      await at.sluice.define([quietTask('any', [ten])])
      expect(await acquire(at.db, 'ten')).toMatchObject({ granted: true })
      await takes().observe(ten, new Response(null, { status: 429, headers: { 'retry-after': '5' } }))
      expect(await acquire(at.db, 'ten', { cost: 0 })).toMatchObject({ granted: false, soonestMs: 5_000 })
      await clock.set(startMs + 5_000)
      expect(await acquire(at.db, 'ten', { cost: 0 })).toMatchObject({ granted: true })
    })

    it('a take that finds the place of a dead process out of its turn leaves it to the waiting jobs', async () => {
      const one = quietTask('one', [limit('single', { concurrency: 1 })])
      await at.sluice.sendMany(one, [])
      expect(await acquire(at.db, 'single')).toMatchObject({ granted: true })
      await at.sluice.sendMany(one, [{}])
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toEqual([])
      await clock.set(startMs + 15_000)
      expect(await acquire(at.db, 'single')).toMatchObject({ granted: false })
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toHaveLength(1)
    })

    it('a place that is given back after its use goes to the waiting jobs at once', async () => {
      const single = limit('single', { concurrency: 1 })
      const one = quietTask('one', [single])
      const place = await takes().take(single)
      await at.sluice.sendMany(one, [{}])
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toEqual([])
      await place.release()
      expect(await claimAll(at.db, at.worker, ['one'], 1)).toHaveLength(1)
    })

    it('a place whose reply was lost is free again, and its units stay charged', async () => {
      await at.sluice.define([quietTask('any', [limit('both', { concurrency: 1, rate: '60/min', burst: 2 })])])
      for (let n = 0; n < 2; n++) {
        const grant = randomUUID()
        expect(await acquire(at.db, 'both', { grant })).toMatchObject({ granted: true })
        await endTakes(at.db, [grant], [null], [0])
      }
      expect(await acquire(at.db, 'both')).toMatchObject({ granted: false, soonestMs: 1_000 })
    })

    it('the place of a dead process is free for jobs, too', async () => {
      const work = quietTask('work', [three])
      await at.sluice.sendMany(work, copies(3))
      const holder = newId()
      for (let n = 0; n < 2; n++) await acquire(at.db, 'three', { holder })
      expect(await claimAll(at.db, at.worker, ['work'], 3)).toHaveLength(1)
      const tidy = () => expireHolders(at.db, (startMs + 3_600_000) * 1_000)
      await tidy()
      expect(await claimAll(at.db, at.worker, ['work'], 3)).toEqual([])
      await clock.set(startMs + 15_000)
      // No holder is given up when the clock may just have stepped.
      await expireHolders(at.db)
      expect(await claimAll(at.db, at.worker, ['work'], 3)).toEqual([])
      await tidy()
      expect(await claimAll(at.db, at.worker, ['work'], 3)).toHaveLength(2)
      await clock.set(startMs + 80_000)
      // Nor is it deleted: it may be alive, and about to take a place.
      await expireHolders(at.db)
      expect(await holders(at.db)).toBe(1)
      await tidy()
      expect(await holders(at.db)).toBe(0)
    })

    it('no taker overtakes an earlier one, unless there is room for both', async () => {
      await at.sluice.define([quietTask('any', [ten])])
      await acquire(at.db, 'ten', { cost: 8 })
      const [first, second] = [taker(at.db, 'ten', 4), taker(at.db, 'ten', 1)]
      expect(await first()).toMatchObject({ granted: false, soonestMs: 2_000 })
      expect(await second()).toMatchObject({ granted: false, soonestMs: 3_000 })
      expect(await takes().tryTake(ten)).toEqual({ granted: false, retryAfterMs: 4_000 })
      await clock.set(startMs + 2_000)
      expect(await second()).toMatchObject({ granted: false, soonestMs: 1_000 })
      expect(await first()).toMatchObject({ granted: true })
      expect(await second()).toMatchObject({ granted: false, soonestMs: 1_000 })
      await clock.set(startMs + 3_000)
      expect(await second()).toMatchObject({ granted: true })
    })

    it('a taker that does not come back blocks no other', async () => {
      await at.sluice.define([quietTask('any', [ten])])
      await acquire(at.db, 'ten', { cost: 10 })
      const [gone, second] = [taker(at.db, 'ten', 10), taker(at.db, 'ten', 1)]
      await gone()
      await clock.set(startMs + 1_000)
      expect(await second()).toMatchObject({ granted: false, soonestMs: 10_000 })
      await clock.set(startMs + 6_000)
      expect(await second()).toMatchObject({ granted: true })
    })

    it('a waiting taker that died takes nothing from the jobs that wait', async () => {
      const work = quietTask('work', [ten])
      await at.sluice.sendMany(work, copies(30))
      await done(at.db, await claimAll(at.db, at.worker, ['work'], 10))
      await at.sluice.define([quietTask('any', [each as never])])
      await acquire(at.db, 'each:a')
      const [gone, other] = [taker(at.db, 'ten', 10), taker(at.db, 'each:a', 1)]
      await gone()
      await clock.set(startMs + 10_000)
      // Another taker waits elsewhere.
      await acquire(at.db, 'each:a')
      expect(await other()).toMatchObject({ granted: false })
      expect(await claimAll(at.db, at.worker, ['work'], 10)).toHaveLength(10)
    })

    it('tasks on two queues and takes share one limit, and no other', async () => {
      const other = limit('other', { rate: '60/min', burst: 10 })
      const [one, two] = [quietTask('one', [ten]), quietTask('two', [ten])]
      for (const task of [one, two]) await at.sluice.sendMany(task, copies(20), { queue: task.name })
      await at.sluice.define([quietTask('any', [other])])
      for (let n = 0; n < 4; n++) expect(await acquire(at.db, 'ten')).toMatchObject({ granted: true })
      expect(await claimAll(at.db, at.worker, ['one', 'two'], 40)).toHaveLength(6)
      expect(await acquire(at.db, 'ten')).toMatchObject({ granted: false })
      for (let n = 0; n < 10; n++) expect(await acquire(at.db, 'other')).toMatchObject({ granted: true })
      expect(await acquire(at.db, 'other')).toMatchObject({ granted: false })
    })

    it('a definition that begins to count places counts those held outside of jobs', async () => {
      await at.sluice.define([quietTask('any', [three])])
      for (let n = 0; n < 3; n++) await acquire(at.db, 'three')
      // An operator removes the places, and restores them.
      await at.sluice.limits.set('three', { rate: '1000/s', burst: 1_000, concurrency: null }, { reason: 'all' })
      expect(await acquire(at.db, 'three')).toMatchObject({ granted: true })
      await at.sluice.limits.set('three', { concurrency: 3 }, { reason: 'three' })
      expect(await acquire(at.db, 'three')).toMatchObject({ granted: false })
      await at.sluice.limits.unset('three')
    })

    it('waiting jobs and waiting takers take turns', async () => {
      const work = quietTask('work', [ten])
      await at.sluice.sendMany(work, copies(40))
      await done(at.db, await claimAll(at.db, at.worker, ['work'], 10))
      const crowd = Array.from({ length: 3 }, () => taker(at.db, 'ten'))
      let turns = ''
      for (let second = 1; second <= 24; second++) {
        await clock.set(startMs + second * 1_000)
        // The next take of any kind, with a new taker each time.
        const jobs = async () => (turns += 'j'.repeat((await claimAll(at.db, at.worker, ['work'], 10)).length))
        const takers = async () => {
          for (const [n, ask] of crowd.entries()) {
            if (!(await ask()).granted) continue
            turns += 't'
            crowd[n] = taker(at.db, 'ten')
          }
        }
        if (second % 3 === 0) await jobs()
        await takers()
        await clock.set(startMs + second * 1_000 + 20)
        await jobs()
      }
      const by = (who: string) => turns.split(who).length - 1
      expect(by('t') + by('j')).toBe(24)
      expect(by('t')).toBeGreaterThanOrEqual(11)
      expect(by('j')).toBeGreaterThanOrEqual(11)
      expect(turns).not.toMatch(/ttt|jjj/)
    })

    it('jobs that come while takers wait have their turn too, and their worker gets the time of it', async () => {
      const work = quietTask('work', [ten])
      await at.sluice.define([work])
      for (let n = 0; n < 10; n++) await acquire(at.db, 'ten')
      const first = taker(at.db, 'ten')
      await first()
      await at.sluice.sendMany(work, copies(3))
      const looked = await claim(at.db, at.worker, ['work'], 2)
      expect(looked).toMatchObject({ jobs: [], again: false })
      expect(looked.wakeUs).toBeGreaterThanOrEqual(1_000_000)
      await clock.set(startMs + 1_000)
      expect(await claim(at.db, at.worker, ['work'], 2)).toMatchObject({ jobs: [{}] })
      expect(await first()).toMatchObject({ granted: false })
      await clock.set(startMs + 2_000)
      expect(await claimAll(at.db, at.worker, ['work'], 2)).toEqual([])
      expect(await first()).toMatchObject({ granted: true })
    })

    it('jobs without a worker let their turn pass', async () => {
      const work = quietTask('work', [ten])
      await at.sluice.sendMany(work, copies(30))
      await done(at.db, await claimAll(at.db, at.worker, ['work'], 10))
      const first = taker(at.db, 'ten')
      expect(await first()).toMatchObject({ granted: false })
      await clock.set(startMs + 1_000)
      expect(await first()).toMatchObject({ granted: true })
      expect(await claimAll(at.db, at.worker, ['work'], 1)).toEqual([])
      await clock.set(startMs + 2_000)
      const second = taker(at.db, 'ten')
      expect(await second()).toMatchObject({ granted: false })
      await clock.set(startMs + 2_500)
      expect(await second()).toMatchObject({ granted: true })
    })
  })
}
