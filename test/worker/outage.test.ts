/** Jobs whose vendor is down, or turns them away, with the retries of a task that sets none, on a clock that is set. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { check, limit, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { mainEngines } from '../claim/engine.ts'

let status: number
let url: string
let calls: Map<string, number>
const server = createServer((request, response) => {
  const id = String(request.headers['idempotency-key'])
  calls.set(id, (calls.get(id) ?? 0) + 1)
  response.writeHead(status).end('token=abcdefgh is not ours')
})
const call = task('call', {
  input: z.object({ account: z.string() }),
  limits: [limit('vendor', { window: '1000/s', by: 'account' })],
  async run(_, { fetch, job }) {
    await (await check(await fetch(url, { headers: { 'idempotency-key': job.id } }))).text()
  },
})

describe.each(mainEngines)('on $name', (engine) => {
  let t: TestSluice
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    t = await testSluice({ tasks: [call], store: await engine.store() })
  })
  afterAll(async () => {
    await t.close()
    server.closeAllConnections()
    server.close()
  })
  beforeEach(() => {
    calls = new Map()
  })

  test('six hours of 503: no job fails', async () => {
    status = 503
    const id = await call.send({ account: 'a0' })
    await t.drain({ advance: '6h' })
    status = 200
    await t.drain({ advance: true })
    expect(await t.waitFor(id)).toMatchObject({ state: 'done' })
    // At least ten of these were answered 503: the vendor really was down.
    expect(calls.get(id)).toBeGreaterThan(10)
    expect(calls.get(id)).toBeLessThanOrEqual(24)
  })

  test('a wrong key costs one call a job, and the record shows what the vendor answered, without secrets', async () => {
    status = 401
    const ids = await Promise.all(Array.from({ length: 10 }, (_, n) => call.send({ account: `a${n % 2}` })))
    await t.drain()
    for (const id of ids) {
      expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'refused', attempt: 1 })
      expect(calls.get(id)).toBe(1)
    }
    const { error } = await t.waitFor(ids[0] as string)
    expect(error).toMatchObject({
      code: 'SLUICE_HTTP_STATUS',
      message: `${url}/ answered 401. Repeating it as it is cannot help. The response began: token=[redacted] is not ours`,
    })
    expect(JSON.stringify(error)).not.toContain('abcdefgh')
  })
})
