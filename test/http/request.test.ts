import { expect, test } from 'vitest'
import { encodePayload } from '../../src/core/payload.ts'
import { requestSchema, sendRequest } from '../../src/http/request.ts'
import type { RequestInput } from '../../src/http/request.ts'
import { httpServer, setup, tcpServer, textOf } from './bench.ts'

function sender() {
  const { fetch, abort } = setup()
  return { abort, send: (input: RequestInput) => sendRequest(input, { fetch, jobId: 'job-1', signal: abort.signal }) }
}

const issues = (input: unknown) => {
  const result = requestSchema['~standard'].validate(input)
  if (result instanceof Promise) throw new Error('the schema answers at once')
  return result.issues?.map(({ path, message }) => `${path?.map(String).join('.') ?? ''}: ${message}`)
}

test('the http task sends the request of its input and returns the response', async () => {
  const url = await httpServer(async (request, response) => {
    const body = await textOf(request)
    response.writeHead(201, { 'content-type': 'application/json; charset=utf-8', 'x-a': '1' })
    response.end(
      JSON.stringify({
        method: request.method,
        type: request.headers['content-type'],
        key: request.headers['idempotency-key'],
        body,
      }),
    )
  })
  const { send } = sender()
  const sent = async (input: object) => (await send({ url, ...input })).body
  expect(await sent({})).toEqual({ method: 'GET', key: 'job-1', body: '' })
  expect(await sent({ json: { a: 1 } })).toEqual({
    method: 'POST',
    type: 'application/json',
    key: 'job-1',
    body: '{"a":1}',
  })
  expect(await sent({ json: null, method: 'put' })).toMatchObject({ method: 'PUT', body: 'null' })
  expect(await sent({ form: { a: 'b c' } })).toMatchObject({
    type: 'application/x-www-form-urlencoded;charset=UTF-8',
    body: 'a=b+c',
  })
  expect(await sent({ text: 'x', headers: { 'Idempotency-KEY': 'mine', 'Content-Type': 'text/x' } })).toMatchObject({
    key: 'mine',
    type: 'text/x',
    body: 'x',
  })
  expect(await send({ url })).toMatchObject({ status: 201, headers: { 'x-a': '1' } })
})

test('a body that is not JSON, or only declared to be, is text', async () => {
  const url = await httpServer((request, response) => {
    response.setHeader('content-type', request.url === '/bad' ? 'application/problem+json' : 'text/plain')
    response.end('{"é"')
  })
  const { send } = sender()
  expect((await send({ url: `${url}/bad` })).body).toBe('{"é"')
  expect((await send({ url })).body).toBe('{"é"')
})

test.each([
  ['NUL in JSON', 'application/json', '{"a":"\\u0000"}', '{"a":"\\u0000"}'],
  ['half of a surrogate pair', 'application/json', '["\\ud800"]', '["\\ud800"]'],
  ['a number that is none of JavaScript', 'application/json', '[1e999]', '[1e999]'],
  [
    'JSON nested deeper than a result',
    'application/json',
    '['.repeat(32) + ']'.repeat(32),
    '['.repeat(32) + ']'.repeat(32),
  ],
  ['NUL in a file', 'application/octet-stream', 'a\0\0b', 'a\uFFFD\uFFFDb'],
])(
  'a body that cannot be stored as it is does not fail a request that was carried out: %s',
  async (_, type, given, kept) => {
    const url = await httpServer((_request, response) => void response.setHeader('content-type', type).end(given))
    const result = await sender().send({ url })
    expect(result.body).toBe(kept)
    expect(JSON.parse(encodePayload(result, 'the result', expect.unreachable))).toMatchObject({
      status: 200,
      body: kept,
    })
  },
)

test('the status decides whether another attempt can help', async () => {
  const url = await httpServer((request, response) =>
    response.writeHead(Number(request.url?.slice(1))).end('é'.repeat(600)),
  )
  const { send } = sender()
  for (const status of [400, 401, 403, 404, 409, 410, 422, 304]) {
    const body = status === 304 ? '' : 'é'.repeat(500)
    await expect(send({ url: `${url}/${status}` })).rejects.toMatchObject({
      code: 'SLUICE_HTTP_STATUS',
      retryable: false,
      status,
      body,
    })
  }
  for (const status of [408, 425, 500, 502, 503, 504]) {
    await expect(send({ url: `${url}/${status}` })).rejects.toMatchObject({
      code: 'SLUICE_HTTP_STATUS',
      retryable: true,
      status,
    })
  }
  await expect(send({ url: `${url}/429` })).rejects.toMatchObject({
    code: 'SLUICE_VENDOR_LIMITED',
    retryable: true,
    retryAfterMs: undefined,
  })
})

test('a response over the cap is final, with or without an announced length', async () => {
  let closed = () => {}
  const isClosed = new Promise<void>((resolve) => (closed = resolve))
  const url = await httpServer((request, response) => {
    if (request.url === '/told') return response.end('x'.repeat(11))
    const more = () => {
      while (!response.destroyed && response.write('x'.repeat(16_384)));
    }
    response.on('drain', more).on('close', closed)
    return more()
  })
  const { send } = sender()
  const tooLarge = { code: 'SLUICE_RESPONSE_TOO_LARGE', retryable: false }
  await expect(send({ url: `${url}/told`, maxResponseBytes: 10 })).rejects.toMatchObject(tooLarge)
  await expect(send({ url: `${url}/endless` })).rejects.toMatchObject(tooLarge)
  // The response ends only because the reader disconnected.
  await isClosed
  expect((await send({ url: `${url}/told`, maxResponseBytes: 11 })).body).toBe('x'.repeat(11))
})

test('if the result could not be stored with the body, the beginning of that is kept as text', async () => {
  const bodies: Record<string, string> = {
    '/text': '"\u00e4'.repeat(100_000),
    '/json': JSON.stringify(Array.from({ length: 60_000 }, (_, n) => n)),
    '/fits': 'x'.repeat(250_000),
  }
  // Some of them would be cut within a character.
  const shifted = Array.from({ length: 8 }, (_, n) => [`/${n}`, 'x'.repeat(n) + '\u{1F600}'.repeat(100_000)] as const)
  for (const [path, text] of shifted) bodies[path] = text
  const url = await httpServer((request, response) => {
    response.setHeader('content-type', request.url === '/json' ? 'application/json' : 'text/plain')
    response.end(bodies[request.url ?? ''])
  })
  const { send } = sender()
  for (const path of ['/text', '/json', ...shifted.map(([one]) => one)]) {
    const result = await send({ url: `${url}${path}` })
    expect(encodePayload(result, 'the result').length).toBeGreaterThan(100_000)
    expect(result).toMatchObject({ status: 200, isCut: true })
    expect(bodies[path]?.startsWith(result.body as string)).toBe(true)
  }
  expect(await send({ url: `${url}/fits` })).toEqual({ status: 200, headers: expect.anything(), body: bodies['/fits'] })
})

test('the answer to HEAD has no body, however long the one is that it announces', async () => {
  const url = await httpServer((_, response) => void response.writeHead(200, { 'content-length': 5_000_000 }).end())
  const { send } = sender()
  expect(await send({ url, method: 'HEAD' })).toMatchObject({ status: 200, headers: { 'content-length': '5000000' } })
})

test('a silent server leads to a time-out, before and within the response', async () => {
  const url = await httpServer((request, response) => {
    if (request.url === '/half') response.write('half')
  })
  const { send } = sender()
  for (const path of ['/none', '/half']) {
    await expect(send({ url: url + path, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'SLUICE_TIMEOUT',
      retryable: true,
    })
  }
})

test('a response that breaks off is a retryable network error', async () => {
  const { port } = await tcpServer((_, socket) => void socket.end('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf'))
  await expect(sender().send({ url: `http://127.0.0.1:${port}/` })).rejects.toMatchObject({
    code: 'SLUICE_NETWORK',
    retryable: true,
  })
})

test('an aborted attempt keeps its reason', async () => {
  const reason = new Error('cancelled')
  const { abort, send } = sender()
  const url = await httpServer(() => abort.abort(reason))
  await expect(send({ url })).rejects.toBe(reason)
})

test('the schema accepts every request that can be sent', () => {
  const url = 'https://example.com/a?b'
  for (const input of [
    { url },
    { url, method: 'post', json: 0 },
    { url, form: {} },
    { url, text: '', headers: { 'x-a': 'é' } },
    { url, timeoutMs: 600_000, maxResponseBytes: 1 },
  ]) {
    expect(issues(input)).toBeUndefined()
  }
})

test('the schema names every fault and its place', () => {
  const url = 'https://example.com/'
  expect(issues('x')).toEqual([': the input of http must be an object with a url'])
  expect(issues({})).toEqual(['url: url is missing: give an absolute http or https URL'])
  expect(issues({ url: '/a' })).toEqual(['url: url is not an absolute URL'])
  expect(issues({ url: 'file:///etc/passwd' })).toEqual(['url: url must be http or https, not file:'])
  expect(issues({ url: 'http://a:b@c/' })?.[0]).toMatch(/^url: url must not carry a user name/)
  expect(issues({ url, json: 1, text: 'x' })).toEqual(['text: give only one of json, text'])
  expect(issues({ url, method: 'GET', json: 1 })?.[0]).toMatch(/^method: a GET request cannot have a body/)
  expect(issues({ url, method: 'TRACE' })).toEqual(['method: method TRACE cannot be sent'])
  expect(issues({ url, headers: { a: 1, b: 'x\r\ny' } })).toEqual(['headers.a: headers.a must be a string'])
  expect(issues({ url, headers: { b: 'x\r\ny' } })).toEqual([
    'headers.b: headers.b holds characters that no header can carry',
  ])
  expect(issues({ url, timeoutMs: 0, maxResponseBytes: 1.5 })).toEqual([
    'timeoutMs: timeoutMs must be a whole number from 1 to 600000',
    'maxResponseBytes: maxResponseBytes must be a whole number from 1 to 1073741824',
  ])
  expect(issues({ url, body: 'x' })?.[0]).toMatch(/^body: body is not a field of http/)
})
