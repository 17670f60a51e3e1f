import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { describe as describeError } from '../../src/worker/verdict.ts'

const stored = (error: unknown) => JSON.parse(describeError(error))

it('an error is stored with its causes, and with the first code among them', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
  const error = stored(new TypeError('fetch failed', { cause: new Error('socket', { cause: refused }) }))
  expect(error).toMatchObject({
    name: 'TypeError',
    message: 'fetch failed',
    code: 'ECONNREFUSED',
    stack: expect.stringContaining('verdict.test.ts'),
    cause: { message: 'socket', cause: { message: 'connect ECONNREFUSED', code: 'ECONNREFUSED' } },
  })
  expect(stored(Object.assign(new Error('x', { cause: refused }), { code: 'E_OWN', status: 503 }))).toMatchObject({
    code: 'E_OWN',
    status: 503,
  })
})

it('an error of several has the first of them as its cause, and its words if it has none of its own', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED ::1:80'), { code: 'ECONNREFUSED' })
  const all = [refused, new Error('connect ECONNREFUSED 127.0.0.1:80')]
  expect(stored(new AggregateError(all, 'all promises were rejected'))).toMatchObject({
    message: 'all promises were rejected',
    code: 'ECONNREFUSED',
    cause: { message: refused.message },
  })
  expect(stored(new AggregateError(all))).toMatchObject({ name: 'AggregateError', message: refused.message })
  // A schema's error lists what is wrong, and not by errors.
  const issues = Object.assign(new Error('no'), { errors: [{ message: 'required', code: 'invalid_type' }] })
  expect(stored(issues)).toEqual({ name: 'Error', message: 'no', stack: expect.any(String) })
})

it('a circle of causes ends, and a cause that is no error is left out', () => {
  const error = new Error('one')
  error.cause = new Error('other', { cause: error })
  expect(describeError(error).length).toBeLessThan(4_096)
  expect(stored(new Error('x', { cause: 'a text' })).cause).toBeUndefined()
})

it('what is no Error is stored with what it holds, without secrets', async () => {
  expect(stored({ status: 503, message: 'busy', code: 'E_BUSY' })).toMatchObject({
    name: 'Error',
    message: 'busy',
    status: 503,
    code: 'E_BUSY',
  })
  expect(stored(runInNewContext(`new TypeError('of another realm')`))).toMatchObject({
    name: 'TypeError',
    message: 'of another realm',
  })
  const odd = 'the handler threw something that is not an Error: '
  expect(stored({ reason: 'down', password: 'hunter2-hunter2' }).message).toBe(`${odd}Object with reason, password`)
  expect(stored(new Map([['password', 'hunter2-hunter2']])).message).toBe(`${odd}Map`)
  const wide = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`f${n}`, 'hunter2-hunter2']))
  expect(stored(wide).message).toBe(`${odd}Object with f0, f1, f2, f3, f4, f5, f6, f7, f8, f9`)
  expect(stored(5n).message).toBe(`${odd}5n`)
  expect(stored(undefined).message).toBe(`${odd}undefined`)
  const circle: Record<string, unknown> = { text: '€'.repeat(100_000) }
  circle['own'] = circle
  expect(Buffer.byteLength(describeError(circle))).toBeLessThanOrEqual(4_096)
})

it.each([
  ['text of one byte', 'a'],
  ['text of three bytes', '€'],
  ['characters that JSON escapes', '\u0001'],
  ['characters outside of the basic plane', '𝄞'],
])('an error takes at most 4 KiB, whatever it has: %s', (_, character) => {
  const long = character.repeat(20_000)
  const cause = new Error(long, { cause: new Error(long, { cause: new Error(long) }) })
  const error = Object.assign(new Error(long, { cause }), { code: long, name: long, stack: long })
  const json = describeError(error)
  expect(Buffer.byteLength(json)).toBeLessThanOrEqual(4_096)
  expect(json.isWellFormed()).toBe(true)
  expect(JSON.parse(json).message.length).toBeGreaterThan(100)
})
