import fc from 'fast-check'
import { expect, it } from 'vitest'
import { hash64, idMs, isId, newId } from '../../src/core/hash.ts'
import { forAll } from '../for-all.ts'

it('a text hashes to the first 8 bytes of its SHA-256, as a signed 64-bit integer', () => {
  // SHA-256 of the empty text begins e3b0c44298fc1c14, of "abc" ba7816bf8f01cfea.
  expect(hash64('')).toBe(BigInt.asIntN(64, 0xe3b0c44298fc1c14n).toString())
  expect(hash64('abc')).toBe(BigInt.asIntN(64, 0xba7816bf8f01cfean).toString())
})

it('new ids sort by creation and contain their time', () => {
  const ids = Array.from({ length: 2_000 }, newId)
  expect(ids.toSorted()).toEqual(ids)
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids.every(isId)).toBe(true)
  const times = ids.map(idMs)
  expect(times.toSorted((a, b) => a - b)).toEqual(times)
})

it('the time of an id can be read from it', () => {
  forAll(fc.integer({ min: 0, max: 2 ** 48 - 1 }), (ms) => {
    const hex = ms.toString(16).padStart(12, '0')
    expect(idMs(`${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`)).toBe(ms)
  })
})

it.each([
  '',
  'a',
  '00000000-0000-0000-0000-000000000000',
  '6e6e1d5c-6d5c-4a0e-9d41-0a8e1f2f3c4d',
  `${'0'.repeat(8)}-0000-7000-8000-${'0'.repeat(11)}`,
])('%j is no id', (text) => expect(isId(text)).toBe(false))
