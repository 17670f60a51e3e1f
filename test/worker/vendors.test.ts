/** Each vendor refuses, by its stand-in: the limit waits as long as the vendor states, by jobs and by takes. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { check, limit, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { httpServer } from '../http/bench.ts'
import { allowance, counting, standIns } from '../vendors/stand-ins.ts'
import { freshDatabase } from '../servers/database.ts'

const cases = standIns.map((standIn, n) => {
  const limitOf = (by: string) => limit(`${by}-${n}`, { window: '100/h', vendor: { answers: standIn.vendor } })
  const jobs = limitOf('jobs')
  const address = { url: '' }
  const call = task(`call-${n}`, {
    limits: [jobs],
    allowPrivate: ['127.0.0.1'],
    run: async (_: object, { fetch }) => void (await (await check(await fetch(address.url))).text()),
  })
  return { ...standIn, jobs, takes: limitOf('takes'), call, address }
})

const requests = limit('requests', { window: '100/h', vendor: 'openai' })
const tokens = limit('tokens', { window: '100/h', vendor: 'openai' })
const chat = { url: '' }
const complete = task('complete', {
  limits: [requests, tokens],
  allowPrivate: ['127.0.0.1'],
  run: async (_: object, { fetch }) => void (await check(await fetch(chat.url))),
})

let t: TestSluice
beforeAll(async () => {
  t = await testSluice({ tasks: [complete, ...cases.map(({ call }) => call)], store: (await freshDatabase()).url })
})
afterAll(() => t.close())

test.each(cases)('$vendor, $of: by jobs', async ({ call, jobs, address, seconds, ...standIn }) => {
  const { seen, listener } = counting(standIn)
  address.url = await httpServer(listener)
  // One after the other, so that no further call is under way when the vendor refuses.
  for (let n = 0; n <= allowance; n++) {
    await call.send({})
    await t.drain()
  }
  await call.send({})
  await t.drain()
  expect(seen.calls).toBe(allowance + 1)
  const { granted, retryAfterMs } = await t.sluice.takes.tryTake(jobs)
  expect(granted).toBe(false)
  expect(Math.abs(retryAfterMs - seconds * 1_000)).toBeLessThan(500)
})

test.each(cases)('$vendor, $of: by takes', async ({ takes, seconds, ...standIn }) => {
  const { seen, listener } = counting(standIn)
  const url = await httpServer(listener)
  for (let n = 0; n < allowance; n++) await (await t.sluice.takes.fetch(takes, url)).text()
  await t.sluice.takes.take(takes)
  await expect(check(await t.sluice.takes.fetch(takes, url))).rejects.toMatchObject({ code: 'SLUICE_VENDOR_LIMITED' })
  const { granted, retryAfterMs } = await t.sluice.takes.tryTake(takes)
  expect(granted).toBe(false)
  expect(Math.abs(retryAfterMs - seconds * 1_000)).toBeLessThan(500)
  expect(seen.calls).toBe(allowance + 1)
})

test('a refusal holds the limit that the vendor names, and no other', async () => {
  chat.url = await httpServer(
    standIns.find(({ vendor, of }) => vendor === 'openai' && of === 'tokens')?.refuses ?? (() => {}),
  )
  await complete.send({})
  await t.drain()
  expect((await t.sluice.takes.tryTake(tokens)).granted).toBe(false)
  expect((await t.sluice.takes.tryTake(requests)).granted).toBe(true)
})
