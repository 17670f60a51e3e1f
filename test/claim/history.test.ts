/** Random histories of claims, with limits of all kinds and all events of jobs, workers and clocks: nothing is exceeded, all ends. */
import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { isLong } from '../long.ts'
import { forgetSteps, watchClock } from '../limits/engine.ts'
import { emptied, empty, engines, ownClock } from './engine.ts'
import { anySetting } from './setting.ts'
import { World } from './world.ts'

/** Repeats a run from the values that it has printed. */
const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const histories = isLong ? 500 : 12
const length = 90
const startMs = 1_800_000_000_000
/** The parameters of one claim. */
const operations = [
  'send',
  'sent alone',
  'sent and claimed',
  'send of a share',
  'claim',
  'replay',
  'end',
  'settled below',
  'settled above',
  'cancel',
  'kill',
  'hold',
  'redefine',
  'redefine of a key',
  'pause',
  'resume',
  'take',
  'take denied',
  'yield',
  'given back',
  'pass',
  'back',
]
/** The expected result. */
const events = [
  'granted',
  'granted with costs',
  'done',
  'failed',
  'retry',
  'unused',
  'return',
  'waited',
  'take in line',
  'set aside',
  'expired',
]
/** What a few histories may lack. */
const seldom = isLong ? [] : ['sent and claimed', 'given back', 'settled above', 'set aside', 'cancel']
const judged = ['rate', 'window', 'quota', 'concurrency', 'others', 'label', 'pool', 'key']

describe('claims', () => {
  const at = emptied(engines[0])

  it(`exceed no limit in ${histories} random histories, and leave no job waiting for ever`, async () => {
    await ownClock(at.db, startMs)
    // Only the workers of the histories look at this clock.
    await watchClock(at.db)
    const counts = Object.fromEntries([...operations, ...events, ...judged].map((what) => [what, 0]))
    const property = fc.asyncProperty(anySetting(length), async (setting) => {
      await empty(at.db)
      await forgetSteps(at.db)
      const world = new World(at.sluice, setting, startMs * 1_000)
      await world.begin()
      for (const act of setting.acts) {
        await world.act(act)
        // What `sluice doctor --deep` reads: it names no lane of a store that is in order.
        expect(await sqlOn(at.db).run('operations/find_broken_lanes')).toEqual([])
      }
      await world.drain()
      for (const [what, n] of Object.entries({ ...world.counts, ...world.witness.judged }))
        counts[what] = (counts[what] ?? 0) + n
    })
    await fc.assert(property, { seed, numRuns: histories, endOnFailure: true })
    const sum = operations.reduce((all, what) => all + (counts[what] ?? 0), 0)
    console.info(`${sum} operations, SLUICE_TEST_SEED=${seed}`, JSON.stringify(counts))
    expect(sum).toBeGreaterThanOrEqual(histories * 100)
    expect(Object.entries(counts).filter(([what, n]) => n === 0 && !seldom.includes(what))).toEqual([])
  }, 600_000)

  it('leave no job waiting in vain where all jobs share their limits, and many have costs', async () => {
    await ownClock(at.db, startMs)
    await watchClock(at.db)
    const plain = anySetting(length).map((setting) => ({
      ...setting,
      tasks: setting.tasks.map((one) => ({ ...one, limits: [...new Set(one.limits.map((of) => 3 + (of % 2)))] })),
    }))
    const property = fc.asyncProperty(plain, async (setting) => {
      await empty(at.db)
      await forgetSteps(at.db)
      const world = new World(at.sluice, setting, startMs * 1_000)
      await world.begin()
      for (const act of setting.acts) await world.act(act)
      await world.drain()
    })
    // Fewer, because the histories above have these settings among others.
    await fc.assert(property, { seed, numRuns: histories / 2, endOnFailure: true })
    console.info(`SLUICE_TEST_SEED=${seed}`)
  }, 600_000)
})
