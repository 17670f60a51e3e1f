/** The built-in http task, through a worker, against a server on loopback. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { AnyTask } from '../../src/tasks/task.ts'
import { http } from '../../src/tasks/http.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { freshDatabase } from '../servers/database.ts'

let sluice: TestSluice
let url: string
const seen: { method: string | undefined; key: unknown; body: string }[] = []
const server = createServer((request, response) => {
  let body = ''
  request.on('data', (part: Buffer) => (body += part.toString()))
  request.on('end', () => {
    seen.push({ method: request.method, key: request.headers['idempotency-key'], body })
    response.writeHead(request.url === '/gone' ? 410 : 201, { 'content-type': 'application/json' }).end('{"made":true}')
  })
})

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  sluice = await testSluice({ tasks: [http as unknown as AnyTask], store: (await freshDatabase()).url })
})
beforeEach(() => void seen.splice(0))
afterAll(async () => {
  await sluice.close()
  server.close()
})

test('the http task posts a form, once, with the job id as idempotency key, and keeps the response', async () => {
  const id = await http.send({ method: 'POST', url: `${url}/form`, form: { name: 'Ada' } })
  expect(await sluice.drain()).toBe(1)
  expect(seen).toEqual([{ method: 'POST', key: id, body: 'name=Ada' }])
  const job = await sluice.waitFor(id)
  expect(job).toMatchObject({ state: 'done', attempt: 1, result: { status: 201, body: { made: true } } })
})

test('a status that no retry cures fails the job at once', async () => {
  const id = await http.send({ url: `${url}/gone` })
  await sluice.drain()
  expect(await sluice.waitFor(id)).toMatchObject({
    state: 'failed',
    reason: 'refused',
    attempt: 1,
    error: { code: 'SLUICE_HTTP_STATUS' },
  })
})

test('an input that is no request is refused when it is sent', async () => {
  const before = await sluice.sent(http)
  await expect(http.send({ url: 'ftp://example.com' })).rejects.toMatchObject({ code: 'SLUICE_INVALID_INPUT' })
  expect(await sluice.sent(http)).toEqual(before)
})
