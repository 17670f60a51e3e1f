import { brotliCompressSync } from 'node:zlib'
import { FormData as UndiciFormData } from 'undici'
import { expect, test } from 'vitest'
import type { Grants } from '../../src/http/allowance.ts'
import { limitedBy } from '../../src/http/feedback.ts'
import type { Grant } from '../../src/http/send-check.ts'
import { maxRedirects } from '../../src/http/redirect.ts'
import { later, until } from '../until.ts'
import { handClock, httpServer, setup, tcpServer, textOf } from './bench.ts'

const echo = () =>
  httpServer(async (request, response) => {
    const body = await textOf(request)
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ method: request.method, path: request.url, headers: request.headers, body }))
  })

interface Echo {
  readonly method: string
  readonly path: string
  readonly headers: Record<string, string>
  readonly body: string
}

const seen = async (response: Response) => (await response.json()) as Echo

test('the first request uses the grant of the attempt, and each further one a grant of its own', async () => {
  const url = await echo()
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  await fetch(url)
  expect(taken).toHaveLength(0)
  await Promise.all([fetch(url), fetch(url)])
  expect(taken).toHaveLength(2)
})

/** Grants of which the next is far away until the test lets it come. */
function farGrants() {
  const waits: (() => void)[] = []
  const take: Grants['take'] = async (signal, beforeWait) => {
    beforeWait(10_000)
    await new Promise<void>((resolve, reject) => {
      waits.push(resolve)
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true })
    })
    return take(signal, beforeWait)
  }
  return { waits, take }
}
const isUncalled = { code: 'SLUICE_UNCALLED' }

test('an attempt that has sent a request, or may do so at any moment, is not returned as uncalled', async () => {
  const { port, received } = await tcpServer((text, socket) => {
    if (text !== '') socket.destroy()
    return undefined
  })
  const { waits, take } = farGrants()
  const { fetch, abort } = setup({ deadlineMs: 5_000, grants: { take } })
  const url = `http://127.0.0.1:${port}/`
  // The second requests its grant while the first connects; the third when the first was written and got no answer.
  const [first, second] = [later(fetch(url)), later(fetch(url))]
  await expect(first).rejects.toMatchObject({ code: 'SLUICE_NETWORK' })
  const third = later(fetch(url))
  await until(() => waits.length === 2)
  for (const look of waits) look()
  await until(() => waits.length === 4)
  abort.abort(new Error('over'))
  for (const call of [second, third]) await expect(call).rejects.toThrow('over')
  expect(received.join('').match(/GET/g)).toHaveLength(1)
})

test('an attempt that was returned as uncalled sends no request any more', async () => {
  const clock = handClock()
  const { port, received } = await tcpServer(() => undefined)
  const { waits, take } = farGrants()
  // The first holds its grant while it connects, so the second waits; then that grant turns out to be too old.
  const late: Grants['take'] = (signal, beforeWait) => {
    clock.nowMs = 2_000
    return take(signal, beforeWait)
  }
  const { fetch } = setup({ clock, deadlineMs: 1_100, grants: { take: late } })
  const url = `http://127.0.0.1:${port}/`
  const calls = Promise.allSettled([fetch(url), fetch(url)])
  for (const call of await calls) expect(call).toMatchObject({ status: 'rejected', reason: isUncalled })
  expect(waits).toHaveLength(1)
  await expect(fetch(url)).rejects.toMatchObject(isUncalled)
  expect(received.join('')).toBe('')
})

test('a Request whose body breaks off is left to a later attempt', async () => {
  const url = await echo()
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  const body = new ReadableStream({ pull: (from) => from.error(new TypeError('terminated')) })
  const request = new Request(url, { method: 'POST', body, duplex: 'half' } as RequestInit)
  const error: unknown = await fetch(request).catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({ message: 'the body of the Request cannot be read: terminated' })
  expect(error).not.toHaveProperty('code')
  expect(taken).toHaveLength(0)
})

test('an invalid call uses no grant', async () => {
  const url = await echo()
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  // Final: a job would make the same call again in each of its attempts.
  const final = { code: 'SLUICE_BAD_REQUEST', retryable: false, cause: expect.any(TypeError) as unknown }
  await expect(fetch('not a url')).rejects.toMatchObject(final)
  await expect(fetch(url, { method: 'TRACE' })).rejects.toMatchObject(final)
  const head = { method: 'HEAD', body: 'x' }
  await expect(fetch(url, head)).rejects.toMatchObject(final)
  await expect(fetch(url, { method: 'POST', body: { a: 1 } as never })).rejects.toThrow('use JSON.stringify')
  await expect(fetch('http://user:secret@127.0.0.1/')).rejects.toMatchObject(final)
  await expect(fetch(url, { dispatcher: {} } as RequestInit)).rejects.toMatchObject({ code: 'SLUICE_FETCH_DISPATCHER' })
  await fetch(url)
  expect(taken).toHaveLength(0)
})

test('every kind of body arrives whole, with the media type that it implies', async () => {
  const url = await echo()
  const { fetch } = setup()
  const send = async (body: unknown) => seen(await fetch(url, { method: 'PUT', body, duplex: 'half' } as RequestInit))
  const text = 'text/plain;charset=UTF-8'
  expect(await send('é')).toMatchObject({ body: 'é', headers: { 'content-type': text, 'content-length': '2' } })
  expect((await send(Buffer.from('bytes'))).body).toBe('bytes')
  expect((await send(new Uint8Array(Buffer.from('xbytesx')).subarray(1, 6))).body).toBe('bytes')
  expect((await send(new Uint8Array(Buffer.from('bytes')).buffer)).body).toBe('bytes')
  expect(await send(new URLSearchParams({ a: 'b c' }))).toMatchObject({
    body: 'a=b+c',
    headers: { 'content-type': 'application/x-www-form-urlencoded;charset=UTF-8' },
  })
  expect(await send(new Blob(['blob'], { type: 'text/x' }))).toMatchObject({
    body: 'blob',
    headers: { 'content-type': 'text/x' },
  })
  for (const form of [new FormData(), new UndiciFormData()]) {
    form.set('field', 'value')
    const { headers, body } = await send(form)
    const boundary = /^multipart\/form-data; boundary=(.+)$/.exec(headers['content-type'] ?? '')?.[1] ?? 'none'
    expect(body).toContain(boundary)
    expect(body).toContain('name="field"\r\n\r\nvalue')
  }
  expect(await send(new Blob(['stream']).stream())).toMatchObject({
    body: 'stream',
    headers: { 'transfer-encoding': 'chunked' },
  })
})

test('a Request works like its parts, and init overrides it', async () => {
  const url = await echo()
  const { fetch } = setup()
  const request = () =>
    new Request(`${url}/path?q=1`, { method: 'POST', body: 'from request', headers: { 'x-a': '1' } })
  expect(await seen(await fetch(request()))).toMatchObject({
    method: 'POST',
    path: '/path?q=1',
    body: 'from request',
    headers: { 'x-a': '1' },
  })
  expect(await seen(await fetch(request(), { method: 'PUT', body: 'init' }))).toMatchObject({
    method: 'PUT',
    body: 'init',
  })
  expect(await seen(await fetch(new URL('/u', url)))).toMatchObject({ method: 'GET', path: '/u' })
})

/** Redirects `/from` with the given status to `target`; anything else is echoed. */
async function redirector(status: number, target: string) {
  return httpServer(async (request, response) => {
    const body = await textOf(request)
    if (request.url === '/from') return response.writeHead(status, { location: target }).end('moved')
    return response.end(JSON.stringify({ method: request.method, path: request.url, headers: request.headers, body }))
  })
}

test('redirects rewrite method and body as the standard defines, and each hop takes a grant', async () => {
  const cases = [
    [301, 'POST', 'GET', ''],
    [302, 'POST', 'GET', ''],
    [303, 'PUT', 'GET', ''],
    [301, 'PUT', 'PUT', 'data'],
    [307, 'POST', 'POST', 'data'],
    [308, 'DELETE', 'DELETE', 'data'],
  ] as const
  for (const [status, method, nextMethod, body] of cases) {
    const url = await redirector(status, '/to?x=1')
    const { fetch, taken } = setup({ deadlineMs: 5_000 })
    const response = await fetch(`${url}/from`, { method, body: 'data', headers: { authorization: 'secret' } })
    expect(response.redirected).toBe(true)
    expect(response.url).toBe(`${url}/to?x=1`)
    const hop = await seen(response)
    expect(hop, `${status} ${method}`).toMatchObject({
      method: nextMethod,
      path: '/to?x=1',
      body,
      headers: { authorization: 'secret' },
    })
    expect(hop.headers['content-type']).toBe(body === '' ? undefined : 'text/plain;charset=UTF-8')
    expect(taken).toHaveLength(1)
  }
})

test('a redirect to another origin drops headers that were meant for the first', async () => {
  const other = await echo()
  const url = await redirector(307, `${other}/to`)
  const { fetch } = setup()
  const headers = { authorization: 'secret', cookie: 'a=b', 'proxy-authorization': 'secret', 'x-kept': '1' }
  const hop = await seen(await fetch(`${url}/from`, { headers }))
  expect(hop.headers).toMatchObject({ 'x-kept': '1', host: new URL(other).host })
  for (const name of ['authorization', 'cookie', 'proxy-authorization']) expect(hop.headers[name]).toBeUndefined()
})

test('redirect mode manual returns the redirect, mode error refuses it, and neither follows it', async () => {
  const url = await redirector(302, '/to')
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  const response = await fetch(`${url}/from`, { redirect: 'manual' })
  expect([response.status, response.headers.get('location')]).toEqual([302, '/to'])
  await expect(fetch(`${url}/from`, { redirect: 'error' })).rejects.toMatchObject({
    code: 'SLUICE_REDIRECT',
    retryable: false,
  })
  expect(taken).toHaveLength(1)
})

test('redirect mode same-origin holds for a Request too', async () => {
  const url = await redirector(302, `${await echo()}/to`)
  const home = new Request(`${url}/from`, { mode: 'same-origin' })
  await expect(setup().fetch(home)).rejects.toMatchObject({ code: 'SLUICE_REDIRECT' })
  expect((await setup().fetch(home, { mode: 'cors' })).status).toBe(200)
})

test('a redirect whose decompressed body exceeds the read limit is followed at once', async () => {
  const bomb = brotliCompressSync(Buffer.alloc(1024 * 1024))
  const url = await httpServer((request, response) => {
    if (request.url === '/to') return response.end('there')
    // The announced length is more than ever comes, so a reader of the whole body would wait forever.
    response.writeHead(302, { location: '/to', 'content-encoding': 'br', 'content-length': '60000' })
    return response.write(bomb)
  })
  const response = await setup().fetch(`${url}/from`)
  expect(await response.text()).toBe('there')
})

test('a redirect whose body never comes is followed, though little of it was announced', async () => {
  const url = await httpServer((request, response) => {
    if (request.url === '/to') return response.end('there')
    return response.writeHead(302, { location: '/to', 'content-length': '5' }).flushHeaders()
  })
  const response = await setup().fetch(`${url}/from`, { signal: AbortSignal.timeout(20_000) })
  expect(await response.text()).toBe('there')
})

test('redirects that may not be followed are final', async () => {
  const endless = await redirector(302, '/from')
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  await expect(fetch(`${endless}/from`)).rejects.toMatchObject({ code: 'SLUICE_REDIRECT', retryable: false })
  expect(taken).toHaveLength(maxRedirects)
  for (const target of ['ftp://example.com/', 'http://[', 'http://user:pw@example.com/']) {
    const url = await redirector(302, target)
    await expect(fetch(`${url}/from`), target).rejects.toMatchObject({ code: 'SLUICE_REDIRECT', retryable: false })
  }
  const url = await redirector(308, '/to')
  const body = new Blob(['x']).stream()
  await expect(fetch(`${url}/from`, { method: 'POST', body, duplex: 'half' } as RequestInit)).rejects.toMatchObject({
    code: 'SLUICE_REDIRECT',
  })
})

test('a 429 holds its buckets before the handler sees it, and is returned unchanged', async () => {
  const url = await httpServer((_, response) => response.writeHead(429, { 'retry-after': '7' }).end('slow down'))
  const { fetch, holds } = setup()
  const response = await fetch(`${url}/a?secret=1`)
  expect(holds).toEqual([{ ms: 7_000, reason: `429 from ${new URL(url).host}` }])
  expect(limitedBy(response)).toMatchObject({ retryAfterMs: 7_000 })
  expect(await response.text()).toBe('slow down')
})

test('a hold follows a date, a cap, a 503 and a redirect that is limited', async () => {
  const until = new Date(Date.UTC(2026, 10, 21, 0, 0, 30)).toUTCString()
  const url = await httpServer((request, response) => {
    const date = new Date(Date.UTC(2026, 10, 21)).toUTCString()
    if (request.url === '/date') response.writeHead(429, { date, 'retry-after': until })
    if (request.url === '/day') response.writeHead(429, { 'retry-after': '86400' })
    if (request.url === '/busy') response.writeHead(503, { 'retry-after': '2' })
    if (request.url === '/down') response.writeHead(503)
    response.end()
  })
  const { fetch, holds } = setup()
  for (const path of ['/date', '/day', '/busy', '/down', '/fine']) await fetch(url + path)
  // A server that fails without a time is reported too: that holds nothing by itself.
  expect(holds.map(({ ms }) => ms)).toEqual([30_000, 3_600_000, 2_000, undefined])
})

test('a hold that cannot be recorded leaves the response as it is', async () => {
  const url = await httpServer((_, response) => response.writeHead(429).end())
  const away = new Error('store away')
  const { fetch } = setup({ grants: { recordRefusal: () => Promise.reject(away) } })
  expect((await fetch(url)).status).toBe(429)
})

test('a failed connection is a retryable error with its cause, and uses the grant', async () => {
  const { port } = await tcpServer((_, socket) => void socket.destroy())
  const { fetch, taken } = setup({ deadlineMs: 5_000 })
  const failed = { code: 'SLUICE_NETWORK', retryable: true, message: expect.not.stringContaining('secret') }
  await expect(fetch(`http://127.0.0.1:${port}/?secret`)).rejects.toMatchObject(failed)
  await expect(fetch(`http://127.0.0.1:${port}/again`)).rejects.toMatchObject({ code: 'SLUICE_NETWORK' })
  expect(taken).toHaveLength(1)
})

test('a request that was written counts as sent, whatever happened to it', async () => {
  const { port } = await tcpServer((_, socket) => void socket.destroy())
  const clock = handClock()
  const take = async (_: AbortSignal, beforeWait: (waitMs: number) => void) => {
    beforeWait(60_000)
    return { deadlineMs: clock.nowMs + 100 }
  }
  const { fetch } = setup({ clock, deadlineMs: clock.nowMs + 100, grants: { take } })
  // The second comes after one that was lost: it waits for a grant as long as needed, and is not returned uncalled.
  for (let i = 0; i < 2; i++) await expect(fetch(`http://127.0.0.1:${port}/`)).rejects.toThrow('got no answer')
})

test('an abort of the attempt or of the call, before or during it, rejects with its reason', async () => {
  const clock = handClock()
  const reason = new Error('lease lost')
  const { fetch, abort, taken } = setup({ clock, deadlineMs: 5_000 })
  const call = new AbortController()
  const silent = await httpServer((request) => {
    if (request.url === '/call') call.abort(reason)
    else abort.abort(reason)
  })
  await expect(fetch(`${silent}/call`, { signal: call.signal })).rejects.toBe(reason)
  await expect(fetch(`${silent}/attempt`)).rejects.toBe(reason)
  await expect(fetch(`${silent}/after`)).rejects.toBe(reason)
  expect(taken).toHaveLength(1)
})

test('an abort while a call waits for a grant ends the wait', async () => {
  const reason = new Error('shutdown')
  const url = await echo()
  const waiting = {
    take: (signal: AbortSignal) =>
      new Promise<Grant>((_, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error))
        abort.abort(reason)
      }),
  }
  const { fetch, abort } = setup({ deadlineMs: 5_000, grants: waiting })
  await fetch(url)
  await expect(fetch(url)).rejects.toBe(reason)
})

test('names for each answer the grant under which its request was sent', async () => {
  const told: [string, number | undefined][] = []
  let end: () => void
  const isRefused = new Promise<void>((resolve) => (end = resolve))
  const url = await httpServer(async (request, response) => {
    if (request.url === '/second') return response.writeHead(429).end()
    await isRefused
    response.end()
  })
  const deadlineMs = 1e9
  const { fetch } = setup({
    deadlineMs,
    grants: {
      take: async () => ({ deadlineMs: 2e9 }),
      recordRefusal: async (_, grant) => {
        told.push(['refused', grant?.deadlineMs])
        end()
      },
      recordAccepted: (grant) => void told.push(['accepted', grant.deadlineMs]),
    },
  })
  const first = fetch(`${url}/first`)
  await fetch(`${url}/second`)
  await first
  expect(told).toEqual([
    ['refused', 2e9],
    ['accepted', 1e9],
  ])
})
