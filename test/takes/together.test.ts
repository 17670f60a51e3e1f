/** Takes that go together in one statement are decided as if each had a statement of its own. */
import { randomInt, randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { empty, emptied, mainEngines, ownClock, quietTask } from '../claim/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import { type Answer, type Asked, acquireTogether, fillLine, placesTaken, takersInLine, takersRead } from './engine.ts'

const seed = Number(process.env['SLUICE_TEST_SEED'] ?? randomInt(2 ** 31))
const startMs = Date.UTC(2026, 10, 21)
const rate = limit('rate', { rate: '60/min', burst: 6 })
/** Its takers are granted units ahead of time. */
const quick = limit('quick', { rate: '20/s', burst: 2 })
const hour = limit('hour', { window: '30/h' })
const seats = limit('seats', { concurrency: 3 })
/** What takers want: several buckets, and the units of each. */
const kinds = [
  { of: ['rate'], cost: 1 },
  { of: ['rate', 'hour'], cost: 2 },
  { of: ['seats', 'rate'], cost: 1 },
  { of: ['quick'], cost: 1 },
] as const

const step = fc.record({
  kind: fc.nat(kinds.length - 1),
  /** The takers of that kind, by number; from 5 on one that does not wait. */
  who: fc.uniqueArray(fc.nat(7), { minLength: 1, maxLength: 6 }),
  passMs: fc.oneof(fc.constant(0), fc.nat(200), fc.nat(3_000)),
  goesBack: fc.boolean(),
})
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

/** A history, with the same ids however often it is played. */
function historyOf(steps: readonly Step[]) {
  const lines = kinds.map(() => Array.from({ length: 5 }, () => newId()))
  const grants = steps.map(({ who }) => who.map(() => randomUUID()))
  return { steps, lines, grants, holder: newId() }
}

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)

    /** Plays a history; returns all answers, what was charged, and who waits. */
    async function play({ steps, lines, grants, holder }: ReturnType<typeof historyOf>, isTogether: boolean) {
      await empty(at.db)
      await at.sluice.define([quietTask('any', [rate, hour, seats, quick])])
      const clock = await ownClock(at.db, startMs)
      /** The waiting takers, in the order of the line. */
      const line: string[] = []
      const unused = new Map<number, string>()
      const told: Answer[][] = []
      let nowMs = startMs
      for (const [i, { kind, who, passMs, goesBack }] of steps.entries()) {
        await clock.set((nowMs += passMs))
        const { of, cost } = kinds[kind] as (typeof kinds)[number]
        const asked = who.map((n, k): Asked => ({
          grant: grants[i]?.[k] as string,
          line: lines[kind]?.[n] as string,
          holder,
        }))
        const place = ({ line: own }: Asked) => (line.includes(own as string) ? line.indexOf(own as string) : Infinity)
        const inOrder = asked.toSorted((a, b) => (place(a) === place(b) ? 0 : place(a) - place(b)))
        const [first] = inOrder
        const back = unused.get(kind)
        if (goesBack && back !== undefined && first !== undefined) first.back = back
        unused.delete(kind)
        const answers = isTogether ? await acquireTogether(at.db, of, cost, asked) : []
        if (!isTogether)
          for (const one of inOrder)
            answers[asked.indexOf(one)] = (await acquireTogether(at.db, of, cost, [one]))[0] as Answer
        told.push(answers)
        for (const one of inOrder) {
          const { granted } = answers[asked.indexOf(one)] as Answer
          if (granted) unused.set(kind, one.grant as string)
          if (granted && place(one) < Infinity) line.splice(place(one), 1)
          if (!granted && one.line !== undefined && place(one) === Infinity) line.push(one.line)
        }
      }
      expect(await at.sluice.verify()).toMatchObject({ exceeded: [] })
      return {
        told,
        used: await unitsUsed(at.db),
        places: await placesTaken(at.db),
        waiting: await takersInLine(at.db),
      }
    }

    it('several takers in one statement read a long line once', async () => {
      await empty(at.db)
      await at.sluice.define([quietTask('any', [rate])])
      await fillLine(at.db, 'rate', 300)
      const asked = Array.from({ length: 10 }, (): Asked => ({ line: newId() }))
      await at.db.transaction(async (tx) => {
        const before = await takersRead(tx)
        for (const { granted } of await acquireTogether(tx, ['rate'], 1, asked)) expect(granted).toBe(false)
        expect((await takersRead(tx)) - before).toBeLessThan(2 * 300)
      })
    })

    it('several takers in one statement get what each would get in its turn, and wait as long', async () => {
      const seen = { granted: 0, denied: 0, both: 0, ahead: 0 }
      const property = fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 25 }), async (steps) => {
        const history = historyOf(steps)
        const together = await play(history, true)
        expect(together).toEqual(await play(history, false))
        for (const answers of together.told) {
          const granted = answers.filter((one) => one.granted).length
          seen.granted += granted
          seen.ahead += answers.filter((one) => one.aheadMs > 0).length
          seen.denied += answers.length - granted
          if (granted > 0 && granted < answers.length) seen.both++
        }
      })
      await fc.assert(property, { seed, numRuns: 6, endOnFailure: true })
      console.info(`SLUICE_TEST_SEED=${seed}`, JSON.stringify(seen))
      expect(Math.min(...Object.values(seen))).toBeGreaterThan(0)
    }, 120_000)
  })
}
