import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { withReadableHeaders } from '../../src/amqp/foreign-headers.ts'
import { typeHeaders } from '../../src/amqp/headers.ts'
import { forAll } from '../for-all.ts'

/** A content header frame, as a server sends it. `entries`: names, and values with their type. */
function frame(entries: readonly (readonly [string, Buffer])[], behind = ''): Buffer {
  const table = Buffer.concat(
    entries.flatMap(([name, value]) => [Buffer.from([name.length]), Buffer.from(name), value]),
  )
  const properties = [short('application/json'), short('utf-8'), sized(table), Buffer.from([2])]
  const payload = Buffer.concat([Buffer.alloc(12), Buffer.from([0xf0, 0]), ...properties])
  const head = Buffer.from([2, 0, 1, 0, 0, 0, 0])
  head.writeUInt32BE(payload.length, 3)
  return Buffer.concat([head, payload, Buffer.from([0xce]), Buffer.from(behind)])
}

const short = (text: string) => Buffer.from([text.length, ...Buffer.from(text)])
function sized(bytes: Buffer): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(bytes.length)
  return Buffer.concat([length, bytes])
}
const value = (type: string, bytes: Buffer | readonly number[] = []) =>
  Buffer.concat([Buffer.from(type), Buffer.from(bytes)])
const eight = [0, 0, 1, 0, 0, 0, 0, 0]

describe('headers of other clients', () => {
  it('of a type that is the same as another one by another name are read', () => {
    const given = frame([
      ['big', value('L', eight)],
      ['in', value('F', sized(Buffer.concat([short('a'), value('L', eight)])))],
    ])
    const read = frame([
      ['big', value('l', eight)],
      ['in', value('F', sized(Buffer.concat([short('a'), value('l', eight)])))],
    ])
    expect(withReadableHeaders(given)).toEqual(read)
  })

  it('of an unknown type are left out, with those behind them', () => {
    const text = ['text', value('S', sized(Buffer.from('hello')))] as const
    const given = frame([text, ['odd', value('?', [1, 2])], ['lost', value('I', [0, 0, 0, 1])]], 'next frame')
    expect(withReadableHeaders(given)).toEqual(frame([text], 'next frame'))
  })

  it('with an unknown type inside of a list are left out alone', () => {
    const list = value('A', sized(Buffer.concat([value('t', [1]), value('?', [1])])))
    const whole = ['whole', value('A', sized(value('V')))] as const
    expect(withReadableHeaders(frame([['list', list], whole]))).toEqual(frame([whole]))
  })

  it('nested thousands of levels deep are left out alone', () => {
    const levels = 20_000
    const deep = Buffer.alloc(5 * levels + 1, 'V')
    for (let i = 0; i < levels; i++) {
      deep.write('A', 5 * i)
      deep.writeUInt32BE(5 * (levels - i - 1) + 1, 5 * i + 1)
    }
    const whole = ['whole', value('A', sized(value('V')))] as const
    expect(withReadableHeaders(frame([['deep', deep], whole]))).toEqual(frame([whole]))
  })

  it('are not looked for in other frames', () => {
    expect(withReadableHeaders(Buffer.from([1, 0, 1, 0, 0, 0, 0]))).toBeUndefined()
    expect(withReadableHeaders(Buffer.alloc(3))).toBeUndefined()
  })
})

describe('integers in headers', () => {
  it('have 32 bits, else 64', () =>
    forAll(fc.oneof(fc.maxSafeInteger(), fc.integer(), fc.integer({ min: -300, max: 40_000 })), (n) => {
      const type = n >= -(2 ** 31) && n < 2 ** 31 ? 'int32' : 'int64'
      const one = { '!': type, value: n }
      expect(typeHeaders({ n, list: [n], inner: { n }, big: BigInt(n) })).toEqual({
        n: one,
        list: [one],
        inner: { n: one },
        big: one,
      })
    }))

  it('keep all their digits as bigint, and other values stay as they are', () => {
    const body = Buffer.from('1')
    expect(typeHeaders({ wide: 2n ** 62n + 1n, text: 'a', yes: true, none: null, body, half: 0.5 })).toEqual({
      wide: { '!': 'int64', value: 2n ** 62n + 1n },
      text: 'a',
      yes: true,
      none: null,
      body,
      half: { '!': 'double', value: 0.5 },
    })
  })
})
