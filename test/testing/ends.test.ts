/** The kit ends where what it waits for does not come, with an error about it; its schedules follow its clock. */
import { afterEach, expect, it, vi } from 'vitest'
import { z } from 'zod'
import { limit, schedule, scheduledFor, task } from '../../src/index.ts'
import { testSluice, type TestSluice, vendor } from '../../src/testing/index.ts'
import { freshDatabase } from '../servers/database.ts'

let t: TestSluice
afterEach(() => t.close())

const never = new Promise<never>(() => {})
let hangs = true
const stuck = task('stuck', { input: z.object({}), run: () => (hangs ? never : 'ran') })
const late = { code: 'SLUICE_WAIT_TIMEOUT', message: expect.stringContaining('"stuck" (job ') }

it('drain gives up on a handler that does not end, names it, and its job can run again', async () => {
  hangs = true
  t = await testSluice({ tasks: [stuck], timeout: 200 })
  const id = await stuck.send({})
  await expect(t.drain()).rejects.toMatchObject(late)
  hangs = false
  await t.drain({ advance: true })
  expect(await t.waitFor(id)).toMatchObject({ state: 'done', result: 'ran' })
})

it('a handler that is stuck in a transaction of the only connection is named, too, and the kit closes', async () => {
  const locked = task('locked', { input: z.object({}), run: () => t.sluice.transaction(() => never) })
  t = await testSluice({ tasks: [locked], timeout: 200 })
  await locked.send({})
  await expect(t.drain()).rejects.toMatchObject({ message: expect.stringContaining('"locked" (job ') })
})

it('a further request for which the limit has no room while the clock stands still is named', async () => {
  const there = vendor({ rules: [] })
  const url = await there.listen()
  const twice = task('twice', {
    input: z.object({}),
    limits: [limit('slow', { rate: '1/min' })],
    run: async (_, { fetch }) => void (await (await fetch(url)).text(), await fetch(url)),
  })
  t = await testSluice({ tasks: [twice], timeout: 500 })
  await twice.send({})
  await expect(t.drain()).rejects.toMatchObject({ message: expect.stringContaining('"twice" (job ') })
  await there.close()
})

it('close ends a drain under way, and names the handler', async () => {
  hangs = true
  const kit = await testSluice({ tasks: [stuck] })
  let begin = () => {}
  const begun = new Promise<void>((resolve) => (begin = resolve))
  kit.sluice.on('started', () => begin())
  t = await testSluice({ tasks: [stuck] })
  await kit.sluice.send(stuck, {})
  const draining = kit.drain().catch((error: unknown) => error)
  await begun
  await expect(kit.close()).rejects.toMatchObject(late)
  expect(await draining).toMatchObject(late)
})

it('waitFor of a job that nothing runs rejects with what to do', async () => {
  t = await testSluice({ tasks: [stuck], timeout: 50 })
  const waiting = t.waitFor(await stuck.send({}))
  await expect(waiting).rejects.toMatchObject({
    code: 'SLUICE_WAIT_TIMEOUT',
    message: expect.stringContaining('t.drain()'),
  })
})

it('waitFor of a job whose task the kit does not have names the task', async () => {
  t = await testSluice({ tasks: [stuck], timeout: 50 })
  const id = await task('elsewhere', { run: () => 'ran' }).send({})
  await t.drain()
  await expect(t.waitFor(id)).rejects.toMatchObject({ message: expect.stringContaining('"elsewhere" is not among') })
})

const instants: string[] = []
const nightly = task('nightly', {
  input: z.object({}),
  run: (_, { job }) => void instants.push(scheduledFor(job)?.toISOString() ?? ''),
})
const atThree = schedule('at-three', { task: nightly, cron: '0 3 * * *', zone: 'Europe/Berlin', input: {} })

it('schedules fire by the clock: in a span, until something is true, and after a jump', async () => {
  instants.length = 0
  // The night of 28 March 2027 has no hour from two to three in Berlin.
  t = await testSluice({ tasks: [nightly], schedules: [atThree], start: new Date('2027-03-27T00:00:00Z') })
  expect(await t.drain({ advance: '1d' })).toBe(1)
  expect(instants).toEqual(['2027-03-27T02:00:00.000Z'])
  await t.runUntil(() => instants.length === 2)
  expect(await t.clock.now()).toEqual(new Date('2027-03-28T01:00:00Z'))
  // As if no worker had run in these days: the newest instant is sent.
  await t.clock.advance('3d')
  await t.drain()
  expect(instants.slice(2)).toEqual(['2027-03-31T01:00:00.000Z'])
  await t.sluice.schedules.pause('at-three')
  expect(await t.drain({ advance: '2d' })).toBe(0)
})

it('schedules begin anew in each kit on one store', async () => {
  const { url } = await freshDatabase()
  for (const _run of [1, 2]) {
    instants.length = 0
    t = await testSluice({
      tasks: [nightly],
      schedules: [atThree],
      store: url,
      start: new Date('2027-06-01T00:00:00Z'),
    })
    await t.drain({ advance: '2d' })
    expect(instants).toEqual(['2027-06-01T01:00:00.000Z', '2027-06-02T01:00:00.000Z'])
    await t.close()
  }
})

it('drain with advance ends although a schedule never does, and fires it while jobs wait', async () => {
  instants.length = 0
  t = await testSluice({ tasks: [nightly], schedules: [atThree] })
  expect(await t.drain({ advance: true })).toBe(0)
  await nightly.send({}, { delay: '2d' })
  await t.drain({ advance: true })
  expect(instants).toHaveLength(3)
})

it('a kit refuses faked timers, with which nothing would end, and takes a faked date', async () => {
  const twice = task('twice', { run: ({ n }: { n: number }) => 2 * n })
  const faked = { code: 'SLUICE_BAD_OPTION', message: expect.stringContaining('{ toFake: ["Date"] }') }
  t = await testSluice({ tasks: [twice] })
  try {
    vi.useFakeTimers()
    await expect(testSluice({ tasks: [twice] })).rejects.toMatchObject(faked)
    await expect(t.drain()).rejects.toMatchObject(faked)
    vi.useRealTimers().useFakeTimers({ toFake: ['Date'], now: new Date('2001-01-01') })
    const id = await twice.send({ n: 21 })
    await t.drain()
    expect((await t.waitFor(id)).result).toBe(42)
  } finally {
    vi.useRealTimers()
  }
})
