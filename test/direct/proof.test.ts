/** Workers without a store keep a limit, at the same rate however many they are, and what is denied delays nothing else. */
import { describe, expect, it } from 'vitest'
import { isLong } from '../long.ts'
import { kinds } from './brokers.ts'
import { prove, quantile } from './fleet.ts'
import { mostIn } from './stage.ts'

const tasks = isLong ? 5_000 : 200
const free = isLong ? 200 : 20
const fleets = kinds.flatMap((kind) => (isLong ? [1, 8] : [1, 2]).map((workers) => [workers, kind] as const))

/** What each fleet did in a second, by kind of broker. */
const rates = new Map<string, number[]>()

// The long form measures how long tasks wait, so that its fleets run one after the other.
describe('tasks of a Python producer under 100/s, without a store', { concurrent: !isLong }, () => {
  it.each(fleets)(
    'are executed once, within the limit, by %i workers over %s',
    { timeout: 300_000 },
    async (workers, kind) => {
      const proof = await prove({ kind, tasks, rate: '100/s', workers, slots: 10, free, gapMs: isLong ? 100 : 30 })
      const { arrivals, waits, deliveries, counts } = proof
      const times = arrivals.map(({ atMs }) => atMs).toSorted((a, b) => a - b)
      const most = mostIn(times, 1_000)
      expect(most).toBeLessThanOrEqual(100)
      expect(arrivals).toHaveLength(tasks)
      expect(new Set(arrivals.map(({ n }) => n)).size).toBe(tasks)
      expect(arrivals.every(({ attempt }) => attempt === 1)).toBe(true)
      expect(waits).toHaveLength(2 * free)
      const perS = ((times.length - 1) * 1_000) / ((times.at(-1) ?? 0) - (times[0] ?? 0))
      rates.set(kind, [...(rates.get(kind) ?? []), perS])
      if (!isLong) return
      const [behind, beside] = [waits.slice(0, free), waits.slice(free)].map((all) => quantile(all, 0.99))
      console.log({ kind, workers, perS, most, deliveries, counts, behind, beside })
      expect(deliveries).toBeLessThan(3)
      expect(behind).toBeLessThanOrEqual(250)
      expect(beside).toBeLessThanOrEqual(250)
    },
  )

  it.runIf(isLong).each(kinds)('are executed by 8 workers at the rate of 1 over %s', (kind) => {
    const [one = 0, eight = 0] = rates.get(kind) ?? []
    expect(Math.abs(eight / one - 1)).toBeLessThan(0.05)
  })
})
