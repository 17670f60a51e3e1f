/** One take of several buckets: all of them or none; on a clock of the test's own. */
import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { claimAll, emptied, mainEngines, ownClock, perTenant, quietTask } from '../claim/engine.ts'
import { hold, unitsUsed } from '../limits/engine.ts'
import { acquire, endTakes, placesTaken, taker, takersInLine } from './engine.ts'

const startMs = Date.UTC(2026, 10, 21)
const ten = limit('ten', { rate: '60/min', burst: 10 })
const two = limit('two', { rate: '30/min', burst: 2 })
const seat = limit('seat', { concurrency: 1 })
const desk = limit('desk', { concurrency: 2, rate: '60/min', burst: 10 })
const work = quietTask('work', [seat])

describe.each(mainEngines)('a take of several buckets, on $name', (engine) => {
  const at = emptied(engine)
  let clock: Awaited<ReturnType<typeof ownClock>>
  beforeEach(async () => {
    await at.db.query('drop table if exists sluice.test_clock')
    clock = await ownClock(at.db, startMs)
    await at.sluice.define([quietTask('any', [ten, two, desk]), work])
  })
  /** Granted units of each bucket, less the refunded ones. */
  const used = () => unitsUsed(at.db)
  const leases = () => placesTaken(at.db)

  it('waits for a limit that nobody has defined yet', async () => {
    expect(await acquire(at.db, ['ten', 'later'], { line: newId() })).toMatchObject({ granted: false, lost: false })
    expect(await used()).toEqual({})
  })

  it('charges all or none, once, and returns when all have room', async () => {
    const grant = randomUUID()
    for (let n = 0; n < 2; n++)
      expect(await acquire(at.db, ['ten', 'two'], { grant, cost: 2 })).toMatchObject({ granted: true })
    expect(await used()).toEqual({ ten: 2, two: 2 })
    expect(await acquire(at.db, ['ten', 'two'])).toMatchObject({ granted: false, soonestMs: 2_000 })
    expect(await acquire(at.db, 'ten', { cost: 8 })).toMatchObject({ granted: true })
    expect(await acquire(at.db, ['two', 'ten'], { cost: 2 })).toMatchObject({ granted: false, soonestMs: 4_000 })
    expect(await used()).toEqual({ ten: 10, two: 2 })
    await clock.set(startMs + 2_000)
    expect(await acquire(at.db, ['ten', 'two'])).toMatchObject({ granted: true })
  })

  it('that one of them can never grant is neither charged nor waited for', async () => {
    const asked = { cost: 3, line: newId() }
    expect(await acquire(at.db, ['ten', 'two'], asked)).toMatchObject({ granted: false, waitMs: 0 })
    expect(await used()).toEqual({})
    expect(await takersInLine(at.db)).toBe(0)
  })

  it('that waits for all of them is overtaken in none', async () => {
    await acquire(at.db, 'two', { cost: 2 })
    await acquire(at.db, 'ten', { cost: 9 })
    const both = taker(at.db, ['ten', 'two'])
    expect(await both()).toMatchObject({ granted: false, soonestMs: 2_000 })
    expect(await takersInLine(at.db)).toBe(2)
    expect(await acquire(at.db, 'ten')).toMatchObject({ granted: false, soonestMs: 1_000 })
    await clock.set(startMs + 2_000)
    for (const takes of ['two', ['two', 'ten'], ['ten', 'two']])
      expect(await acquire(at.db, takes)).toMatchObject({ granted: false, soonestMs: 2_000 })
    expect(await both()).toMatchObject({ granted: true })
    expect(await takersInLine(at.db)).toBe(0)
    expect(await acquire(at.db, 'ten', { cost: 2 })).toMatchObject({ granted: true })
  })

  it('that waits for a used-up account keeps one unit of the total, however many wait with it', async () => {
    await acquire(at.db, 'two', { cost: 2 })
    const waiting = Array.from({ length: 20 }, () => taker(at.db, ['two', 'ten']))
    for (const one of waiting) expect(await one()).toMatchObject({ granted: false })
    // Nine of the ten units of the total are for everybody else.
    for (let n = 0; n < 9; n++) expect(await acquire(at.db, 'ten'), `${n}`).toMatchObject({ granted: true })
    expect(await acquire(at.db, 'ten')).toMatchObject({ granted: false })
    await clock.set(startMs + 2_000)
    // In the line of the account nobody is overtaken.
    expect(await acquire(at.db, 'two')).toMatchObject({ granted: false })
    expect(await waiting[1]?.()).toMatchObject({ granted: false })
    expect(await waiting[0]?.()).toMatchObject({ granted: true })
    // The next in that line keeps the unit now.
    expect(await waiting[1]?.()).toMatchObject({ granted: false })
    expect(await acquire(at.db, 'ten')).toMatchObject({ granted: true })
    expect(await acquire(at.db, 'ten')).toMatchObject({ granted: false })
  })

  it('that waits for a paused, held or occupied account keeps nothing of the total, neither from takes nor from jobs', async () => {
    const [account, all] = [perTenant('account', '30/min', 2), limit('all', { rate: '12/min' })]
    const send = quietTask('send', [all])
    await at.sluice.define([quietTask('any', [account, all]), send])
    await at.sluice.pause({ limit: 'account', key: 'a' }, { reason: 'their wish' })
    await acquire(at.db, 'account:b')
    await hold(at.db, ['account:b'], 3_600_000_000)
    expect(await acquire(at.db, 'seat', { lifeMs: 60_000 })).toMatchObject({ granted: true })
    const waiting = ['account:a', 'account:b', 'seat'].map((take) => taker(at.db, [take, 'all']))
    const allDenied = async () => {
      for (const one of waiting) expect(await one()).toMatchObject({ granted: false })
    }
    await allDenied()
    expect(await acquire(at.db, ['account:c', 'all'])).toMatchObject({ granted: true })
    // The total denies them, too, at this moment.
    await allDenied()
    await clock.set(startMs + 6_000)
    expect(await acquire(at.db, ['account:c', 'all'])).toMatchObject({ granted: true })
    await allDenied()
    await at.sluice.send(send, {})
    await clock.set(startMs + 12_000)
    expect(await claimAll(at.db, at.worker, ['send'], 1)).toHaveLength(1)
    await at.sluice.resume({ limit: 'account', key: 'a' })
    // Now it waits for the total, and is the first in its line.
    for (const ms of [12_000, 15_000]) {
      await clock.set(startMs + ms)
      expect(await waiting[0]?.()).toMatchObject({ granted: false })
    }
    await clock.set(startMs + 18_000)
    expect(await acquire(at.db, ['account:c', 'all'])).toMatchObject({ granted: false })
    expect(await waiting[0]?.()).toMatchObject({ granted: true })
  })

  it('gives unused units back in all of them, once, and a place with them', async () => {
    const grant = randomUUID()
    const takes = ['ten', 'desk', 'seat']
    expect(await acquire(at.db, takes, { grant, cost: 3 })).toMatchObject({ granted: true, lifeMs: 15_000 })
    // A limit that counts only places is charged one unit.
    expect(await used()).toEqual({ ten: 3, desk: 3, seat: 1 })
    expect(await leases()).toBe(2)
    expect(await acquire(at.db, takes, { cost: 3 })).toMatchObject({ granted: false })
    const next = randomUUID()
    for (let n = 0; n < 2; n++)
      expect(await acquire(at.db, takes, { grant: next, cost: 3, back: grant })).toMatchObject({ granted: true })
    expect(await used()).toEqual({ ten: 3, desk: 3, seat: 1 })
    expect(await leases()).toBe(2)
    await endTakes(
      at.db,
      takes.map(() => next),
      takes,
      [1, 2, 0],
    )
    expect(await used()).toEqual({ ten: 2, desk: 1, seat: 1 })
    expect(await leases()).toBe(0)
  })

  it('frees the places of a dead process in all of them, and jobs that wait for one have their turn', async () => {
    const takes = ['desk', 'seat']
    expect(await acquire(at.db, takes)).toMatchObject({ granted: true })
    expect(await acquire(at.db, takes)).toMatchObject({ granted: false })
    await clock.set(startMs + 15_000)
    const grant = randomUUID()
    expect(await acquire(at.db, takes, { grant })).toMatchObject({ granted: true })
    expect(await leases()).toBe(2)
    await at.sluice.send(work, {})
    expect(await claimAll(at.db, at.worker, ['work'], 1)).toEqual([])
    const waiting = taker(at.db, takes)
    expect(await waiting()).toMatchObject({ granted: false })
    await endTakes(at.db, [grant], [null], [0])
    expect(await leases()).toBe(0)
    expect(await waiting()).toMatchObject({ granted: false, soonestMs: 0 })
    expect(await used()).toEqual({ desk: 2, seat: 2 })
    expect(await claimAll(at.db, at.worker, ['work'], 1)).toHaveLength(1)
  })
})
