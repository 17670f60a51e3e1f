/** When failures in a row open a circuit, and how far apart its trials are: the specification, and the store against it. */
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import { type Cause, opening } from '../../src/limits/circuit.ts'
import { counted, distanceUs, type Failures } from './circuit.ts'
import { emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { fn } from '../servers/fn.ts'

const startMs = 1_800_000_000_000

describe('a circuit', () => {
  it('is opened by five failures in a row of two jobs, and not by one unlucky job', () => {
    expect(opening('down', { n: 1000, who: 1 }, undefined, 5)).toBe('none')
    expect(opening('down', { n: 4, who: 4 }, undefined, 5)).toBe('none')
    expect(opening('down', { n: 5, who: 2 }, undefined, 5)).toBe('own')
  })

  it('is opened for a key with one job if other keys fail too, and for what they share from three keys on', () => {
    const own = { n: 1, who: 1 }
    expect(opening('down', own, { n: 5, who: 1 }, 5)).toBe('none')
    expect(opening('down', own, { n: 5, who: 2 }, 5)).toBe('own')
    expect(opening('down', own, { n: 5, who: 3 }, 5)).toBe('all')
  })

  it('is opened for a rejected credential by three jobs, whatever their number of attempts', () => {
    expect(opening('credential', { n: 9, who: 2 }, undefined, 5)).toBe('none')
    expect(opening('credential', { n: 3, who: 3 }, undefined, 1000)).toBe('own')
  })

  it('is tried within 4 s for the first minute, and more and more seldom later', () => {
    const holds = (cause: Cause, bucket: bigint, ages: number[]) =>
      ages.map((s, i) => distanceUs(cause, bucket, i < 2 ? i + 1 : 10, s * 1e6, 60e6) / 1e6)
    expect(holds('down', 0n, [0, 1, 3, 60, 120, 3_600])).toEqual([1, 2, 3, 3, 6, 60])
    expect(holds('down', 255n, [0, 1, 3, 60]).every((s) => s < 4)).toBe(true)
    expect(holds('credential', 0n, [0, 60, 180, 3_600, 86_400])).toEqual([60, 120, 180, 180, 900])
  })
})

describe.each(mainEngines)('failures in a row, on $name', (engine) => {
  const at = emptied(engine)
  let clock: { set(ms: number): Promise<void> }
  beforeEach(async () => {
    clock = await ownClock(at.db, startMs)
  })

  it('count in the store as in the specification', async () => {
    let run = 0
    const step = fc.record({
      afterMs: fc.constantFrom(0, 1, 900, 5_000, 119_999, 120_000, 120_001),
      scope: fc.nat(2),
      who: fc.nat(11),
      fineMs: fc.option(fc.constantFrom(0, 1, 1_000, 5_001, 120_000), { freq: 2 }),
    })
    const property = fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 60 }), async (steps) => {
      run++
      const model = new Map<number, Failures>()
      let nowMs = startMs + run * 86_400_000
      for (const { afterMs, scope, who, fineMs } of steps) {
        nowMs += afterMs
        await clock.set(nowMs)
        const fineUs = fineMs === null ? undefined : (nowMs - fineMs) * 1_000
        const after = counted(model.get(scope), String(who), nowMs * 1_000, fineUs, 'down')
        model.set(scope, after)
        const params = [[hash64(`${run} ${scope}`)], [who], [fineMs === null ? null : fineMs * 1_000]]
        const rows = await at.db.query<{ n: number[]; who: number[] }>(
          `select * from ${fn}.count_failures($1, $2, $3, 120000000, null)`,
          params,
        )
        expect(rows).toEqual([{ n: [after.n], who: [after.who.length] }])
      }
    })
    await fc.assert(property, { numRuns: 8 })
  })

  it('are as far apart in the store as in the specification', async () => {
    for (const cause of ['refused', 'down', 'credential'] as const)
      for (const bucket of [0n, 77n, -1n, 255n])
        for (const n of [1, 2, 3, 11, 1_000])
          for (const ageUs of [0, 61_000_000, 4e12]) {
            const [row] = await at.db.query<{ us: string }>(`select ${fn}.trial_interval($1, $2, $3, $4) as us`, [
              cause,
              bucket,
              n,
              ageUs,
            ])
            expect(Number(row?.us)).toBe(distanceUs(cause, bucket, n, ageUs, 10_000_000))
          }
  })
})
