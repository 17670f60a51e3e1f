import { expect, it } from 'vitest'
import { line, numbers, runExample } from './program.ts'

it('interactive jobs overtake the batch on one account whose limit is not exceeded', async ({ signal }) => {
  const out = await runExample('interactive-and-batch.ts', signal)
  const cards = Array.from({ length: 10 }, (_, card) => numbers(line(out, `card ${card}:`)))
  const [, waiting, before] = [0, 1, 2].map((n) => cards.map((card) => card[n] ?? NaN)) as [
    number[],
    number[],
    number[],
  ]
  // Only batch calls that were under way, or granted for the next fifth of a second, go first.
  expect(before.filter((rows) => rows <= 20).length).toBeGreaterThan(5)
  expect(sum(before)).toBeLessThan(sum(waiting) / 4)
  expect(numbers(line(out, 'row 249'))[1]).toBeLessThan(125)
  expect(numbers(line(out, 'batch:'))[0]).toBe(249)
  expect(numbers(line(out, 'interactive:'))[0]).toBe(11)
  expect(numbers(line(out, 'at most'))[0]).toBeLessThanOrEqual(100)
}, 300_000)

function sum(all: number[]): number {
  return all.reduce((a, b) => a + b, 0)
}
