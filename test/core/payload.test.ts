import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { encodePayload, payloadBytesMax, payloadDepthMax } from '../../src/core/payload.ts'
import { forAll } from '../for-all.ts'

const encode = (value: unknown): unknown => {
  try {
    return encodePayload(value, 'input of "a"')
  } catch (error) {
    return (error as { code?: string }).code
  }
}
const nested = (levels: number): unknown => (levels === 0 ? 1 : [nested(levels - 1)])
const cycle: Record<string, unknown> = { inner: {} }
cycle['inner'] = { again: [cycle] }
const givenBy = (toJSON: () => unknown) => ({ toJSON })

describe('a stored value', () => {
  it('is the JSON text, for every value that JSON can express', () => {
    forAll(fc.jsonValue({ maxDepth: 6, noUnicodeString: false }), (value) => {
      fc.pre(!/\\u0000|\\ud[89a-f]/i.test(JSON.stringify(value)))
      expect(encode(value)).toBe(JSON.stringify(value))
    })
  })

  it.each([
    [undefined, 'null'],
    [{ a: undefined, b: null }, '{"b":null}'],
    ['grinning 😀', '"grinning 😀"'],
    [givenBy(() => ({ a: 1 })), '{"a":1}'],
  ])('is JSON for %j', (value, text) => expect(encode(value)).toBe(text))

  it('is the ISO text for a date, and an object that occurs twice is no cycle', () => {
    const one = { a: 1 }
    expect(encode([one, one])).toBe('[{"a":1},{"a":1}]')
    expect(encode({ at: new Date(0) })).toBe('{"at":"1970-01-01T00:00:00.000Z"}')
  })

  it('may be an object without a prototype', () => {
    expect(encode(Object.assign(Object.create(null), { a: 1 }))).toBe('{"a":1}')
  })

  it('may contain classes if it is a result, as JSON writes them, and what is lost is reported', () => {
    class Contact {
      id = 7
    }
    const lost: string[] = []
    const result = { seen: new Map([[1, 2]]), of: [new Contact()], bad: new Date(NaN), error: new Error('no') }
    const stored = encodePayload(result, 'result of "a"', (text) => lost.push(text))
    expect(stored).toBe('{"seen":{},"of":[{"id":7}],"bad":null,"error":{}}')
    // In one text, because a long list may have thousands.
    expect(lost).toEqual([expect.stringMatching(/^result of "a" at seen is of the class Map, .*; 2 more like it$/)])
    for (const [value, why] of [
      [{ bad: new Date(NaN) }, 'at bad is an invalid Date'],
      [Object.assign(new Error('no'), { code: 'A' }), 'is of the class Error'],
    ] as const) {
      encodePayload(value, 'result of "a"', (text) => lost.push(text))
      expect(lost.at(-1)).toContain(`result of "a" ${why}`)
    }
  })

  it('has a maximum depth and length, exact to the level and the byte', () => {
    expect(encode(nested(payloadDepthMax))).toBe(JSON.stringify(nested(payloadDepthMax)))
    expect(encode(nested(payloadDepthMax + 1))).toBe('SLUICE_BAD_PAYLOAD')
    expect(encode('é'.repeat(payloadBytesMax / 2 - 1))).toHaveLength(payloadBytesMax / 2 + 1)
    expect(encode('é'.repeat(payloadBytesMax / 2))).toBe('SLUICE_PAYLOAD_TOO_LARGE')
  })
})

describe('a payload is refused when it contains', () => {
  const bad: [string, unknown][] = [
    ['a BigInt', 1n],
    ['NaN', NaN],
    ['-Infinity', -Infinity],
    ['a function', () => {}],
    ['a symbol', Symbol('a')],
    ['a cycle', cycle],
    ['NUL', 'a\u0000'],
    ['half a surrogate pair', '\ud83d'],
    ['NUL in a key', { 'a\u0000': 1 }],
    ['half a surrogate pair in a key', { '\udc00': 1 }],
    ['NUL from toJSON', givenBy(() => 'a\u0000')],
    ['a BigInt from toJSON', givenBy(() => ({ a: 1n }))],
    ['a cycle from toJSON', givenBy(() => cycle)],
    ['a Map', new Map([['a', 1]])],
    ['a Set', new Set([1])],
    ['an instance of a class', new (class Contact {})()],
    ['bytes', new Uint8Array(2)],
    ['a Map from toJSON', givenBy(() => new Map())],
  ]
  it.each(bad)('%s', (_, value) => expect(encode(value)).toBe('SLUICE_BAD_PAYLOAD'))
  it.each(bad)('%s, deep inside', (_, value) => expect(encode({ list: [0, { value }] })).toBe('SLUICE_BAD_PAYLOAD'))

  it('a bad value, and the error names its path', () => {
    expect(() => encodePayload({ list: [0, { at: NaN }] }, 'input of "a"')).toThrow('input of "a" at list.1.at is NaN')
  })
})
