/** Jobs that are granted ahead of time around the end of a quota's period, after the store's clock was set back. */
import { beforeEach, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { checkClock, limiterNowUs, watchClock } from '../limits/engine.ts'
import { claim, done, emptied, mainEngines, ownClock, quietTask } from './engine.ts'
import { copies } from '../rows.ts'

const endMs = Date.UTC(2026, 10, 26, 12, 1)

describe.each(mainEngines)('on $name', (engine) => {
  const at = emptied(engine)
  let clock: Awaited<ReturnType<typeof ownClock>>
  beforeEach(async () => {
    await at.db.query('drop table if exists sluice.test_clock')
    clock = await ownClock(at.db, endMs + 1_000)
  })

  it.each([
    { what: 'beside its rate', limits: [limit('both', { rate: '50/s', quota: '30/min' })] },
    { what: 'of another limit', limits: [limit('rate', { rate: '50/s' }), limit('quota', { quota: '30/min' })] },
  ])('a period that begins again holds no more than its quota $what', async ({ limits }) => {
    await at.sluice.sendMany(quietTask('a', limits), copies(200))
    const got = async (ahead: number, want = 10) => {
      const { jobs, laterUs } = await claim(at.db, at.worker, ['a'], want, newId(), { idle: true, ahead })
      await done(at.db, jobs)
      return [jobs.length, laterUs.filter((us) => us > 0).length]
    }
    let [jobs, later] = [0, 0]
    for (let ms = 1_000; jobs < 29; ms += 20) {
      await clock.set(endMs + ms)
      const [more = 0, ahead = 0] = await got(Math.min(5, 29 - jobs), 29 - jobs)
      jobs += more
      later += ahead
    }
    await clock.set(endMs + 5_000)
    await watchClock(at.db)
    const shownUs = await limiterNowUs(at.db)
    await clock.set(endMs - 1_500)
    await checkClock(at.db, shownUs)
    await watchClock(at.db, false)
    for (let ms = -210; ms < 500; ms += 10) {
      await clock.set(endMs + ms)
      jobs += (await got(10))[0] ?? 0
    }
    expect([jobs > 30, later > 0]).toEqual([true, true])
    expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  })
})
