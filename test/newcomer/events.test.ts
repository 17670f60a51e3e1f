/** The events of jobs and limits that a program receives through `sluice.on`. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import { type EventName, fail, limit, Sluice, type SluiceEvents, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { keptLog } from '../report/stage.ts'
import { later, until } from '../until.ts'
import { rescue } from '../fleet/engine.ts'
import { enter } from '../claim/engine.ts'

const { lines, log } = keptLog()
let sluice: Sluice
let operator: Sluice
let vendor: { url: string; close(): void }
let isWell = true

const crm = limit('crm', { rate: '100/min' })
const held = limit('vendor', { rate: '1000/min', by: 'key' })
const input = z.object({ key: z.string().optional() })
const flaky = task('flaky', {
  input,
  limits: [crm],
  retry: { base: 1, max: 1 },
  run: () => {
    if (!isWell) throw new Error('no luck')
  },
})
const refused = task('refused', { input, run: () => Promise.reject(fail('no such customer')) })
const calls = task('calls', {
  input: z.object({ key: z.string() }),
  limits: [held],
  run: async (_, { fetch }) => void (await fetch(vendor.url)),
})
const daily = task('daily', { input, limits: [limit('daily', { window: '1/day' })], run() {} })
const unknown = task('unknown', { input, maxWait: 1, queue: 'nowhere', run() {} })

beforeAll(async () => {
  const server = createServer((_, response) => response.writeHead(429, { 'retry-after': '15' }).end())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  vendor = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close: () => server.close() }
  const { url } = await freshDatabase()
  sluice = await Sluice.open({ store: url, log })
  operator = await Sluice.open({ store: url })
  await sluice.work([flaky, refused, calls, daily], { queues: ['default'] })
})
afterAll(async () => {
  await sluice.close()
  await operator.close()
  vendor.close()
})

/** Collects events of one kind while `act` runs, until there are `n`. */
async function received<Name extends EventName>(name: Name, act: () => Promise<unknown>, n = 1) {
  const events: SluiceEvents[Name][] = []
  const end = sluice.on(name, (event) => events.push(event))
  await act()
  await until(() => events.length >= n, `${n} of "${name}"`)
  end()
  return events
}

it('a program receives the beginning and the end of a job', async () => {
  const about = { job: expect.any(String), task: 'flaky', queue: 'default', attempt: 1, worker: expect.any(String) }
  const done = later(received('done', async () => {}))
  expect(await received('started', () => sluice.send(flaky, {}))).toEqual([about])
  expect(await done).toEqual([{ ...about, tookMs: expect.any(Number) }])
})

it('a program receives each failed attempt with its error, and that the task works again', async () => {
  isWell = false
  const failed = await received('failed', () => sluice.send(flaky, {}), 6)
  expect(failed.slice(0, 2)).toMatchObject([
    { task: 'flaky', attempt: 1, error: { name: 'Error', message: 'no luck' }, retryInMs: expect.any(Number) },
    { task: 'flaky', attempt: 2, error: { stack: expect.stringContaining('events.test.ts') } },
  ])
  const [recovered] = await received('recovered', async () => void (isWell = true))
  expect(recovered).toMatchObject({ task: 'flaky' })
  expect(recovered?.failures).toBeGreaterThanOrEqual(6)
})

it('a program receives a job that has failed for good, also one that no worker touched', async () => {
  const [own] = await received('exhausted', () => sluice.send(refused, {}))
  expect(own).toMatchObject({
    task: 'refused',
    reason: 'refused',
    jobs: 1,
    attempt: 1,
    error: { code: 'SLUICE_FAILED' },
  })
  const [expired] = await received('exhausted', () => sluice.send(unknown, {}))
  expect(expired).toMatchObject({
    task: 'unknown',
    reason: 'expired',
    jobs: 1,
    attempt: undefined,
    job: expect.any(String),
  })
  expect(lines.findLast(({ level }) => level === 'error')?.message).toMatch(
    /^job failed for good \(expired\): it could/,
  )
})

it('a program receives by when a job had to begin that its limit cannot let begin in time', async () => {
  await received('done', () => sluice.send(daily, {}))
  const [hopeless] = await received('exhausted', () => sluice.send(daily, {}, { maxWait: '1min' }))
  expect(hopeless).toMatchObject({
    task: 'daily',
    error: {
      code: 'SLUICE_NO_ROOM_IN_TIME',
      message: expect.stringMatching(/had to begin by \d{4}-\d\d-\d\dT[\d:]{8}Z$/),
    },
  })
})

it("a program receives a vendor's pause, with the limit that waits", async () => {
  const [pause] = await received('held', () => sluice.send(calls, { key: 'a1' }))
  expect(pause).toEqual({
    limits: ['vendor:a1'],
    forMs: 15_000,
    cause: 'refused',
    why: expect.stringMatching(/^429 from 127\.0\.0\.1/),
  })
})

it('a program receives what an operator changes in another process', async () => {
  const [changed] = await received('limit', () =>
    operator.limits.set('crm', { rate: '50/min' }, { reason: 'a contract' }),
  )
  expect(changed).toMatchObject({
    limit: 'crm',
    source: 'stored',
    reason: 'a contract',
    before: [{ rate: '100/min' }],
    after: [{ rate: '50/min' }],
  })
  const log = () => lines.map(({ message }) => message)
  expect(log()).toContainEqual(
    expect.stringMatching(/^limit "crm" is now rate 50\/min; it was rate 100\/min \(stored, by /),
  )
  const what = { limit: 'vendor', key: 'a1' }
  expect(await received('paused', () => operator.pause(what, { reason: 'their incident' }))).toMatchObject([
    { what: 'limit vendor for a1', isPaused: true, reason: 'their incident', by: expect.any(String) },
  ])
  expect(await received('paused', () => operator.resume(what))).toMatchObject([
    { what: 'limit vendor for a1', isPaused: false },
  ])
  await received('paused', () => operator.pause({ queue: 'mail*' }, { reason: 'repairs' }))
  expect(log()).toContainEqual(expect.stringMatching(/^queue mail\* is paused: repairs \(by /))
})

it('a program receives that a worker was lost', async () => {
  const worker = await enter(sluice.db)
  expect(await received('rescued', () => rescue(sluice.db, worker))).toEqual([
    { worker, host: 'test', pid: 1, jobs: 0 },
  ])
})
