import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Agent, fetch } from 'undici'
import { expect, onTestFinished, test } from 'vitest'
import { vendor, type VendorOptions } from '../../src/testing/index.ts'
import { momentOf, readRetryAfter } from '../../src/vendors/time.ts'

async function start(options: VendorOptions) {
  const standIn = vendor(options)
  const url = await standIn.listen()
  const agent = new Agent()
  onTestFinished(async () => {
    await agent.destroy()
    await standIn.close()
  })
  const call = async (path = '/', headers: Record<string, string> = {}) => {
    const response = await fetch(url + path, { headers, dispatcher: agent })
    await response.text()
    return response
  }
  return { standIn, call }
}

const statuses = (responses: readonly { status: number }[]) =>
  responses.map(({ status }) => status).toSorted((a, b) => a - b)
const hour = 3_600_000

test('a vendor refuses calls over the limit with the time to wait, and proves that the limit was exceeded', async () => {
  const { standIn, call } = await start({ rules: [{ algorithm: 'sliding log', limit: 3, windowMs: hour }] })
  const responses = await Promise.all([1, 2, 3, 4, 5].map(() => call()))
  expect(statuses(responses)).toEqual([200, 200, 200, 429, 429])
  const told = responses.flatMap(({ status, headers }) => (status === 429 ? [headers.get('retry-after')] : []))
  // Until the first arrival is an hour old, in whole seconds; on a busy machine one may pass between them.
  const [first = 0, , , ...refused] = standIn.arrivals().map(({ atNs }) => atNs)
  const waits = refused.map((atNs) => String(Math.ceil((first + hour * 1e6 - atNs) / 1e9)))
  expect(new Set(told)).toEqual(new Set(waits))
  expect(standIn.report()).toEqual({
    arrivals: 5,
    vendor429: 2,
    duplicates: 0,
    rules: [{ name: 'sliding log 3/3600000 ms', limit: 3, windowMs: hour, exceeded: 2, worst: 5, keys: 1 }],
  })
})

test('all rules must allow a call, and a refusal by one charges none of them', async () => {
  const rules = [
    { name: 'all', algorithm: 'bucket', limit: 3, windowMs: hour },
    { name: 'path', algorithm: 'sliding log', limit: 1, windowMs: hour, key: 'path' },
  ] as const
  const { standIn, call } = await start({ rules })
  expect((await call('/a')).status).toBe(200)
  for (let i = 0; i < 5; i++) expect((await call('/a?x')).status).toBe(429)
  expect((await call('/b')).status).toBe(200)
  expect((await call('/c')).status).toBe(200)
  expect((await call('/d')).status).toBe(429)
  expect(standIn.report().rules.map(({ name, worst, keys }) => [name, worst, keys])).toEqual([
    ['all', 9, 1],
    ['path', 6, 4],
  ])
})

test('keys come from a header, the query or a function', async () => {
  const rule = { algorithm: 'sliding log', limit: 1, windowMs: hour } as const
  const rules = [
    { ...rule, key: 'header:X-Account' },
    { ...rule, key: 'query:tenant' },
    { ...rule, key: ({ method, url }: { method: string; url: URL }) => `${method} ${url.pathname}` },
  ] as const
  const { standIn, call } = await start({ rules })
  await call('/p?tenant=t', { 'x-account': 'a', 'idempotency-key': 'job', 'x-sluice-attempt': '2' })
  expect(standIn.arrivals()).toMatchObject([
    { seq: 0, keys: ['a', 't', 'GET /p'], jobId: 'job', attempt: '2', path: '/p', verdict: 200 },
  ])
  expect((await call('/q?tenant=u', { 'x-account': 'b' })).status).toBe(200)
  expect((await call('/r?tenant=u', { 'x-account': 'c' })).status).toBe(429)
})

test('a proof may use another window than the limiter', async () => {
  const rules = [{ algorithm: 'bucket', limit: 10, windowMs: 1, proofWindow: { limit: 1, windowMs: hour } }] as const
  const { standIn, call } = await start({ rules })
  await call()
  await call()
  expect(standIn.report().rules).toMatchObject([{ limit: 1, windowMs: hour, exceeded: 1, worst: 2 }])
  standIn.wipe()
  expect(standIn.report()).toMatchObject({ arrivals: 0, rules: [{ exceeded: 0, worst: 0, keys: 0 }] })
})

test('concurrency frees a place when a request ends', async () => {
  const { call } = await start({ rules: [{ algorithm: 'concurrency', limit: 2 }], latencyMs: 1_000 })
  const responses = await Promise.all([call(), call(), call()])
  expect(statuses(responses)).toEqual([200, 200, 429])
  expect(responses.find(({ status }) => status === 429)?.headers.get('retry-after')).toBe('1')
  await expect.poll(async () => statuses(await Promise.all([call(), call()]))).toEqual([200, 200])
})

test('a vendor can fail first calls, reset connections, and send dates', async () => {
  const rules = [{ algorithm: 'fixed window', limit: 6, windowMs: hour }] as const
  const faults = { failFirst: 1, failStatus: 503, resetEvery: 4, retryAfter: 'date' } as const
  const { standIn, call } = await start({ rules, faults, status: 204 })
  const job = (id: string) => call('/', { 'idempotency-key': id })
  expect([await job('a'), await job('a'), await job('b')].map(({ status }) => status)).toEqual([503, 204, 503])
  await expect(job('b')).rejects.toThrow('fetch failed')
  expect((await job('b')).status).toBe(204)
  expect((await job('a')).status).toBe(204)
  const refused = await job('c')
  const waitMs = readRetryAfter(refused.headers.get('retry-after') ?? '', momentOf(refused.headers.get('date')))
  expect([refused.status, waitMs !== undefined && waitMs >= 1_000]).toEqual([429, true])
  expect(standIn.arrivals().map(({ verdict }) => verdict)).toEqual([503, 204, 503, 0, 204, 204, 429])
  expect(standIn.report().duplicates).toBe(4)
})

test('arrivals are appended to a file, and returned over HTTP on request', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'vendor-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const file = join(folder, 'arrivals.jsonl')
  const { standIn, call } = await start({
    rules: [{ algorithm: 'bucket', limit: 9, windowMs: 1_000 }],
    file,
    control: true,
  })
  const report = await call('/.vendor/report')
  expect(report.status).toBe(200)
  expect((await call('/.vendor/none')).status).toBe(404)
  await call('/a')
  await call('/b')
  const { length } = standIn.arrivals()
  await standIn.close()
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n')
  expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(standIn.arrivals())
  expect([length, lines.length]).toEqual([2, 2])
})

test('an invalid rule is refused', () => {
  const make = (rule: object) => () =>
    vendor({ rules: [{ algorithm: 'bucket', limit: 1, windowMs: 1, ...rule } as never] })
  for (const rule of [{ limit: 0 }, { limit: 1.5 }, { windowMs: 0 }, { burst: 0.5 }, { algorithm: 'leaky' }]) {
    expect(make(rule)).toThrow(expect.objectContaining({ code: 'SLUICE_VENDOR_RULE' }))
  }
  expect(make({ windowMS: 5 })).toThrow('has no "windowMS"; did you mean "windowMs"?')
  for (const odd of [undefined, {}, { rules: { limit: 1 } }, { rules: [], latency: 5 }])
    expect(() => vendor(odd as never)).toThrow(expect.objectContaining({ code: 'SLUICE_VENDOR_RULE' }))
})
