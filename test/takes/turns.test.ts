/** Turns of waiting jobs and takers outside of jobs, with several buckets or units; on a clock of the test's own. */
import { beforeEach, describe, expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import { claim, claimAll, done, emptied, mainEngines, ownClock, quietTask } from '../claim/engine.ts'
import { taker } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = Date.UTC(2026, 10, 21)
const gang = limit('gang', { rate: '60/min', burst: 10, pool: ['a', 'b'] })

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    let clock: Awaited<ReturnType<typeof ownClock>>
    beforeEach(async () => {
      await at.db.query('drop table if exists sluice.test_clock')
      clock = await ownClock(at.db, startMs)
    })

    it('a taker that wants several units of a member has its turn beside jobs of the pool', async () => {
      const work = quietTask('work', [gang])
      await at.sluice.sendMany(work, copies(80))
      await done(at.db, await claimAll(at.db, at.worker, ['work'], 20))
      let ask = taker(at.db, 'gang:a', 3)
      const granted: number[] = []
      let ran = 0
      for (let second = 1; second <= 18; second++) {
        for (const extraMs of [0, 20]) {
          await clock.set(startMs + second * 1_000 + extraMs)
          if (second % 2 === 0) ran += (await claimAll(at.db, at.worker, ['work'], 10)).length
          if ((await ask()).granted) {
            granted.push(second)
            ask = taker(at.db, 'gang:a', 3)
          }
          ran += (await claimAll(at.db, at.worker, ['work'], 10)).length
        }
      }
      // Each takes as many units of a, in turns; all of b is for jobs.
      expect(granted.length).toBeGreaterThanOrEqual(2)
      expect(ran).toBeGreaterThanOrEqual(18 + 6)
      expect(ran + 3 * granted.length).toBeLessThanOrEqual(36)
      expect(ran + 3 * granted.length).toBeGreaterThanOrEqual(33)
    })

    it('a taker does not retry over and over while the bucket fills for the next job', async () => {
      const cost = (input: { n?: number | undefined }) => input.n ?? 1
      const heavy = quietTask('heavy', [limit('jug', { rate: '60/min', burst: 10, cost })] as never)
      await at.sluice.sendMany(
        heavy,
        [10, 8].map((n) => ({ n })),
      )
      await done(at.db, await claimAll(at.db, at.worker, ['heavy'], 10))
      await claim(at.db, at.worker, ['heavy'], 10)
      await clock.set(startMs + 1_000)
      expect(await taker(at.db, 'jug')()).toMatchObject({ granted: true })
      // From now on it is the turn of the jobs, which look 8 s after the first, and can go 9 s after it.
      const ask = taker(at.db, 'jug')
      const asks = async (atMs: number, waitMs: number) => {
        await clock.set(startMs + atMs)
        expect(await ask()).toMatchObject({ granted: false, waitMs })
      }
      await asks(2_000, 1_000)
      await asks(7_700, 300)
      await asks(8_000, 25)
      await asks(8_499, 25)
      expect(await claim(at.db, at.worker, ['heavy'], 10)).toMatchObject({ jobs: [], again: false })
      await asks(8_500, 500)
      await asks(9_000, 25)
      expect(await claimAll(at.db, at.worker, ['heavy'], 1)).toHaveLength(1)
      await clock.set(startMs + 10_000)
      expect(await ask()).toMatchObject({ granted: true })
    })

    it('units of a pool are kept for a job that needs several, while a taker waits at a member, too', async () => {
      const cost = (input: { n?: number | undefined }) => input.n ?? 1
      const crew = limit('crew', { rate: '60/min', burst: 10, pool: ['a', 'b'], cost })
      const [heavy, light] = [quietTask('heavy', [crew] as never), quietTask('light', [crew] as never)]
      await at.sluice.sendMany(light, copies(60))
      await done(at.db, await claimAll(at.db, at.worker, ['light'], 20))
      await at.sluice.sendMany(heavy, [{ n: 8 }])
      const ask = taker(at.db, 'crew:a')
      const ran: unknown[] = []
      for (let second = 1; second <= 10; second++) {
        await clock.set(startMs + second * 1_000)
        await ask()
        const jobs = await claimAll(at.db, at.worker, ['heavy', 'light'], 10)
        if (second > 1) ran.push(...jobs.map(({ input }) => input))
      }
      expect(ran[0]).toEqual({ n: 8 })
    })

    it('jobs of a pool have their turns beside takers of its members, without needless claims', async () => {
      const work = quietTask('work', [gang])
      await at.sluice.sendMany(work, copies(60))
      await done(at.db, await claimAll(at.db, at.worker, ['work'], 20))
      const asks = ['gang:a', 'gang:b'].map((member) => ({ member, ask: taker(at.db, member) }))
      let [taken, ran] = [0, 0]
      for (let second = 1; second <= 12; second++) {
        await clock.set(startMs + second * 1_000)
        const looked = await claim(at.db, at.worker, ['work'], 10, undefined, { idle: true })
        ran += looked.jobs.length
        if (looked.jobs.length === 0) expect(looked.wakeUs).toBeGreaterThanOrEqual(20_000)
        for (const one of asks) {
          if (!(await one.ask()).granted) continue
          taken++
          one.ask = taker(at.db, one.member)
        }
        await clock.set(startMs + second * 1_000 + 20)
        ran += (await claimAll(at.db, at.worker, ['work'], 10)).length
      }
      expect(taken + ran).toBe(24)
      expect(Math.min(taken, ran)).toBeGreaterThanOrEqual(10)
    })
  })
}
