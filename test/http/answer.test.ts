/** What `fetch`, `check` and `http` tasks make of answers that a profile knows: see test/vendors for the reader itself. */
import type { RequestListener } from 'node:http'
import { expect, test } from 'vitest'
import { limitedBy } from '../../src/http/feedback.ts'
import { sendRequest } from '../../src/http/request.ts'
import { check, type ReadAnswer } from '../../src/index.ts'
import { allowance, counting, standIns } from '../vendors/stand-ins.ts'
import { httpServer, setup } from './bench.ts'

const shopify = standIns.find(({ of }) => of === 'the cost of GraphQL queries') as (typeof standIns)[number]

test.each(standIns)(
  '$vendor, $of: the refusal holds as long as it states, and what is allowed does not',
  async (of) => {
    const { listener } = counting(of)
    const url = await httpServer(listener)
    const { fetch, holds } = setup({ limits: [{ answers: of.vendor }] })
    for (let n = 0; n < allowance; n++) {
      const response = await check(await fetch(url))
      expect(response.bodyUsed).toBe(false)
      expect(await response.json()).toBeDefined()
    }
    expect(holds).toEqual([])
    const refused = await fetch(url)
    // Those that hold for a second state no time.
    const retryAfterMs = of.seconds === 1 ? undefined : of.seconds * 1_000
    expect(holds).toEqual([{ ms: retryAfterMs, reason: `${of.reason} from ${new URL(url).host}` }])
    expect(limitedBy(refused)).toMatchObject({ retryAfterMs })
    expect(refused.bodyUsed).toBe(false)
    expect(await refused.clone().json()).toBeDefined()
    await expect(check(refused)).rejects.toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryable: true, retryAfterMs })
  },
)

test('a task of http is refused too, also by a 200', async () => {
  const { listener } = counting(shopify)
  const url = await httpServer(listener)
  const { fetch, abort } = setup({ limits: [{ answers: 'shopify' }] })
  const send = () =>
    sendRequest({ url, json: { query: '{ shop { name } }' } }, { fetch, jobId: 'a', signal: abort.signal })
  for (let n = 0; n < allowance; n++) expect(await send()).toMatchObject({ status: 200, body: { data: {} } })
  await expect(send()).rejects.toMatchObject({ code: 'SLUICE_VENDOR_LIMITED', retryAfterMs: 4_500 })
})

test('without a profile the same answers hold nothing, and no body is read', async () => {
  const { listener } = counting(shopify)
  const url = await httpServer(listener)
  const { fetch, holds } = setup()
  for (let n = 0; n <= allowance; n++) await (await check(await fetch(url))).text()
  expect(holds).toEqual([])
})

/** Answers with this body, and a function that notes what it gets of it. */
async function seenBy(listener: RequestListener) {
  const bodies: unknown[] = []
  const answers: ReadAnswer = ({ body }) => void bodies.push(body)
  const url = await httpServer(listener)
  return { bodies, url, ...setup({ limits: [{ answers }] }) }
}

test('a body is read only if it is JSON and small, and the handler gets every byte of it', async () => {
  const kinds: Record<string, [type: string, text: string, isRead: boolean]> = {
    '/json': ['application/json', '{"a":1}', true],
    '/problem': ['application/problem+json; charset=utf-8', '{"a":1}', true],
    '/text': ['text/plain', '{"a":1}', false],
    '/broken': ['application/json', '{"a":', false],
    '/large': ['application/json', JSON.stringify({ a: 'x'.repeat(1_000_000) }), false],
    '/empty': ['application/json', '', false],
  }
  for (const withLength of [true, false]) {
    const { bodies, url, fetch } = await seenBy((request, response) => {
      const [type, text] = kinds[request.url ?? ''] ?? ['', '']
      response.writeHead(200, { 'content-type': type, ...(withLength ? { 'content-length': text.length } : {}) })
      response.write(text.slice(0, 3))
      response.end(text.slice(3))
    })
    for (const [path, [, text, isRead]] of Object.entries(kinds)) {
      const response = await fetch(url + path)
      expect(bodies.splice(0), path).toEqual([isRead ? JSON.parse(text) : undefined])
      expect(response.url).toBe(url + path)
      expect(await response.text()).toBe(text)
    }
  }
})

test("a body that breaks off is the handler's to notice", async () => {
  const { bodies, url, fetch } = await seenBy((_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.write('{"a":')
    setImmediate(() => response.destroy())
  })
  const response = await fetch(url)
  expect(bodies).toEqual([undefined])
  await expect(response.text()).rejects.toThrow(TypeError)
})

test('an abort ends the reading of a body that does not come', async () => {
  const { url, fetch, abort } = await seenBy((_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' })
    response.write('{"a":')
    setImmediate(() => abort.abort(new Error('lease lost')))
  })
  await expect(fetch(url).then((response) => response.text())).rejects.toThrow('lease lost')
})

test('a 429 whose body stalls holds the limit all the same, and ends the attempt as refused', async () => {
  const url = await httpServer((_, response) => {
    response.writeHead(429, { 'content-type': 'application/json' }).write('{"error":')
  })
  const { fetch, holds } = setup({ deadlineMs: 1e9, limits: [{ answers: 'google' }] })
  await expect(fetch(url).then(check)).rejects.toMatchObject({ code: 'SLUICE_VENDOR_LIMITED' })
  expect(holds).toHaveLength(1)
})
