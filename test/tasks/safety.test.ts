/** Through a worker and a store: requests that may not be sent, and secrets that may not be stored. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { z } from 'zod'
import { httpTask } from '../../src/tasks/http.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { mainEngines } from '../claim/engine.ts'

const heard: (string | undefined)[] = []
const server = createServer((request, response) => {
  heard.push(request.headers.authorization)
  if (request.url === '/out') response.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data' })
  response.end(`you said ${request.headers.authorization}`)
})
let at: string
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  at = `127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => void server.close())

const timeout = '60s'
const blocked = { state: 'failed', reason: 'refused', attempt: 1, error: { code: 'SLUICE_BLOCKED_ADDRESS' } }

describe.each(mainEngines)('on $name', (engine) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: await engine.store(), allowPrivate: [] })
  })
  afterAll(() => sluice.close())

  test('a job whose data lead to an internal address fails, explains how to allow it, and leaves its grant to the next', async () => {
    const limits = [limit('calls', { rate: '1/h' })]
    const closed = httpTask('closed', { limits })
    const open = httpTask('open', { limits, allowPrivate: [at] })
    await sluice.work([closed, open] as unknown as AnyTask[])
    const run = async (which: typeof open, url: string) =>
      sluice.waitFor(await sluice.send(which, { url }), { timeout })
    const before = heard.length
    // A literal address, and a name whose address only the look-up shows.
    for (const host of [at, at.replace('127.0.0.1', 'localhost'), at.replace('127.0.0.1', '2130706433')])
      expect(await run(closed, `http://${host}/`)).toMatchObject(blocked)
    expect(heard).toHaveLength(before)
    // It would be an hour later if any of the three had kept its grant.
    expect(await run(open, `http://${at}/`)).toMatchObject({ state: 'done' })
    expect(heard).toHaveLength(before + 1)
  })

  test('a handler is guarded as well, also where a vendor redirects it', async () => {
    const calls = task('calls-out', {
      input: z.object({ url: z.string() }),
      allowPrivate: [at],
      run: async ({ url }, { fetch }) => (await fetch(url)).text(),
    })
    await sluice.work([calls] as unknown as AnyTask[])
    const job = await sluice.waitFor(await sluice.send(calls, { url: `http://${at}/out` }), { timeout })
    expect(job).toMatchObject({ ...blocked, error: { message: expect.stringContaining('169.254.169.254') } })
  })

  test('a secret reaches the vendor, and appears nowhere in the record, even if the vendor or an error repeats it', async () => {
    const secrets = { crm: { read: () => `very-secret-${engine.name}`, hosts: [`http://${at}`] } }
    const hook = httpTask('secret-hook', { secrets, allowPrivate: [at] })
    const talks = task('talks', {
      input: z.object({ text: z.string() }),
      retry: { attempts: 1 },
      run: ({ text }) => {
        throw Object.assign(new Error(text), { name: 'Error: password=hunter2' })
      },
    })
    await sluice.work([hook, talks] as unknown as AnyTask[])
    const headers = { authorization: { $secret: 'crm', prefix: 'Bearer ' } }
    const id = await sluice.send(hook, { url: `http://${at}/`, headers })
    const job = await sluice.waitFor(id, { timeout })
    expect(heard.at(-1)).toBe(`Bearer very-secret-${engine.name}`)
    expect(job).toMatchObject({ state: 'done', input: { headers }, result: { body: 'you said Bearer [redacted]' } })
    expect(JSON.stringify(job)).not.toContain('very-secret')
    await expect(sluice.send(hook, { url: 'http://127.0.0.1:1/', headers })).rejects.toMatchObject({
      code: 'SLUICE_INVALID_INPUT',
      message: expect.stringContaining(`goes only to http://${at}`) as string,
    })
    const text = `401 for sk_live_51abc and very-secret-${engine.name}`
    const failed = await sluice.waitFor(await sluice.send(talks, { text }), { timeout })
    expect(failed.error).toMatchObject({
      message: '401 for [redacted] and [redacted]',
      name: 'Error: password=[redacted]',
    })
    expect(JSON.stringify(failed.error)).not.toMatch(/sk_live|very-secret|hunter2/)
  })
})
