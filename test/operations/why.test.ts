/** What `why` reports, against what then happens, on a store whose clock only the test moves. */
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import type { Why } from '../../src/operations/why.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { remoteTask } from '../../src/tasks/remote.ts'
import { task } from '../../src/tasks/task.ts'
import { changeWorkers, claim, claimAll, engines, enter, finish } from '../claim/engine.ts'
import { isLong } from '../long.ts'
import { addBucket, refuse } from '../limits/engine.ts'

const input = z.object({ account: z.string() })
const startMs = Date.parse('2026-03-02T09:59:40Z')

/** Definitions with one rule, and with several. */
const numbers: LimitOptions[] = [
  { rate: '10/s', burst: 5 },
  { rate: '100/min' },
  { window: '6/2s' },
  { window: ['5/s', '40/min'] },
  { rate: '20/s', window: '30/10s' },
  { quota: '7/min' },
]

const anyWorld = fc.record({
  numbers: fc.constantFrom(...numbers),
  sent: fc.array(fc.record({ account: fc.constantFrom('a', 'b', 'c'), n: fc.integer({ min: 1, max: 12 }) }), {
    minLength: 1,
    maxLength: 3,
  }),
  isShared: fc.boolean(),
  laterMs: fc.integer({ min: 0, max: 3_000 }),
})

const [onServer] = engines

describe('why', () => {
  let t: TestSluice
  let runs = 0
  beforeAll(
    async () => void (t = await testSluice({ tasks: [], store: await onServer.store(), start: new Date(startMs) })),
  )
  afterAll(() => t.close())
  const now = async () => (await t.clock.now()).getTime()

  it('names a time that no job starts before, and another one that is about right', async () => {
    let waited = 0
    const world = async ({
      numbers: of,
      sent,
      isShared,
      laterMs,
    }: typeof anyWorld extends fc.Arbitrary<infer W> ? W : never) => {
      const name = `limit${++runs}`
      const one = isShared ? limit(name, of as never) : limit(name, { ...of, by: 'account' } as never)
      const call = task(`task${runs}`, { input, limits: [one as never], fair: 'account', run: () => {} })
      await enter(t.sluice.db, [call.name])
      const ids: string[] = []
      for (const { account, n } of sent)
        for (let i = 0; i < n; i++) ids.push(await t.sluice.send(call as never, { account } as never))
      const run = async () => {
        while ((await t.sluice.dispatchOnce([call])) > 0);
      }
      await run()
      await t.clock.advance(laterMs)
      const asked = await now()
      const said = new Map<string, Why>()
      for (const id of ids) {
        const why = await t.sluice.why(id)
        if (why !== undefined) said.set(id, why)
      }
      while (said.size > 0) {
        await run()
        const at = await now()
        const rows = await t.sluice.db.query<{ id: string }>('select id from sluice.job order by seq')
        const left = new Set(rows.map(({ id }) => id))
        for (const [id, { notBefore, about }] of said) {
          if (left.has(id)) continue
          said.delete(id)
          if (at === asked || about === undefined) continue
          waited++
          expect(notBefore?.getTime() ?? 0, `${name}: ${JSON.stringify(of)}`).toBeLessThanOrEqual(at)
          const [real, guess] = [at - asked, about.getTime() - asked]
          // A unit more or less may be a period of the quota.
          const slack = 'quota' in of ? 62_000 : 2_000
          expect(real).toBeLessThanOrEqual(2 * guess + slack)
          expect(guess).toBeLessThanOrEqual(2 * real + slack)
        }
        // Not by what `why` reports, which is tested here.
        const [due] = await t.sluice.db.query<{ ms: number | null }>(
          'select (min(due) / 1000)::float8 as ms from sluice.list where due > $1',
          [at * 1_000],
        )
        if (said.size > 0) await t.clock.set(new Date(Math.min(at + 2_000, Math.max(at + 100, due?.ms ?? 0))))
      }
    }
    await fc.assert(fc.asyncProperty(anyWorld, world), { numRuns: isLong ? 200 : 6, endOnFailure: true })
    expect(waited).toBeGreaterThan(isLong ? 5 : 0)
  })

  it('says, as all views do, that a due job waits, before a claim has seen that it is due', async () => {
    const call = task('due-later', { input, run: () => {} })
    const id = await t.sluice.send(call, { account: 'a' }, { delay: '1h' })
    const views = async () => {
      const { sluice } = t
      const [of, { waiting, scheduled }] = [await sluice.jobs.get(id), await sluice.jobs.status()]
      const listed = await Promise.all(
        (['waiting', 'scheduled'] as const).map(
          async (state) => (await sluice.list({ task: call.name, state })).length,
        ),
      )
      const { state, reasons } = (await sluice.why(id)) ?? {}
      const kinds = reasons?.map(({ kind }) => kind)
      return { of: [of?.state, of?.reason, of?.dueAt === null], listed, why: [state, kinds], waiting, scheduled }
    }
    const before = await views()
    expect(before).toMatchObject({
      of: ['scheduled', 'delay', false],
      listed: [0, 1],
      why: ['scheduled', ['no-worker', 'delay']],
    })
    await t.clock.advance('1h')
    expect(await views()).toEqual({
      of: ['waiting', null, true],
      listed: [1, 0],
      why: ['waiting', ['no-worker']],
      waiting: before.waiting + 1,
      scheduled: before.scheduled - 1,
    })
    expect(await t.sluice.jobs.cancelMany({ task: call.name, state: 'waiting' })).toBe(1)
  })

  it('names units that are kept for a job that has waited longer', async () => {
    const units = limit('kept', { window: '5/min', cost: ({ account }: { account: string }) => account.length })
    const [large, small] = ['large', 'small'].map((name) => task(name, { input, limits: [units], run: () => {} }))
    const run = async (of: typeof large, account: string) => {
      const id = await t.sluice.send(of as never, { account } as never)
      while ((await t.sluice.dispatchOnce([large, small] as never)) > 0);
      return t.sluice.why(id)
    }
    expect(await run(large, 'four')).toBeUndefined()
    await run(large, 'abc')
    const found = (await run(small, 'a'))?.reasons.find(({ limit: of }) => of === 'kept')
    expect(found?.text).toContain('has 1 free, 3 kept for jobs that have waited longer')
    await t.clock.advance(120_000)
    while ((await t.sluice.dispatchOnce([large, small] as never)) > 0);
  })

  it('counts retries that wait as jobs of their own key', async () => {
    const { db } = t.sluice
    const call = task('again', { input, limits: [limit('again', { window: '1/min' })], fair: 'account', run: () => {} })
    const worker = await enter(db, ['again'])
    const send = (account: string) => t.sluice.send(call as never, { account } as never)
    const claims = async () => {
      for (const _ of ['promote', 'read', 'block']) await claim(db, worker, ['again'], 9)
    }
    await send('a')
    const jobs = await claimAll(db, worker, ['again'], 9)
    await finish(
      db,
      jobs.map((job) => ({ job, outcome: 'retry', delayUs: 1_000 })),
    )
    await t.clock.advance(1_000)
    await claims()
    const [second] = [await send('a'), await send('b')]
    await claims()
    const found = await t.sluice.why(second)
    expect(found?.reasons.map(({ text }) => text)).toEqual([
      'again (1/min) is used up, about 1 of other keys in between',
      'ahead of it: 1 job for again:a of higher priority, longer waiting or tried before, and one job of each of 1 other key',
    ])
  })

  it('estimates that a job behind a vendor’s refusal starts when that ends, though an accepted request may end it sooner', async () => {
    const call = task('refused', {
      input,
      limits: [limit('refused', { rate: '600/min', by: 'account' })],
      run: () => {},
    })
    await enter(t.sluice.db, ['refused'])
    const refused = async (account: string, cause: string) => {
      const id = await t.sluice.send(call as never, { account } as never)
      await addBucket(t.sluice.db, 'refused', account)
      await refuse(t.sluice.db, [`refused:${account}`], { waitUs: 60_000_000, text: '500 from crm', cause })
      return await t.sluice.why(id)
    }
    const now = (await t.clock.now()).getTime()
    const down = await refused('a b', 'down')
    expect(down?.reasons[0]).toMatchObject({ kind: 'held', text: expect.stringContaining('is down') })
    expect(down?.about?.getTime()).toBeGreaterThanOrEqual(now + 59_000)
    const rejected = await refused('c d', 'credential')
    const todo = "correct the credential, then `sluice limits reset refused --key 'c d'`"
    expect(rejected?.reasons[0]).toMatchObject({ acts: 'operator', todo })
  })

  it('names who has to act: an operator, a worker, or nobody', async () => {
    const call = task('acted', { input, limits: [limit('acted', { rate: '1/h', by: 'account' })], run: () => {} })
    const id = await t.sluice.send(call as never, { account: 'a b' } as never)
    const second = await t.sluice.send(call as never, { account: 'a b' } as never)
    expect((await t.sluice.why(id))?.reasons[0]).toMatchObject({ kind: 'no-worker', acts: 'worker' })
    await t.sluice.pause({ limit: 'acted', key: 'a b' }, { reason: 'audit' })
    await enter(t.sluice.db, ['acted'])
    expect(await t.sluice.why(id)).toMatchObject({
      notBefore: undefined,
      about: undefined,
      reasons: [{ kind: 'paused', acts: 'operator', todo: "`sluice resume --limit acted --key 'a b'`" }],
    })
    await t.sluice.resume({ limit: 'acted', key: 'a b' })
    await changeWorkers(t.sluice.db, { slots: 0 })
    expect((await t.sluice.why(id))?.reasons[0]).toMatchObject({
      kind: 'no-worker',
      acts: 'worker',
      text: expect.stringContaining('no worker that could run it has a slot now'),
      todo: '`sluice status` shows the reason, for a fleet with AMQP_URL',
    })
    await changeWorkers(t.sluice.db, { slots: 1 })
    const why = await t.sluice.why(second)
    expect(why?.reasons[0]).toMatchObject({ kind: 'limit', acts: 'time' })
    expect(why?.reasons[0]?.text).toContain('acted (1/h for a b)')
  })

  it('leads to doctor for a job that Celery workers execute', async () => {
    const far = remoteTask('far', { input, queue: 'far', slots: 2 })
    const id = await t.sluice.send(far, { account: 'a' })
    await enter(t.sluice.db, ['far'])
    const todo = '`sluice doctor` with AMQP_URL shows why its Celery workers get nothing'
    await changeWorkers(t.sluice.db, { slots: 1 })
    const slots = { kind: 'slots', todo: `if it goes on waiting, ${todo}` }
    expect((await t.sluice.why(id))?.reasons).toMatchObject([slots])
    await changeWorkers(t.sluice.db, { slots: 0 })
    expect((await t.sluice.why(id))?.reasons).toMatchObject([{ kind: 'no-worker', todo }])
  })
})
