/** A vendor's counts show that others use the account: what jobs and takes do then, and where people see it. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { check, limit, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { httpServer } from '../http/bench.ts'
import { until } from '../until.ts'
import { freshDatabase } from '../servers/database.ts'

const answers = { remaining: 0 }
/** A window of an hour, half of which has passed. */
const listen = () =>
  httpServer((_, response) => {
    const now = Math.floor(Date.now() / 1_000)
    response.writeHead(200, {
      date: new Date(now * 1_000).toUTCString(),
      'x-ratelimit-limit': '100',
      'x-ratelimit-remaining': String(answers.remaining),
      'x-ratelimit-reset': String(now + 1_800),
      'x-ratelimit-resource': 'core',
    })
    response.end('{}')
  })

const address = { url: '' }
const jobs = limit('by-jobs', { window: '100/h', vendor: 'github' })
const other = limit('of-another', { window: '100/h', vendor: 'stripe' })
const takes = limit('by-takes', { window: '100/h', vendor: 'github' })
const call = task('call', {
  limits: [jobs, other],
  allowPrivate: ['127.0.0.1'],
  run: async (_: object, { fetch }) => void (await (await check(await fetch(address.url))).text()),
})

let t: TestSluice
beforeAll(async () => {
  t = await testSluice({ tasks: [call], store: (await freshDatabase()).url })
})
afterAll(() => t.close())

const othersOf = async (name: string) => (await t.sluice.limits.show(name)).others[0]?.units

test('what others have used is charged to the limit of that vendor, and shown', async () => {
  address.url = await listen()
  answers.remaining = 40
  await call.send({})
  await t.drain()
  await until(async () => (await othersOf('by-jobs')) === 59)
  expect(await othersOf('of-another')).toBeUndefined()
  const { isProved, others, rules } = await t.sluice.verify()
  expect({ isProved, others }).toEqual({ isProved: true, others: 59 })
  expect(rules.find(({ limit: name }) => name === 'by-jobs')?.worst).toBe(1)
})

test('a limit of which nothing is left waits until the count begins anew', async () => {
  const url = await listen()
  answers.remaining = 0
  await (await t.sluice.takes.fetch(takes, url)).text()
  await until(async () => (await othersOf('by-takes')) === 99)
  const { granted, retryAfterMs } = await t.sluice.takes.tryTake(takes)
  expect(granted).toBe(false)
  // The window counts in steps of a minute.
  expect(retryAfterMs).toBeGreaterThan(1_797_000)
  expect(retryAfterMs).toBeLessThan(1_865_000)
})

test('a job that waits is told who has used the limit', async () => {
  await t.sluice.takes.take(jobs, { cost: 40 })
  const job = await call.send({})
  await t.drain()
  const why = await t.sluice.why(job)
  expect(why?.reasons.map(({ text }) => text)).toContain(
    'by-jobs (100/h) is used up, and others have used 59 of the account',
  )
})
