/** `fetch` of a limit: each request under a grant of its own, places held until the response is there. */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { limit } from '../../src/limits/limit.ts'
import { empty } from '../claim/engine.ts'
import { later, until } from '../until.ts'
import { freshSluice } from '../servers/sluice.ts'
import { unitsUsed } from '../limits/engine.ts'
import { placesTaken } from './engine.ts'

const calls = limit('calls', { rate: '6000/h', burst: 10 })
const seats = limit('seats', { concurrency: 1, by: 'account' })

const held: ServerResponse[] = []
const paths: string[] = []
const server = createServer((request, response) => {
  const { url = '' } = request
  paths.push(url)
  request.resume()
  if (url === '/there') response.end('here')
  else if (url === '/hold') {
    response.flushHeaders()
    held.push(response)
  } else if (url === '/busy') response.writeHead(429, { 'retry-after': '30' }).end()
  else if (url === '/reset') request.socket.resetAndDestroy()
  else response.writeHead(302, { location: '/there' }).end()
})
let base: string
let closedUrl: string
const sluice = await freshSluice({ allowPrivate: ['127.0.0.1'] })
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const gone = createServer()
  await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve))
  closedUrl = `http://127.0.0.1:${(gone.address() as AddressInfo).port}`
  gone.close()
})
beforeEach(async () => {
  await empty(sluice.db)
  paths.length = 0
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
})
const kept = async () => (await unitsUsed(sluice.db))['calls'] ?? 0
const leases = () => placesTaken(sluice.db)

it('each request and each redirect hop has a grant', async () => {
  const response = await sluice.takes.fetch(calls, `${base}/moved`, { headers: { 'x-a': 'b' } })
  expect(await response.text()).toBe('here')
  expect(response.redirected).toBe(true)
  expect(paths).toEqual(['/moved', '/there'])
  expect(await kept()).toBe(2)
  await sluice.takes.fetch(calls, `${base}/there`, { cost: 3 })
  expect(await kept()).toBe(5)
})

it('a 429 holds the bucket for all processes', async () => {
  const response = await sluice.takes.fetch(calls, `${base}/busy`)
  expect(response.status).toBe(429)
  const tried = await sluice.takes.tryTake(calls)
  expect(tried.granted).toBe(false)
  expect(tried.retryAfterMs).toBeGreaterThan(20_000)
  const refused = sluice.takes.fetch(calls, `${base}/there`, { maxWaitMs: 100 })
  await expect(refused).rejects.toMatchObject({ code: 'SLUICE_TAKE_TIMEOUT' })
  expect(paths).toEqual(['/busy'])
})

it('a call that is not allowed takes nothing', async () => {
  await expect(sluice.takes.fetch(calls, 'http://169.254.169.254/')).rejects.toMatchObject({
    code: 'SLUICE_BLOCKED_ADDRESS',
    message: expect.stringContaining('(for a take: of `Sluice.open`)'),
  })
  expect(await kept()).toBe(0)
})

it('a place is held until the response is there, and no longer', async () => {
  const first = await sluice.takes.fetch(seats, `${base}/hold`, { key: 'a' })
  expect(await leases()).toBe(1)
  const second = later(sluice.takes.fetch(seats, `${base}/there`, { key: 'a' }))
  await sluice.takes.fetch(seats, `${base}/there`, { key: 'b' }).then((response) => response.text())
  expect(paths).toEqual(['/hold', '/there'])
  held.pop()?.end('over')
  expect(await first.text()).toBe('over')
  expect(await (await second).text()).toBe('here')
  await until(async () => (await leases()) === 0, 'all places are free')
})

it('a place is given back when the request fails, or its response is not wanted', async () => {
  await expect(sluice.takes.fetch(seats, `${base}/reset`, { key: 'a' })).rejects.toMatchObject({
    code: 'SLUICE_NETWORK',
  })
  await until(async () => (await leases()) === 0, 'the place is free')
  await expect(sluice.takes.fetch(seats, closedUrl, { key: 'a' })).rejects.toMatchObject({
    code: 'SLUICE_NETWORK',
  })
  await until(async () => (await leases()) === 0, 'the place is free')
  const response = await sluice.takes.fetch(seats, `${base}/hold`, { key: 'a' })
  await response.body?.cancel()
  await until(async () => (await leases()) === 0, 'the place is free')
  const controller = new AbortController()
  const waiting = sluice.takes.fetch(seats, `${base}/hold`, { key: 'a', signal: controller.signal })
  waiting.then((one) => one.text()).catch(() => {})
  await until(() => paths.length === 3, 'it is sent')
  controller.abort()
  await until(async () => (await leases()) === 0, 'the place is free')
})
