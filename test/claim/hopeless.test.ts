/** Jobs whose limit cannot have room before they expire, on both engines, with a store clock that the test controls. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { type Failure, limit, task } from '../../src/index.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { acquire, endTakes, further } from '../takes/engine.ts'
import { claim, done, mainEngines, enter, tenantInput } from './engine.ts'
import { jobsLeft } from '../store/engine.ts'

const failures: Failure[] = []
const make = (name: string, more: object) =>
  task(name, { input: tenantInput, run: () => 'ran', onFailed: (failure) => void failures.push(failure), ...more })
const dailyLimit = limit('daily', { window: '2/day' })
const daily = make('daily', { limits: [dailyLimit] })
const both = make('both', {
  limits: [limit('minute', { window: '1/min' }), limit('day', { window: '1/day', by: 'tenant' })],
})
const counted = make('counted', { limits: [limit('counted', { concurrency: 1 })] })
const smoothLimit = limit('smooth', { rate: '1/h' })
const smooth = make('smooth', { limits: [smoothLimit] })
const dear = make('dear', {
  limits: [limit('dear', { window: '10/day', cost: (input: { n?: number | undefined }) => input.n ?? 1 })],
})
const tasks = [daily, both, counted, smooth, dear]
/** A vendor's refusal that demands a pause of so many seconds. */
const refusal = (seconds: number) => new Response(null, { status: 429, headers: { 'retry-after': String(seconds) } })

describe.each(mainEngines)('$name', (engine) => {
  let t: TestSluice
  beforeAll(async () => {
    t = await testSluice({ tasks, store: await engine.store() })
  })
  beforeEach(async () => {
    failures.length = 0
    await t.clock.advance('3d')
  })
  afterAll(() => t.close())
  /** The states after one more round of a worker. */
  const states = async (ids: string[]) => {
    await t.drain()
    return Promise.all(ids.map((id) => t.sluice.jobs.get(id).then((job) => job?.reason ?? job?.state)))
  }

  test('a job that cannot start in time behind a used-up daily window fails at once and reaches onFailed, and one that can wait waits', async () => {
    await daily.send({})
    await daily.send({})
    expect(await t.drain()).toBe(2)
    const ids = [await daily.send({ n: 1 }, { maxWait: '1min' }), await daily.send({}, { maxWait: '2d' })]
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'waiting'])
    expect(failures).toMatchObject([{ id: ids[0], reason: 'expired', input: { n: 1 }, attempt: 0 }])
    expect(failures[0]?.error).toMatchObject({ code: 'SLUICE_NO_ROOM_IN_TIME' })
    expect(failures[0]?.error?.message).toMatch(
      /^limit "daily" has no room before \d{4}-\d\d-\d\dT[\d:]{8}Z, and the job had to begin by \d{4}-\d\d-\d\dT[\d:]{8}Z$/,
    )
    // Also jobs that come when the lane waits already; no claim looks at that lane.
    ids.push(await daily.send({}, { maxWait: '1min' }), await daily.send({}))
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'waiting', 'expired', 'waiting'])
    expect(failures).toHaveLength(2)
    await t.clock.advance('25h')
    expect(await t.drain()).toBe(2)
    expect(await states(ids)).toEqual(['expired', 'done', 'expired', 'done'])
  })

  test('a job waits for a vendor that may accept requests again at any moment, and not for one that states an hour', async () => {
    await daily.send({})
    expect(await t.drain()).toBe(1)
    await t.sluice.takes.observe(dailyLimit, refusal(30))
    const ids = [await daily.send({}, { maxWait: '10s' })]
    await t.drain()
    expect(await states(ids)).toEqual(['waiting'])
    await t.sluice.takes.observe(dailyLimit, refusal(3_600))
    await t.drain()
    expect(await states(ids)).toEqual(['expired'])
  })

  test('the counts of a lane stay right: after only such jobs it is empty, and takes the next job', async () => {
    for (let n = 0; n < 2; n++) await daily.send({})
    await t.drain()
    for (let n = 0; n < 5; n++) await daily.send({}, { maxWait: '1min' })
    await t.drain()
    expect(failures).toHaveLength(5)
    await daily.send({}, { maxWait: '2d' })
    await t.drain()
    for (let n = 0; n < 3; n++) await daily.send({}, { maxWait: '1min' })
    await t.drain()
    expect(failures).toHaveLength(8)
    await t.clock.advance('2d')
    await t.drain()
    expect(await jobsLeft(t.sluice.db)).toBe(0)
  })

  test('all limits of a job are checked, and the failure names the one that has room last, with its key', async () => {
    await both.send({ tenant: 'a%s' })
    await t.drain()
    const ids = [
      await both.send({ tenant: 'a%s' }, { maxWait: '1h' }),
      await both.send({ tenant: 'b' }, { maxWait: '1h' }),
    ]
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'waiting'])
    expect(failures[0]?.error?.message).toContain('limit "day" of "a%s" has no room before')
    await t.clock.advance('2min')
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'done'])
  })

  test('a job that waits for a concurrency place or for the end of a pause is not given up, because either may come at any time', async () => {
    const worker = await enter(t.sluice.db)
    const [first, second] = [await counted.send({}), await counted.send({}, { maxWait: '1min' })]
    const { jobs } = await claim(t.sluice.db, worker, ['counted'], 5)
    expect(jobs).toMatchObject([{ id: first }])
    await t.sluice.pause({ limit: 'smooth' }, { reason: 'x' })
    const third = await smooth.send({}, { maxWait: '1min' })
    await claim(t.sluice.db, worker, ['smooth'], 5)
    expect(await states([second, third])).toEqual(['waiting', 'waiting'])
    await done(t.sluice.db, jobs)
    await t.sluice.resume({ limit: 'smooth' })
    expect(await t.drain()).toBe(2)
  })

  test('a job is not given up while running jobs may still give back their grants', async () => {
    const worker = await enter(t.sluice.db)
    await smooth.send({})
    const { jobs } = await claim(t.sluice.db, worker, ['smooth'], 5)
    const id = await smooth.send({}, { maxWait: '1min' })
    await claim(t.sluice.db, worker, ['smooth'], 5)
    expect(await states([id])).toEqual(['waiting'])
    await done(t.sluice.db, jobs)
    // Without an arrival a claim looks at the list again 2 s later.
    await t.clock.advance('2s')
    await claim(t.sluice.db, worker, ['smooth'], 5)
    expect(await states([id])).toEqual(['expired'])
  })

  test('a job is not given up while further grants of running jobs may come back', async () => {
    const worker = await enter(t.sluice.db)
    await dear.send({ n: 0 })
    const { jobs } = await claim(t.sluice.db, worker, ['dear'], 1)
    const [job] = jobs
    const grant = newId()
    expect(await further(t.sluice.db, job, ['dear'], { grant, units: [10] })).toMatchObject({ granted: true })
    const id = await dear.send({ n: 1 }, { maxWait: '1h' })
    await claim(t.sluice.db, worker, ['dear'], 5)
    expect(await states([id])).toEqual(['waiting'])
    await done(t.sluice.db, jobs)
    await t.clock.advance('2s')
    await claim(t.sluice.db, worker, ['dear'], 5)
    expect(await states([id])).toEqual(['expired'])
  })

  test('a job that costs more than is left fails though others have room, and `why` says so before', async () => {
    await dear.send({ n: 8 })
    await t.drain()
    const worker = await enter(t.sluice.db)
    const ids = [
      await dear.send({ n: 5 }, { maxWait: '1h' }),
      await dear.send({ n: 2 }, { maxWait: '1h' }),
      await dear.send({ n: 3 }, { maxWait: '2d' }),
    ]
    await claim(t.sluice.db, worker, ['dear'], 1)
    const why = await t.sluice.why(ids[0] ?? '')
    expect(why?.reasons.map(({ kind }) => kind)).toContain('expired')
    expect(why?.about).toBeUndefined()
    expect((await t.sluice.why(ids[2] ?? ''))?.reasons.map(({ kind }) => kind)).not.toContain('expired')
    expect(await states(ids)).toEqual(['expired', 'waiting', 'waiting'])
    // Claims look again within ten minutes whether a job in front of others still waits.
    await t.clock.advance('11min')
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'done', 'waiting'])
    const failure = { id: ids[0], error: expect.objectContaining({ code: 'SLUICE_NO_ROOM_IN_TIME' }) as unknown }
    expect(failures).toContainEqual(expect.objectContaining(failure))
  })

  test('a job behind one that costs more than is left starts within ten minutes after that one is cancelled', async () => {
    await dear.send({ n: 8 })
    await t.drain()
    const [first, second] = [await dear.send({ n: 5 }), await dear.send({ n: 2 })]
    await t.drain()
    await t.sluice.jobs.cancel(first)
    await t.clock.advance('11min')
    await t.drain()
    expect(await states([second])).toEqual(['done'])
  })

  test('a job is not given up for a minute after units were taken outside of jobs', async () => {
    const worker = await enter(t.sluice.db)
    await t.sluice.define([smooth])
    const ids: string[] = []
    const grants = [randomUUID(), randomUUID()]
    for (const [i, grant] of grants.entries()) {
      expect(await acquire(t.sluice.db, 'smooth', { grant })).toMatchObject({ granted: true })
      ids.push(await smooth.send({}, { maxWait: '50min' }))
      await claim(t.sluice.db, worker, ['smooth'], 5)
      await t.clock.advance('58s')
      await claim(t.sluice.db, worker, ['smooth'], 5)
      expect((await states(ids)).at(-1)).toBe('waiting')
      if (i > 0) break
      await endTakes(t.sluice.db, [grant], ['smooth'], [1])
      await t.drain()
      await t.clock.advance('3h')
    }
    await t.clock.advance('4s')
    await claim(t.sluice.db, worker, ['smooth'], 5)
    expect(await states(ids)).toEqual(['done', 'expired'])
  })

  test('a job whose vendor demands silence until after its deadline fails, and one with a later deadline waits', async () => {
    await smooth.send({})
    await t.drain()
    await t.clock.advance('3d')
    await t.drain()
    await t.sluice.takes.observe(smoothLimit, refusal(3_600))
    const ids = [await smooth.send({}, { maxWait: '59min' }), await smooth.send({}, { maxWait: '61min' })]
    await t.drain()
    expect(await states(ids)).toEqual(['expired', 'waiting'])
  })
})
