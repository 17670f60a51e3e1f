/** The loop of `dispatchOnce`. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { claimAllOnce } from '../../src/worker/once.ts'

it.each([
  { max: Infinity, ran: 1_300, catchUps: 5 },
  { max: 700, ran: 700, catchUps: 1 },
])('runs at most $max jobs, those included that handlers of events lack at first', async ({ max, ran, catchUps }) => {
  let [waiting, asked] = [500, 0]
  const lacking = [500, 0, 300]
  const claimOnce = async (most: number) => {
    const claimed = Math.min(most, waiting)
    waiting -= claimed
    return claimed
  }
  const catchUp = async () => {
    asked++
    const more = lacking.shift()
    waiting += more ?? 0
    return more !== undefined
  }
  const parts = {
    dispatcher: { hand: { returned: 0, readmitted: 0, putOff: 0 }, claimOnce },
    finisher: { hasGivenUp: false },
    member: { endOverdue: async () => 0 },
    clock: systemClock,
    sinceMs: 0,
    catchUp,
    idle: async () => {},
    end: new AbortController().signal,
  }
  expect(await claimAllOnce(max, parts as never)).toBe(ran)
  expect(asked).toBe(catchUps)
})
