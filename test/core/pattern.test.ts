import fc from 'fast-check'
import { expect, test } from 'vitest'
import { fits } from '../../src/core/pattern.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

test('patterns match the same names as their regular expressions', () => {
  const name = fc.string({ unit: fc.constantFrom('a', 'b', '.'), maxLength: 8 })
  const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*'), maxLength: 6 })
  forAll(cases(3_000), pattern, name, (p, n) => {
    const source = p.replaceAll('.', String.raw`\.`).replaceAll('*', '.*')
    expect(fits(p, n)).toBe(new RegExp(`^${source}$`, 's').test(n))
  })
})
