import fc from 'fast-check'
import { expect, test } from 'vitest'
import { hideValue } from '../../src/core/redact.ts'
import { check, HttpStatusError, limit, SluiceError } from '../../src/index.ts'
import { httpServer, setup } from './bench.ts'
import { forAllInTime } from '../for-all.ts'

const thrown = async (response: Response) => {
  const error: unknown = await check(response).catch((reason: unknown) => reason)
  return error as HttpStatusError
}
const isRetried = (status: number) => [408, 425, 429].includes(status) || status >= 500

test('2xx and 3xx are returned, unread', async () => {
  for (let status = 200; status < 400; status++) {
    const response = new Response([204, 205, 304].includes(status) ? null : 'all of it', { status })
    expect(await check(response)).toBe(response)
    expect(response.bodyUsed).toBe(false)
  }
})

test('any other status decides whether the job is tried again, and is in the error', async () => {
  for (let status = 400; status < 600; status++) {
    const error = await thrown(new Response('no such contact', { status }))
    expect(SluiceError.is(error) && error.retryable).toBe(isRetried(status))
    expect(error.message).toContain(String(status))
    expect(error.status).toBe(status)
    if (status === 429) continue
    expect(error).toBeInstanceOf(HttpStatusError)
    expect(error).toMatchObject({ code: 'SLUICE_HTTP_STATUS', retryAfterMs: undefined, body: 'no such contact' })
    expect(error.message).toContain('no such contact')
  }
})

test.each([
  [429, '7', 7_000],
  [429, undefined, undefined],
  [503, '7', 7_000],
])('%i with Retry-After %s waits as the engine does', async (status, after, retryAfterMs) => {
  const headers: Record<string, string> = after === undefined ? {} : { 'retry-after': after }
  const error = await thrown(new Response('slow down', { status, headers }))
  expect(error).toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryable: true, retryAfterMs })
})

test('Retry-After of another status makes nobody wait', async () => {
  for (const status of [403, 500, 502]) {
    const error = await thrown(new Response('', { status, headers: { 'retry-after': '7' } }))
    expect(error).toMatchObject({ code: 'SLUICE_HTTP_STATUS', retryAfterMs: undefined })
  }
})

test('a response of ctx.fetch has held the limit already: once, and no longer than the cap', async () => {
  const url = await httpServer((_, response) => response.writeHead(429, { 'retry-after': '86400' }).end('slow down'))
  const hour = 3_600_000
  for (const [limits, ms] of [
    [[], hour],
    [[limit('daily', { window: '1000/18h' })], 18 * hour],
  ] as const) {
    const { fetch, holds } = setup({ limits })
    expect(await thrown(await fetch(url))).toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryAfterMs: ms })
    expect(holds).toEqual([{ ms, reason: `429 from ${new URL(url).host}` }])
  }
})

test('the error names the request without its query, and nothing of the body is left to be read', async () => {
  const url = await httpServer((_, response) => response.writeHead(404).end('gone'))
  const { fetch } = setup()
  const response = await fetch(`${url}/contacts/7?key=abc`)
  const { message } = await thrown(response)
  expect(message).toBe(`${url}/contacts/7 answered 404. Repeating it as it is cannot help. The response began: gone`)
  expect(response.bodyUsed).toBe(true)
})

test('the first 500 characters of the body are kept, without secrets, wherever a secret stands', async () => {
  hideValue('a-registered-value-of-a-secret')
  const secrets = ['sk_live_51abcdefgh', 'Bearer abcdefgh12345678', 'a-registered-value-of-a-secret']
  await forAllInTime(fc.nat(600), fc.constantFrom(...secrets), async (before, secret) => {
    const text = `${'é '.repeat(before / 2)} ${secret} ${'ü '.repeat(300)}`
    const error = await thrown(new Response(text, { status: 401 }))
    expect(error.body).toHaveLength(500)
    expect(error.message).toContain(error.body)
    // Not even a part of it, where the text is cut.
    for (const part of ['51abc', 'abcdefgh', 'a-registered']) expect(error.message).not.toContain(part)
  })
})

test('a body that breaks off, was read, or is not there leaves the status to decide', async () => {
  const broken = new ReadableStream({
    start: (controller) => controller.enqueue(new TextEncoder().encode('half')),
    pull: (controller) => controller.error(new Error('cut')),
  })
  expect(await thrown(new Response(broken, { status: 422 }))).toMatchObject({ status: 422, body: 'half' })
  const read = new Response('all of it', { status: 422 })
  await read.text()
  expect(await thrown(read)).toMatchObject({ status: 422, retryable: false, body: '' })
  const locked = new Response('all of it', { status: 422 })
  locked.body?.getReader()
  expect(await thrown(locked)).toMatchObject({ status: 422, retryable: false, body: '' })
  expect(await thrown(new Response(null, { status: 422 }))).toMatchObject({
    message: 'The vendor answered 422. Repeating it as it is cannot help.',
  })
})
