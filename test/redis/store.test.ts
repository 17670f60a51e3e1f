import { randomInt } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { anyHistory, anyLoad, inRedis } from '../limits/acts.ts'
import { anyRelatives } from '../limits/relatives.ts'
import { isLong } from '../long.ts'
import { freshRedis } from '../servers/redis.ts'
import { RedisStage } from './stage.ts'

/** Repeats a run from the values that it has printed. */
const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const histories = isLong ? 165 : 8
const length = 120

const { client } = await freshRedis()

describe('Redis decides as the specification does', () => {
  it(`in ${histories} random histories of ${length} acts, each sent twice`, async () => {
    const stage = new RedisStage(client)
    let acts = 0
    const property = fc.asyncProperty(anyHistory(length), async (history) => {
      acts += await stage.compare(inRedis(history))
    })
    // The failure names the act that differs; to shrink the history would take minutes.
    const limits = { endOnFailure: true, interruptAfterTimeLimit: 280_000, markInterruptAsFailure: true }
    await fc.assert(property, { seed, numRuns: histories, ...limits })
    console.info(`Redis: ${acts} operations compared, SLUICE_TEST_SEED=${seed}`)
    expect(acts).toBeGreaterThanOrEqual(histories * length)
    expect(Number(await client.send('GET', ['test:expired']))).toBeGreaterThan(histories / 2)
  }, 300_000)

  it('when a rule is changed to one that is almost the same', async () => {
    const stage = new RedisStage(client)
    const property = fc.asyncProperty(anyHistory(60, anyRelatives, 12), async (history) => {
      await stage.compare(inRedis(history))
    })
    await fc.assert(property, { seed, numRuns: histories, endOnFailure: true })
  }, 300_000)

  it('while a limit that is used as much as it allows is changed', async () => {
    const stage = new RedisStage(client)
    const property = fc.asyncProperty(anyLoad, async (history) => {
      await stage.compare(inRedis(history))
    })
    await fc.assert(property, { seed, numRuns: histories, endOnFailure: true })
  }, 300_000)
})
