import fc from 'fast-check'
import { expect, test } from 'vitest'

const never = () => new Promise<void>(() => {})

test(
  'a property that would reach the time-out while it shrinks shows its counterexample',
  { timeout: 2_000 },
  async () => {
    let runs = 0
    const fails = fc.asyncProperty(fc.integer({ min: 5 }), () =>
      runs++ === 0 ? Promise.reject(new Error('no')) : never(),
    )
    await expect(fc.assert(fails)).rejects.toThrow(/Counterexample/)
  },
)

test('a property that would reach the time-out before it fails reports that', { timeout: 2_000 }, async () => {
  await expect(fc.assert(fc.asyncProperty(fc.integer(), never))).rejects.toThrow(/interrupted/)
})
