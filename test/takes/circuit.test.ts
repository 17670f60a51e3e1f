/** In which rows of failures a failure counts. */
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { Circuit } from '../../src/takes/circuit.ts'

it('keys with line breaks have rows of failures of their own', async () => {
  const scopes: unknown[] = []
  const run = async (_: string, [all]: [unknown[]]) => void scopes.push(...all)
  const circuit = new Circuit({ clock: systemClock, run } as never)
  for (const buckets of [
    ['a:1\nb:2', 'c:3'],
    ['a:1', 'b:2\nc:3'],
  ])
    await circuit.endFailures(buckets, buckets, 'down')
  expect(new Set(scopes).size).toBe(2)
})
