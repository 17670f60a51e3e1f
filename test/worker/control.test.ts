/** How a task and its handler decide about the next steps of a job, with a store clock that the test controls. */
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import { type Failure, fail, limit, rateLimited, retryIn, snooze, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { claim, enter, finish, mainEngines } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { rescue } from '../fleet/engine.ts'
import { unitsUsed } from '../limits/engine.ts'
import { copies } from '../rows.ts'

let next: (attempt: number) => unknown
const failures: Failure[] = []
const steps: string[] = []
const input = z.object({ n: z.number().optional() })
const run = (_: unknown, { attempt }: { attempt: number }) => next(attempt)
const told = task('told', {
  input,
  retry: { attempts: 2, base: 1, max: 1 },
  run,
  onFailed: (failure) => void failures.push(failure),
})
const once = task('once', { input, mode: 'at-most-once', retry: { base: 1, max: 1 }, run })
const brief = task('brief', { input, maxWait: '1min', limits: [limit('brief', { rate: '1/h' })], run: () => 'ran' })
const noted = task('noted', { input, run: ({ n }) => void steps.push(String(n)) })
const tasks = [told, once, brief, noted]

describe.each(mainEngines)('$name', (engine) => {
  let t: TestSluice
  beforeAll(async () => {
    t = await testSluice({ tasks, store: await engine.store() })
  })
  afterAll(() => t.close())

  test('snooze(0) does not run the handler again at once, without end', async () => {
    next = () => {
      throw snooze(0)
    }
    const id = await told.send({})
    expect(await t.drain()).toBe(1)
    expect(await t.sluice.jobs.get(id)).toMatchObject({ state: 'scheduled', attempt: 0 })
    await t.sluice.jobs.cancel(id)
  })

  test('snooze postpones a job without counting an attempt, and why names the reason', async () => {
    next = () => {
      throw snooze('10min')
    }
    const id = await told.send({})
    await t.drain()
    const reason = (await t.sluice.why(id))?.reasons.find(({ kind }) => kind === 'snoozed')
    expect(reason?.text).toContain('by its handler')
    expect(await t.sluice.jobs.get(id)).toMatchObject({ state: 'scheduled', attempt: 0, failed: 0 })
    next = (attempt) => attempt
    expect(await t.drain()).toBe(0)
    await t.clock.advance('599s')
    expect(await t.drain()).toBe(0)
    await t.clock.advance('1s')
    expect(await t.drain()).toBe(1)
    expect(await t.waitFor(id)).toMatchObject({ state: 'done', result: 1, attempt: 1, failed: 0 })
  })

  test('retryIn sets the time of the next attempt in place of the retry policy', async () => {
    next = (attempt) => {
      if (attempt === 1) throw retryIn('1h', 'its turn is in an hour')
      return 'then'
    }
    const id = await told.send({})
    await t.drain()
    await t.clock.advance('59min')
    expect(await t.drain()).toBe(0)
    await t.clock.advance('1min')
    await t.drain()
    expect(await t.waitFor(id)).toMatchObject({ result: 'then', failed: 1 })
  })

  test('fail ends a job at once, and onFailed gets a job of its own for it', async () => {
    next = () => {
      throw fail('no such customer', { cause: new RangeError('the CRM has 3 of them') })
    }
    const id = await told.send({ n: 7 }, { tags: ['a'] })
    failures.length = 0
    await t.drain()
    const error = { code: 'SLUICE_FAILED', message: 'no such customer' }
    const cause = { name: 'RangeError', message: 'the CRM has 3 of them' }
    const kept = { ...error, cause }
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'refused', attempt: 1, error: kept })
    expect(failures).toMatchObject([
      { id, task: 'told', reason: 'refused', error, input: { n: 7 }, tags: ['a'], attempt: 1 },
    ])
  })

  test('what was meant to be thrown counts as thrown if it is returned', async () => {
    next = (attempt) => (attempt === 1 ? retryIn('1s') : fail('no such customer'))
    const id = await told.send({})
    await t.drain({ advance: '1min' })
    const error = { code: 'SLUICE_FAILED', message: 'no such customer' }
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'refused', failed: 2, error, result: null })
  })

  test('any error that is returned counts as thrown', async () => {
    next = () => new RangeError('it was returned')
    const id = await told.send({})
    await t.drain({ advance: '1min' })
    const error = { name: 'RangeError', message: 'it was returned' }
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'exhausted', error, result: null })
  })

  test('a response that is returned counts as checked', async () => {
    next = () => new Response('no such customer', { status: 404 })
    const refused = await told.send({})
    await t.drain({ advance: '1min' })
    expect(await t.waitFor(refused)).toMatchObject({
      state: 'failed',
      failed: 1,
      error: { code: 'SLUICE_HTTP_STATUS' },
    })
    next = () => new Response('{}', { status: 201 })
    const served = await told.send({})
    await t.drain()
    expect(await t.waitFor(served)).toMatchObject({ state: 'done', result: null })
  })

  test('onFailed gets a job once for a job that used up its attempts', async () => {
    next = () => {
      throw new Error('again')
    }
    failures.length = 0
    const id = await told.send({})
    await t.drain()
    await t.clock.advance('1s')
    await t.drain()
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'exhausted', failed: 2 })
    expect(failures.map(({ reason }) => reason)).toEqual(['exhausted'])
  })

  test.each([
    ['throws', () => new Error('reset by peer'), 'doubtful'],
    ['got a 429', () => rateLimited({ status: 429, headers: new Headers() }), undefined],
    ['got a 503', () => rateLimited({ status: 503, headers: new Headers() }), 'doubtful'],
    ['requests another time', () => retryIn(1), undefined],
  ])(
    'a job in mode at-most-once is retried unless it may have had an effect: its handler %s',
    async (_, error, reason) => {
      next = (attempt) => {
        if (attempt === 1) throw error()
      }
      const id = await once.send({})
      await t.drain()
      await t.clock.advance('2s')
      await t.drain()
      const expected =
        reason === undefined ? { state: 'done', attempt: 2 } : { state: 'failed', reason, attempt: 1, ambiguous: true }
      expect(await t.waitFor(id)).toMatchObject(expected)
    },
  )

  test('a job in mode at-most-once is not retried when its worker was lost, but is when it was never called', async () => {
    const { db } = t.sluice
    const ids = [await once.send({}), await once.send({})]
    const [lost, left] = [await enter(db), await enter(db)]
    expect((await claim(db, lost, ['once'], 1)).jobs).toHaveLength(1)
    expect((await claim(db, left, ['once'], 1)).jobs).toHaveLength(1)
    await rescue(db, lost)
    await rescue(db, left, 'shutdown')
    next = () => undefined
    await t.drain()
    const [first, second] = await Promise.all(ids.map((id) => t.waitFor(id)))
    expect(first).toMatchObject({ state: 'failed', reason: 'doubtful', ambiguous: true, crashes: 1 })
    expect(second).toMatchObject({ state: 'done', attempt: 1, ambiguous: false })
  })

  test('a job in mode at-most-once is not retried when it was stopped by a dispatcher that does not know its mode', async () => {
    const { db } = t.sluice
    const id = await once.send({})
    const worker = await enter(db)
    const { jobs } = await claim(db, worker, ['once'], 1)
    await finish(
      db,
      jobs.map((job) => ({ job, outcome: 'interrupt', reason: 'crashed', error: '{"message":"lost"}' })),
    )
    await t.drain()
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'doubtful', attempt: 1, ambiguous: true })
    await rescue(db, worker, 'shutdown')
  })

  test('a job that cannot begin within its maxWait fails, and uses no units', async () => {
    const ids = [await brief.send({})]
    await t.drain()
    ids.push(await brief.send({}), await brief.send({}, { maxWait: '2h' }), await brief.send({}))
    await t.clock.advance('61s')
    await t.drain()
    await t.clock.advance('1h')
    await t.drain()
    const jobs = await Promise.all(ids.map((id) => t.sluice.jobs.get(id)))
    expect(jobs.map((job) => job?.reason ?? job?.state)).toEqual(['done', 'expired', 'done', 'expired'])
    expect(await unitsUsed(t.sluice.db)).toEqual({ brief: 2 })
  })

  test('a claim that meets expired jobs passes them, and takes the jobs behind', async () => {
    const late = await t.sluice.sendMany(noted, copies(30), { maxWait: '1s' })
    const id = await noted.send({ n: 1 })
    await t.clock.advance('2s')
    steps.length = 0
    await t.drain()
    expect(await t.waitFor(id)).toMatchObject({ state: 'done' })
    expect(steps).toEqual(['1'])
    const [failed] = await t.sluice.db.query<{ n: string }>(
      `select count(*) as n from sluice.failed where task = 'noted'`,
    )
    expect(Number(failed?.n)).toBe(late.length)
  })

  test('a worker ends expired jobs in its rounds', async () => {
    const ids = [await noted.send({}, { maxWait: '1s' }), await noted.send({}, { maxWait: '1s', delay: '1s' })]
    await t.clock.advance('3s')
    const worker = await t.sluice.work([noted])
    const jobs = await Promise.all(ids.map((id) => t.waitFor(id)))
    await worker.stop()
    expect(jobs).toMatchObject(ids.map(() => ({ state: 'failed', reason: 'expired', attempt: 0 })))
  })

  test('a send that replaces runs the last input, once, under the id of the first job', async () => {
    steps.length = 0
    const key = newId()
    const first = await noted.send({ n: 1 }, { idempotencyKey: key, replace: true, delay: '1min' })
    expect(await noted.send({ n: 2 }, { idempotencyKey: key, replace: true })).toBe(first)
    const both = [3, 4].map((n) => noted.send({ n }, { idempotencyKey: key, replace: true }))
    expect(await Promise.all(both)).toEqual([first, first])
    await t.drain()
    expect(steps).toEqual(['4'])
    // A job that has ended is not brought back: the next one is a job of its own, and has the key.
    const later = await noted.send({ n: 5 }, { idempotencyKey: key, replace: true })
    expect(later).not.toBe(first)
    expect(await noted.send({ n: 6 }, { idempotencyKey: key })).toBe(later)
    await t.drain()
    expect(steps).toEqual(['4', '5'])
  })

  test.each([1, 2])('%i replacing sends with a lost reply give one job, even if it runs meanwhile', async (n) => {
    const key = newId()
    const { db } = t.sluice
    const worker = await enter(db)
    const send = (i: number) => noted.send({ n: i }, { idempotencyKey: key, replace: true })
    const first = await send(-1)
    const whole = db.call.bind(db)
    const lossy = vi.spyOn(db, 'call').mockImplementationOnce(async (...call) => {
      await whole(...call)
      expect((await claim(db, worker, ['noted'], 1)).jobs).toHaveLength(1)
      throw new StoreError('SLUICE_STORE_UNREACHABLE', 'the reply is lost')
    })
    const ids = await Promise.all(Array.from({ length: n }, (_, i) => send(i)))
    expect(lossy).toHaveBeenCalledTimes(2)
    lossy.mockRestore()
    expect(ids).toEqual(Array.from({ length: n }, () => first))
    await rescue(db, worker, 'shutdown')
    steps.length = 0
    await t.drain()
    expect(steps).toEqual([String(n - 1)])
    expect(await t.sluice.jobs.get(first)).toMatchObject({ state: 'done' })
  })

  test('a running job is not replaced, and the newer one runs after it', async () => {
    const key = newId()
    const { db } = t.sluice
    const first = await noted.send({ n: 1 }, { idempotencyKey: key })
    const worker = await enter(db)
    expect((await claim(db, worker, ['noted'], 1)).jobs).toHaveLength(1)
    const second = await noted.send({ n: 2 }, { idempotencyKey: key, replace: true })
    expect(second).not.toBe(first)
    expect(await t.sluice.jobs.get(first)).toMatchObject({ state: 'running' })
    await rescue(db, worker, 'shutdown')
    steps.length = 0
    await t.drain()
    expect(steps.toSorted()).toEqual(['1', '2'])
  })

  test('a retried job keeps its mode and its route, if it was sent by SQL and failed before any worker saw it', async () => {
    const { db } = t.sluice
    const send = async (name: string, options: object) =>
      (
        await db.query<{ id: string }>(`select sluice.send($1, '{"n": "x"}', $2) as id`, [
          name,
          JSON.stringify(options),
        ])
      )[0]?.id as string
    failures.length = 0
    const ids = [await send('once', {}), await send('told', {}), await send('told', { max_wait: 1 })]
    await t.clock.advance('2s')
    await t.drain()
    expect(failures.map(({ reason }) => reason).toSorted()).toEqual(['expired', 'refused'])
    const id = ids[0] ?? ''
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'refused' })
    await t.sluice.jobs.retry(id)
    const worker = await enter(db)
    const { jobs } = await claim(db, worker, ['once'], 1)
    expect(jobs.map((job) => job.id)).toEqual([id])
    await rescue(db, worker)
    expect(await t.waitFor(id)).toMatchObject({ state: 'failed', reason: 'doubtful' })
  })

  test('a retried job keeps the options of its task', async () => {
    next = () => {
      throw fail('no')
    }
    const id = await told.send({})
    await t.drain()
    failures.length = 0
    await t.sluice.jobs.retry(id)
    await t.drain()
    expect(failures).toMatchObject([{ id }])
  })
})

test('invalid control options are refused at once', async () => {
  const bad = { code: 'SLUICE_BAD_OPTION' }
  expect(() => task('x', { input, weight: 0, run })).toThrow(expect.objectContaining(bad))
  expect(() => task('x', { input, maxWait: 0, run })).toThrow(expect.objectContaining(bad))
  expect(() => task('x', { input, mode: 'never' as 'at-most-once', run })).toThrow(/at-least-once/)
  expect(() => snooze(-1)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_DURATION' }))
  const t = await testSluice({ tasks, store: (await freshDatabase()).url })
  await expect(noted.send({}, { replace: true })).rejects.toMatchObject(bad)
  await expect(noted.send({}, { maxWait: '400d' })).rejects.toMatchObject(bad)
  for (const concurrency of [0, 1.5, NaN, 10_001])
    for (const start of ['work', 'execute'] as const)
      await expect(t.sluice[start](tasks, { concurrency })).rejects.toMatchObject(bad)
  await t.close()
})
