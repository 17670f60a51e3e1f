/** A task that was renamed: jobs sent under its former name run, with all that belongs to a job. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { task } from '../../src/tasks/task.ts'
import { testSluice, type TestSluice } from '../../src/testing/index.ts'
import { engines } from '../claim/engine.ts'

const input = z.object({ n: z.number() })
const few = limit('few', { window: '2/min' })
const before = task('sync', { input, limits: [few], onFailed: () => {}, run: () => {} })
const ran: string[] = []
const now = task('sync-contact', {
  input,
  formerly: ['sync', 'sync-v0'],
  limits: [few],
  retry: { attempts: 1 },
  onFailed: ({ task: of, input: { n } }) => void ran.push(`${of} ${n} failed`),
  run: ({ n }, { job }) => {
    if (n < 0) throw new Error('no')
    ran.push(`${n} in ${job.queue}`)
  },
})
const [onServer] = engines

describe('a renamed task', () => {
  let t: TestSluice
  beforeAll(async () => void (t = await testSluice({ tasks: [now], store: await onServer.store() })))
  afterAll(() => t.close())

  it('runs the jobs of its former names under the same limit, and those that fail reach onFailed', async () => {
    await t.sluice.send(before, { n: 1 })
    await t.sluice.send(before, { n: -1 })
    expect(await t.drain()).toBe(3)
    expect(ran.toSorted()).toEqual(['1 in default', 'sync -1 failed'])
    await now.send({ n: 2 })
    expect(await t.drain()).toBe(0)
    await t.clock.advance('2min')
    expect(await t.drain()).toBe(1)
    expect(ran.at(-1)).toBe('2 in default')
  })

  it('runs jobs that SQL sends under a former name, which the store knows as one', async () => {
    const [row] = await t.sluice.db.query<{ id: string }>(`select sluice.send('sync-v0', '{"n": 3}') as id`)
    await t.clock.advance('2min')
    expect(await t.drain()).toBe(1)
    expect(await t.sluice.jobs.get(row?.id ?? '')).toMatchObject({ state: 'done', task: 'sync-v0' })
    const known = await t.sluice.db.query(
      'select name, currently from sluice.task where currently is not null order by 1',
    )
    expect(known).toEqual([
      { name: 'sync', currently: 'sync-contact' },
      { name: 'sync-v0', currently: 'sync-contact' },
    ])
  })

  it('keeps its idempotency keys: what was sent under a former name is not sent again', async () => {
    const { db } = t.sluice
    const key = { idempotencyKey: 'once' }
    const id = await now.send({ n: 7 }, key)
    // As it was recorded before the task was renamed.
    await db.query(`update sluice.idempotency set task = 'sync'`)
    expect(await now.send({ n: 8 }, key)).toBe(id)
    expect(await t.sluice.send(before, { n: 8 }, key)).toBe(id)
    const [row] = await db.query<{ id: string }>(
      `select sluice.send('sync-v0', '{"n": 8}', '{"idempotency_key": "once"}') as id`,
    )
    expect(row?.id).toBe(id)
    await db.query(`delete from sluice.idempotency where task = 'sync-contact'`)
    await db.query(`update sluice.idempotency set task = 'sync-v0'`)
    expect(await now.send({ n: 9 }, { ...key, replace: true })).toBe(id)
    expect((await t.sluice.jobs.get(id))?.input).toEqual({ n: 9 })
    await t.clock.advance('2min')
    expect(await t.drain()).toBe(1)
    // A key is kept for a day from its first send, whatever the task is called since.
    await db.query(`delete from sluice.idempotency where task = 'sync-v0'`)
    await db.query(`update sluice.idempotency set task = 'sync'`)
    expect(await now.send({ n: 10 }, key)).toBe(id)
    await t.clock.advance('1d')
    const next = await now.send({ n: 10 }, key)
    expect(next).not.toBe(id)
    expect(await t.sluice.jobs.cancel(next)).toBe(true)
  })

  it('is refused beside a task that still has the name, and with a name that cannot be one', async () => {
    const bad = { code: 'SLUICE_BAD_TASK' }
    await expect(t.sluice.dispatchOnce([now, before])).rejects.toMatchObject(bad)
    expect(() => task('a', { input, formerly: ['a b'], run: () => {} })).toThrow(expect.objectContaining(bad))
  })
})
