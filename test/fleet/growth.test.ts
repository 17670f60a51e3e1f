import { expect, it } from 'vitest'
import { Growth } from '../../src/fleet/growth.ts'

/** Looks every 15 s at a queue of these lengths; returns what was reported last. */
function look(growth: Growth, lengths: readonly number[], fromMs = 0) {
  let last: ReturnType<Growth['recordLengths']> = []
  for (const [i, value] of lengths.entries())
    last = growth.recordLengths(value === 0 ? [] : [{ subject: 'mail', value }], fromMs + i * 15_000)
  return last
}
const rising = (n: number, from = 1, by = 1) => Array.from({ length: n }, (_, i) => from + i * by)

it('the watch over growth knows for how long a queue has grown, and by how much a minute', () => {
  // 41 looks are 10 minutes; 4 jobs more in each minute.
  expect(look(new Growth(), rising(41))).toEqual([{ subject: 'mail', forMs: 600_000, perMinute: 4 }])
  expect(look(new Growth(), rising(4))).toEqual([])
})

it('the watch over growth begins anew when the queue is empty, or does not grow for a minute', () => {
  const growth = new Growth()
  look(growth, rising(41))
  expect(look(growth, [0, 1, 2], 615_000)).toEqual([])
  const flat = new Growth()
  expect(look(flat, [...rising(41), 41, 41, 41, 41])).toEqual([])
  expect(look(flat, rising(9, 42), 675_000)).toEqual([{ subject: 'mail', forMs: 120_000, perMinute: 4 }])
})

it('the watch over growth is not deceived by a lull of seconds, and remembers nothing across a long pause', () => {
  const lengths = rising(41).map((length, i) => (i % 4 === 2 ? length - 2 : length))
  expect(look(new Growth(), lengths)[0]?.forMs).toBe(600_000)
  const growth = new Growth()
  look(growth, rising(41))
  expect(look(growth, rising(2, 100), 2_000_000)).toEqual([])
  expect(growth.isNew(2_015_000)).toBe(true)
  look(growth, rising(12, 102), 2_030_000)
  expect(growth.isNew(2_195_000)).toBe(false)
})
