/** What of an error passes between threads. */
import { expect, test } from 'vitest'
import { refusalIn } from '../../src/http/feedback.ts'
import { pack, unpack } from '../../src/worker/error-transfer.ts'

test.each([
  { status: 429, headers: new Headers({ 'retry-after': '77' }) },
  { status: 429, headers: { 'Retry-After': 77 } },
  { response: { status: 429, headers: { 'retry-after': '77' }, data: () => 'cannot be sent' } },
])('the refusal in the error of an HTTP client passes from a thread: %j', (fields) => {
  const thrown = unpack(structuredClone(pack(Object.assign(new Error('Rate limit'), fields))))
  expect(refusalIn(thrown, [])).toMatchObject({ retryAfterMs: 77_000 })
})

test('what is no Error passes with its message and its status, or with the names of its fields', () => {
  const passed = (value: unknown) => unpack(structuredClone(pack(value)))
  const answer = { status: 429, headers: { 'retry-after': '77' }, message: 'Rate limit' }
  expect(passed(answer)).toMatchObject({ message: 'Rate limit', status: 429 })
  expect(refusalIn(passed(answer), [])).toMatchObject({ retryAfterMs: 77_000 })
  expect(passed({ reason: 'down' })).toMatchObject({ message: expect.stringContaining('Object with reason') })
  expect(passed(undefined)).toContain('not an Error: undefined')
})
