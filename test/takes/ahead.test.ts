/** Grants of takes ahead of time: which takers get them, and that they are exact. */
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { guaranteeOf, limit } from '../../src/index.ts'
import { claimAll, done, emptied, mainEngines, ownClock, quietTask } from '../claim/engine.ts'
import { copies } from '../rows.ts'
import { freshSluice } from '../servers/sluice.ts'
import { later, until } from '../until.ts'
import { acquire, acquireTogether, type Asked, giveBack, takersInLine } from './engine.ts'

const startMs = Date.UTC(2026, 10, 21)
const fast = limit('fast', { rate: '100/s' })
const both = limit('both', { rate: '100/s', concurrency: 50 })
const count = limit('count', { window: '10/s' })

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    let clock: Awaited<ReturnType<typeof ownClock>>
    beforeEach(async () => {
      await at.db.query('drop table if exists sluice.test_clock')
      clock = await ownClock(at.db, startMs)
      await at.sluice.define([quietTask('any', [fast, both, count])])
    })
    const takers = (n: number): Asked[] => Array.from({ length: n }, () => ({ line: newId(), grant: randomUUID() }))
    /** Uses up what is free, so that the next taker is denied, or granted ahead. */
    const useUp = async (name: string) => {
      while ((await acquire(at.db, name)).granted);
    }

    it('one statement grants takers the next instants in the order of the line, up to 200 ms ahead, and all is exact', async () => {
      const all = takers(32)
      const answers = await acquireTogether(at.db, ['fast'], 1, all)
      const granted = answers.filter((one) => one.granted)
      const ahead = granted.map(({ aheadMs }) => aheadMs)
      expect(ahead).toEqual(ahead.toSorted((a, b) => a - b))
      expect(Math.max(...ahead)).toBeGreaterThan(180)
      expect(Math.max(...ahead)).toBeLessThanOrEqual(200)
      expect(answers.slice(0, granted.length).every((one) => one.granted)).toBe(true)
      expect(granted.length).toBeLessThan(32)
      // A lost reply is repeated: it gets the same instant.
      const last = granted.length - 1
      await clock.set(startMs + 50)
      expect(await acquire(at.db, 'fast', all[last])).toMatchObject({ granted: true, aheadMs: (ahead[last] ?? 0) - 50 })
      // Until that instant nobody else gets anything.
      let waiting = all.filter((_, i) => answers[i]?.granted === false)
      let used = granted.length
      for (let ms = 50; ms < 3_000; ms += 40) {
        await clock.set(startMs + ms)
        const asked = [...waiting, ...takers(8 - waiting.length)]
        const told = await acquireTogether(at.db, ['fast'], 1, asked)
        for (const { aheadMs } of told.filter((one) => one.granted))
          expect(ms + aheadMs).toBeGreaterThan(ahead[last] as number)
        waiting = asked.filter((_, i) => told[i]?.granted === false)
        used += asked.length - waiting.length
      }
      expect(await at.sluice.verify()).toMatchObject({ exceeded: [] })
      const { perSecond = 0 } = guaranteeOf(fast).rules[0] ?? {}
      expect(used).toBeGreaterThan(3 * perSecond * 0.95)
    })

    it('nothing is granted ahead to callers without a place in the line, for costs, for places, or by a window', async () => {
      for (const [name, cost, asked] of [
        ['fast', 1, {}],
        ['fast', 2, { line: newId() }],
        ['both', 1, { line: newId() }],
        ['count', 1, { line: newId() }],
      ] as const) {
        await useUp(name)
        expect(await acquire(at.db, name, { ...asked, cost }), name).toMatchObject({ granted: false, aheadMs: 0 })
      }
      expect(await acquire(at.db, ['fast', 'count'], { line: newId() })).toMatchObject({ granted: false })
    })

    it('nothing is granted ahead while several databases share their limits, because these would find no room', async () => {
      await useUp('fast')
      await at.db.query(`insert into sluice.shared (owner, epoch, at, stores) values ('test', 'one', now(), 2)`)
      try {
        expect(await acquire(at.db, 'fast', { line: newId() })).toMatchObject({ granted: false })
      } finally {
        await at.db.query('delete from sluice.shared')
      }
      expect(await acquire(at.db, 'fast', { line: newId() })).toMatchObject({ granted: true })
    })

    it('a caller that waits in no line stops grants ahead, so that it finds room', async () => {
      await useUp('fast')
      expect(await acquire(at.db, 'fast', { line: newId() })).toMatchObject({ granted: true })
      expect(await at.sluice.takes.tryTake(fast)).toMatchObject({ granted: false })
      expect(await acquire(at.db, 'fast', { line: newId() })).toMatchObject({ granted: false })
      await clock.set(startMs + 29_000)
      await useUp('fast')
      expect(await acquire(at.db, 'fast', { line: newId() })).toMatchObject({ granted: false })
    })

    it('takers that get nothing ahead are not passed again and again by those that do', async () => {
      for (const [names, cost] of [
        [['fast', 'both'], 1],
        [['fast'], 3],
      ] as const) {
        await clock.set(startMs + cost * 100_000)
        let waiting = takers(6)
        while ((await acquireTogether(at.db, ['fast'], 1, takers(1)))[0]?.aheadMs === 0);
        const line = newId()
        let isGranted = false
        for (let ms = 0; ms < 1_000 && !isGranted; ms += 10) {
          await clock.set(startMs + cost * 100_000 + ms)
          const asked = [...waiting, ...takers(6 - waiting.length)]
          const told = await acquireTogether(at.db, ['fast'], 1, asked)
          waiting = asked.filter((_, i) => told[i]?.granted === false)
          isGranted = (await acquire(at.db, [...names], { line, cost })).granted
        }
        expect(isGranted, String(names)).toBe(true)
      }
    })

    it('jobs that wait for the same bucket have their turns', async () => {
      await useUp('fast')
      const work = quietTask('work', [fast])
      await at.sluice.sendMany(work, copies(30))
      await claimAll(at.db, at.worker, ['work'], 1)
      const ask = { line: newId() }
      expect(await acquire(at.db, 'fast', ask)).toMatchObject({ granted: false })
      let [ran, taken] = [0, 0]
      for (let ms = 10; ms < 300; ms += 10) {
        await clock.set(startMs + ms)
        const jobs = await claimAll(at.db, at.worker, ['work'], 1)
        ran += jobs.length
        await done(at.db, jobs)
        if (!(await acquire(at.db, 'fast', ask)).granted) continue
        taken++
        ask.line = newId()
      }
      expect(Math.min(ran, taken)).toBeGreaterThan(5)
    })

    it('a unit that goes back before its instant is granted again, and grants ahead go on', async () => {
      await useUp('fast')
      const [first, second] = takers(2) as [Asked, Asked]
      const { aheadMs } = await acquire(at.db, 'fast', first)
      expect(aheadMs).toBeGreaterThan(0)
      await giveBack(at.db, 'fast', first.grant as string)
      expect(await acquire(at.db, 'fast', second)).toMatchObject({ granted: true, aheadMs })
      expect(await at.sluice.verify()).toMatchObject({ exceeded: [] })
    })
  })
}

it('a pause calls back the grants of takes that have not begun', async () => {
  const sluice = await freshSluice()
  const slow = limit('slow', { rate: '30/s', burst: 1 })
  let begun = 0
  const waiting = Array.from({ length: 12 }, () => later(sluice.takes.take(slow).then(() => void begun++)))
  await until(() => begun >= 3, 'some have begun')
  await sluice.pause({ limit: 'slow' }, { reason: 'test' })
  await until(async () => begun + (await takersInLine(sluice.db)) === 12, 'all others wait in line again')
  const before = begun
  expect(before).toBeLessThan(12)
  expect(await sluice.takes.tryTake(slow)).toMatchObject({ granted: false })
  expect(begun).toBe(before)
  await sluice.resume({ limit: 'slow' })
  await Promise.all(waiting)
  expect(await sluice.verify()).toMatchObject({ exceeded: [] })
})
