import { randomInt, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { hash64 } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { Sluice } from '../../src/sluice.ts'
import { forAllInTime } from '../for-all.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import type { Rule } from '../../src/limits/rule.ts'
import { takeIn } from '../takes/engine.ts'
import { type Act, anyHistory, anyLoad } from './acts.ts'
import { level, minute, places, second, sliding } from './oracle.ts'
import { anyRelatives } from './relatives.ts'
import { compare, setStage } from './stage.ts'
import { addBucket } from './engine.ts'

/** Repeats a run from the values that it has printed. */
const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))

describe.each([
  { engine: 'PostgreSQL', histories: isLong ? 150 : 6, length: 120 },
  { engine: 'PGlite', histories: isLong ? 20 : 1, length: 120 },
])('the store decides as the specification does: $engine', ({ engine, histories, length }) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: engine === 'PGlite' ? 'memory:' : (await freshDatabase()).url })
    await setStage(sluice.db)
  })
  afterAll(() => sluice.close())

  it(`in ${histories} random histories of ${length} acts, with all windows and periods within their bounds`, async () => {
    let acts = 0
    const property = fc.asyncProperty(anyHistory(length), async (history) => {
      acts += await compare(sluice.db, history)
    })
    // The failure names the act that differs; to shrink the history would take minutes.
    const limits = { endOnFailure: true, interruptAfterTimeLimit: 280_000, markInterruptAsFailure: true }
    await fc.assert(property, { seed, numRuns: histories, ...limits })
    console.info(`${engine}: ${acts} operations compared, SLUICE_TEST_SEED=${seed}`)
    expect(acts).toBeGreaterThanOrEqual(histories * length)
  }, 300_000)

  it('when a rule is changed to one that is almost the same', async () => {
    const property = fc.asyncProperty(anyHistory(60, anyRelatives, 12), async (history) => {
      await compare(sluice.db, history)
    })
    await fc.assert(property, { seed, numRuns: histories, endOnFailure: true })
  }, 300_000)

  it('while a limit that is used as much as it allows is changed', async () => {
    const property = fc.asyncProperty(anyLoad, async (history) => {
      await compare(sluice.db, history)
    })
    await fc.assert(property, { seed, numRuns: histories, endOnFailure: true })
  }, 300_000)

  const startUs = 1_800_000_000 * second
  const take: Act = { kind: 'take', buckets: [0], units: 3, again: false }
  const pass = (us: number): Act => ({ kind: 'pass', us })
  const play = (rules: Rule[], acts: Act[]) =>
    compare(sluice.db, { limits: [rules, [places(1)], [places(1)]], full: [false, false, false], startUs, acts })

  it.each([level(60, minute, 9), sliding(9, second)])(
    'after a refund of a newer grant, then of an older one: %o',
    async (rule) => {
      const back = (ago: number): Act => ({ kind: 'refund', bucket: 0, ago, share: 1 })
      expect(
        await play(
          [rule],
          [take, pass(second), take, pass(second), take, pass(second), back(1), back(2), back(3), take],
        ),
      ).toBe(14)
    },
  )

  it('when a bucket that has granted ahead gets places alone: it is free at the last instant', async () => {
    const redefine: Act = { kind: 'redefine', limit: 0, rules: [places(2)] }
    const acts: Act[] = [
      { kind: 'ahead', bucket: 0, units: 5 },
      redefine,
      take,
      { kind: 'jump', bucket: 0, us: -1 },
      take,
    ]
    expect(await play([level(50, second, 1)], [...acts, pass(1), take])).toBeGreaterThan(5)
  })

  it('when a new definition comes while the grants are in the oldest part of their window', async () => {
    const redefine: Act = { kind: 'redefine', limit: 0, rules: [sliding(10, second)] }
    for (const us of [-1, 0, 1])
      expect(await play([sliding(9, second)], [take, pass(60 * second + us), take, redefine, pass(second), take])).toBe(
        10,
      )
  })

  it('with a changed window, which counts the grants in its oldest part, and nothing before it', async () => {
    const [before, rate] = [limit('a', { window: '30/h' }).rules, limit('b', { rate: '30/h' }).rules]
    const after = limit('a', { window: '9/min' }).rules
    const partUs = after[0]?.partUs ?? 0
    const startUs = Math.ceil((Date.UTC(2026, 1, 3) * 1_000) / partUs) * partUs
    const take = (units: number): Act => ({ kind: 'take', buckets: [0], units, again: false })
    for (const parts of [59, 60, 61]) {
      for (const us of [0, 1, partUs - 1]) {
        const passed = (end: number): Act => ({ kind: 'pass', us: end })
        const acts = [passed(us), take(3), passed(parts * partUs - us), take(1)]
        const changed: Act[] = [{ kind: 'redefine', limit: 0, rules: [...after] }, take(1), take(5), take(1)]
        const limits = [before, rate, rate].map((rules) => [...rules])
        const history = { limits, full: [false, false, false], startUs, acts: [...acts, ...changed] }
        expect(await compare(sluice.db, history)).toBeGreaterThan(acts.length)
      }
    }
  })

  const bucket = (name: string, key: string) => addBucket(sluice.db, name, key)
  const grant = async (buckets: string[], id: string = randomUUID()) =>
    (
      await sluice.db.query<{ granted: boolean }>(`select granted from ${takeIn('$1', '$2::bigint[]')}`, [id, buckets])
    )[0]?.granted

  it('by granting nothing from a bucket whose limit is not defined, without a charge', async () => {
    const name = `l${randomUUID()}`
    await defineLimit(sqlOn(sluice.db), limit(name, { rate: '10/s' }))
    const buckets = [await bucket(name, 'a'), await bucket(`${name}.unknown`, 'a')]
    expect(await grant(buckets)).toBe(false)
    expect(await sluice.db.query('select 1 from sluice.ledger where bucket = any ($1)', [buckets])).toEqual([])
    expect(await grant(buckets.slice(0, 1))).toBe(true)
  })

  it('with one version for a repeated definition, and the next version for a changed one', async () => {
    const name = `l${randomUUID()}`
    for (const rate of ['5/s', '5/s', '6/s', '5/s'] as const)
      await defineLimit(sqlOn(sluice.db), limit(name, { rate }), 'code')
    const versions = await sluice.db.query('select version from sluice.limit_def where name = $1 order by 1', [name])
    expect(versions).toEqual([{ version: 1 }, { version: 2 }, { version: 3 }])
  })

  it('with the same hashes of names', async () => {
    const text = fc.string({ unit: 'grapheme' }).filter((one) => !one.includes('\u0000'))
    await forAllInTime(30, fc.array(text, { minLength: 1 }), async (names) => {
      const rows = await sluice.db.query<{ hash: string }>(
        'select sluice.hash64(n)::text as hash from unnest($1::text[]) with ordinality u (n, i) order by i',
        [names],
      )
      expect(rows.map((row) => row.hash)).toEqual(names.map(hash64))
    })
  })
})
