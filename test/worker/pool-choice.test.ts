/** The member of a pool that a handler gets, and where its requests go. */
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { z } from 'zod'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { httpTask } from '../../src/tasks/http.ts'
import type { Context } from '../../src/tasks/context.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { freshDatabase } from '../servers/database.ts'

const seen: { url: string | undefined; headers: IncomingHttpHeaders }[] = []
const server = createServer(({ url, headers }, response) => {
  seen.push({ url, headers })
  if (url?.startsWith('/two/limited')) response.writeHead(429, { 'retry-after': '3600' }).end()
  else if (url?.endsWith('/away')) response.writeHead(302, { location: 'http://127.0.0.2:1/' }).end()
  else response.writeHead(200, { 'content-type': 'text/plain' }).end(`for ${String(headers['x-key'] ?? 'nobody')}`)
})
let at: TestSluice
let base: string
let handler: (context: Context) => unknown = () => undefined
let call: AnyTask
let post: ReturnType<typeof httpTask>
const pool = () => [
  { key: 'one', baseUrl: `${base}/one/`, data: { region: 'eu' } },
  {
    key: 'two',
    baseUrl: `${base}/two`,
    secret: { env: 'CHOICE_TEST_TOKEN' },
    headers: (secret: string) => ({ 'x-key': secret }),
  },
]

beforeAll(async () => {
  process.env['CHOICE_TEST_TOKEN'] = 'token-of-two'
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const sender = limit('sender', { window: '1000/h', concurrency: 1, pool: pool() })
  const run = (_: unknown, context: Context) => handler(context)
  call = task('call', { input: z.object({}), limits: [sender], retry: { attempts: 1 }, run })
  const vendor = limit('vendor', { window: '1000/h', pool: pool().slice(1) })
  post = httpTask('post', { limits: [vendor], retry: { attempts: 1 } })
  at = await testSluice({ tasks: [call, post as unknown as AnyTask], store: (await freshDatabase()).url })
  await at.sluice.define([call])
})
beforeEach(() => void seen.splice(0))
afterAll(async () => {
  delete process.env['CHOICE_TEST_TOKEN']
  await at.close()
  server.close()
})

/** Runs one job that gets this member, because the other is paused. */
async function through(key: 'one' | 'two', body: (context: Context) => unknown): Promise<void> {
  const other = { limit: 'sender', key: key === 'one' ? 'two' : 'one' }
  await at.sluice.pause(other, { reason: 'not this one' })
  const members: (string | undefined)[] = []
  handler = async (context) => {
    members.push(context.pool['sender']?.key)
    await body(context)
  }
  await call.send({} as never)
  expect(await at.drain()).toBe(1)
  expect(members).toEqual([key])
  await at.sluice.resume(other)
}

it('a handler gets a member of the pool, with the fields that the code gives it', async () => {
  await through('one', ({ pool: { sender }, labels }) => {
    expect(sender).toMatchObject({ key: 'one', baseUrl: `${base}/one/`, data: { region: 'eu' } })
    expect(labels).toMatchObject({ host: expect.any(String), ip: expect.any(String) })
  })
  let secret: string | undefined
  await through('two', async ({ pool: { sender } }) => (secret = await sender?.secret()))
  expect(secret).toBe('token-of-two')
})

it('a request for a path goes to the member, with its headers unless it has its own, and a whole URL goes anywhere', async () => {
  await through('one', ({ fetch }) => fetch('/contacts?a=1'))
  await through('two', async ({ fetch }) => {
    await fetch('/contacts')
    await fetch('/own', { headers: { 'X-Key': 'mine' } })
    await fetch(`${base}/elsewhere`)
  })
  expect(seen.map(({ url, headers }) => [url, headers['x-key']])).toEqual([
    ['/one/contacts?a=1', undefined],
    ['/two/contacts', 'token-of-two'],
    ['/two/own', 'mine'],
    ['/elsewhere', undefined],
  ])
})

it('a redirect to another host gets neither the headers of the member nor the request', async () => {
  const errors: unknown[] = []
  for (const key of ['one', 'two'] as const)
    await through(key, ({ fetch }) => fetch('/away').catch((error: unknown) => errors.push(error)))
  expect(errors).toMatchObject([{ code: 'SLUICE_REDIRECT' }, { code: 'SLUICE_REDIRECT' }])
})

it('a 429 holds the member that sent it, and no other', async () => {
  await through('two', ({ fetch }) => fetch('/limited'))
  const keys: (string | undefined)[] = []
  handler = ({ pool: { sender } }) => void keys.push(sender?.key)
  for (let i = 0; i < 3; i++) await call.send({} as never)
  expect(await at.drain()).toBe(3)
  expect(keys).toEqual(['one', 'one', 'one'])
  await at.clock.advance('2h')
})

it('an http task takes a path', async () => {
  await expect(post.send({ url: 'contacts' })).rejects.toMatchObject({ code: 'SLUICE_INVALID_INPUT' })
  const id = await post.send({ url: '/contacts', json: { a: 1 } })
  await at.drain()
  const { state, result } = await at.waitFor(id)
  expect(state).toBe('done')
  // The secret is not kept when the vendor repeats it.
  expect(JSON.stringify(result)).not.toContain('token-of-two')
  expect(seen).toMatchObject([{ url: '/two/contacts', headers: { 'x-key': 'token-of-two', 'idempotency-key': id } }])
})

it('a job whose member the code does not know is returned uncalled', async () => {
  let calls = 0
  handler = () => void calls++
  await defineLimit(
    sqlOn(at.sluice.db),
    limit('sender', { window: '1000/h', concurrency: 1, pool: ['other'] }),
    'later',
  )
  const id = await call.send({} as never)
  await at.drain()
  expect(calls).toBe(0)
  expect(await at.sluice.jobs.get(id)).toMatchObject({ state: 'scheduled', attempt: 0 })
  const why = await at.sluice.why(id)
  expect(why?.reasons.map(({ text }) => text)).toContain(
    'held by sender:other, which the code of the worker that took it does not know',
  )
  await defineLimit(sqlOn(at.sluice.db), limit('sender', { window: '1000/h', concurrency: 1, pool: pool() }), 'later')
  await at.clock.advance('2s')
  await at.drain()
  expect(calls).toBe(1)
})
