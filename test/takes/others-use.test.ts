/** A limit whose account somebody else uses too, or nobody: minutes of a fleet of two processes, on a clock that the test moves. */
import { beforeAll, describe, expect, it } from 'vitest'
import { hash64 } from '../../src/core/hash.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { storeOn } from '../../src/db/store.ts'
import { type Limit, limit } from '../../src/limits/limit.ts'
import { OthersUse } from '../../src/takes/others-use.ts'
import { isLong } from '../long.ts'
import { freshSluice } from '../servers/sluice.ts'
import { Account, type Way } from '../vendors/account.ts'
import { Minutes, random, type Window } from '../vendors/minutes.ts'

const minute = 60_000
/** Windows that are counted: the one under way at first is not, nor the next, since the account was not watched before. */
const counted = isLong ? 8 : 2

let minutes: Minutes
const sluice = await freshSluice()
beforeAll(async () => {
  minutes = new Minutes(sluice.db)
  await minutes.open()
})

/** Plays some minutes, with another client that uses this part of the account at random times. */
async function play(of: Limit, way: Way, othersPart: number, seed: number) {
  let nowMs = 0
  const clock: Clock = { ...systemClock, monotonicMs: () => nowMs, bootMs: () => nowMs, wallMs: () => nowMs }
  let comparing: Promise<unknown> = Promise.resolve()
  const store = storeOn(sluice.db, { clock })
  const call = (...asked: Parameters<typeof store.call>) => (comparing = store.call(...asked)) as never
  const fleet = [new OthersUse({ ...store, call }), new OthersUse({ ...store, call })]
  const draw = random(seed)
  const windows = await minutes.play({
    of,
    account: new Account(way, 100),
    untilMs: (counted + 2) * minute,
    saw: (counts) => {
      fleet[draw(2)]?.recordCounts([of.name], [of], counts, () => null)
      return comparing
    },
    step: (ms) => {
      nowMs = ms
      return draw(1_000_000) < (othersPart * 100 * 1_000_000) / 120 ? 1 : 0
    },
  })
  const [sum] = await sluice.db.query<{ units: string }>(
    `select coalesce(sum(units), 0) as units from sluice.ledger where bucket = $1 and cause = 'others'`,
    [hash64(of.name)],
  )
  return { windows: windows.slice(2, 2 + counted), charged: Number(sum?.units) }
}

const sum = (windows: readonly Window[], of: (window: Window) => number) =>
  windows.reduce((all, window) => all + of(window), 0)

describe('an account that nobody else uses', () => {
  it.each(['fixed window', 'sliding log', 'bucket'] as const)('is not charged, by a %s', async (way) => {
    const rate = limit(`alone-rate-${way[0]}`, { rate: '100/min' })
    const window = limit(`alone-window-${way[0]}`, { window: '100/min' })
    for (const of of isLong ? [rate, window] : [rate]) {
      const { windows, charged } = await play(of, way, 0, 1)
      const ours = sum(windows, (one) => one.ours)
      expect(ours).toBeGreaterThan(counted * 85)
      expect(charged / ours).toBeLessThanOrEqual(0.01)
    }
  })
})

describe('an account of which another client takes 30 % at random', () => {
  const seeds = isLong ? [1, 2, 3, 4] : [1]
  const ways: Way[] = isLong ? ['fixed window', 'sliding log', 'bucket'] : ['fixed window', 'sliding log']
  const cases = seeds.flatMap((seed) => ways.map((way) => ({ way, seed })))
  it.each(cases)('refuses at most once a window, and the rest is used: $way, $seed', async ({ way, seed }) => {
    const { windows, charged } = await play(limit(`shared-${way[0]}${seed}`, { rate: '100/min' }), way, 0.3, seed)
    for (const { refused } of windows) expect(refused).toBeLessThanOrEqual(1)
    const rest = sum(windows, ({ others }) => 100 - others)
    expect(sum(windows, ({ ours }) => ours) / rest).toBeGreaterThanOrEqual(0.85)
    expect(charged).toBeGreaterThan(0)
    expect(await sluice.verify({ limit: `shared-${way[0]}${seed}` })).toMatchObject({ isProved: true, others: charged })
  })
})
