import type { PGlite } from '@electric-sql/pglite'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { newId } from '../../src/core/hash.ts'
import { migrate } from '../../src/db/migrate.ts'
import type { Db, Tx } from '../../src/db/db.ts'
import { limit, type Sluice, type State, task } from '../../src/index.ts'
import { claimAll, done, empty, engines, enter, finish, mainEngines, openOn, quietTask } from '../claim/engine.ts'
import { ownPglite } from '../servers/pglite.ts'
import { jobsLeft } from '../store/engine.ts'

const quiet = quietTask('quiet')
const limited = task('limited', {
  input: z.object({ account: z.string() }),
  limits: [limit('few', { rate: '5/h', by: 'account' })],
  run: () => undefined,
})

for (const engine of mainEngines) {
  describe(`jobs on ${engine.name}`, () => {
    let sluice: Sluice
    beforeAll(async () => void (sluice = await openOn(engine)))
    beforeEach(() => empty(sluice.db))
    afterAll(() => sluice.close())

    it('a line of a list has exactly the fields that were read', async () => {
      const id = await sluice.send(quiet, { n: 1 })
      const [line] = await sluice.list()
      expect(Object.keys(line ?? {})).toEqual(
        'id state reason task queue priority attempt createdAt finishedAt tags error'.split(' '),
      )
      expect(await sluice.jobs.get(id)).toMatchObject({ ...line, failed: 0, limits: [], input: { n: 1 }, result: null })
    })

    it('status counts jobs that no claim has seen yet, and leaves cancelled ones out', async () => {
      const sent = await Promise.all([1, 2, 3].map((n) => sluice.send(quiet, { n })))
      await sluice.send(quiet, { n: 4 }, { delay: '1h' })
      const before = await sluice.jobs.status()
      expect(before).toMatchObject({ waiting: 3, scheduled: 1, running: 0, done: 0, failed: 0 })
      expect(before.oldestWaitingAt).toEqual((await sluice.jobs.get(sent[0] ?? ''))?.createdAt)
      expect(await sluice.dispatchOnce([quiet], { max: 1 })).toBe(1)
      await sluice.jobs.cancel(sent[1] ?? '')
      expect(await sluice.jobs.status()).toMatchObject({ waiting: 1, scheduled: 1, running: 0, done: 1 })
      await sluice.jobs.cancel(sent[2] ?? '')
      expect(await sluice.jobs.status()).toMatchObject({ waiting: 0, oldestWaitingAt: null })
    })

    it('status counts as running what has not ended, also of a claim with other jobs', async () => {
      await sluice.sendMany(quiet, [{ n: 1 }, { n: 2 }, { n: 3 }])
      const jobs = await claimAll(sluice.db, await enter(sluice.db), ['quiet'], 3)
      await finish(
        sluice.db,
        jobs.slice(1).map((job) => ({ job, outcome: 'done' })),
        [],
      )
      expect(await sluice.jobs.status()).toMatchObject({ waiting: 0, running: 1, done: 2 })
      await done(sluice.db, jobs.slice(0, 1))
      expect(await sluice.jobs.status()).toMatchObject({ running: 0, done: 3 })
    })

    it('status shows the oldest job of a task without workers while other tasks are busy', async () => {
      const [busy, idle] = [quietTask('busy'), quietTask('idle')]
      await Promise.all([sluice.send(busy, {}), sluice.send(busy, {}), sluice.send(idle, {})])
      await sluice.dispatchOnce([busy, idle])
      const waiting = await sluice.send(idle, {})
      await sluice.send(busy, {})
      await sluice.dispatchOnce([busy])
      const { createdAt } = (await sluice.jobs.get(waiting)) ?? {}
      expect(await sluice.jobs.status()).toMatchObject({ waiting: 1, oldestWaitingAt: createdAt })
    })

    it('why names the limits of a job that no claim has seen yet', async () => {
      const ids = await Promise.all(Array.from({ length: 7 }, () => sluice.send(limited, { account: 'a' })))
      const why = await sluice.why(ids[6] ?? '')
      expect(why?.reasons).toContainEqual(expect.objectContaining({ kind: 'limit', limit: 'few', key: 'a' }))
      expect((await sluice.why(await sluice.send(limited, { account: 'b' })))?.reasons.map(({ kind }) => kind)).toEqual(
        ['no-worker'],
      )
      await sluice.db.query(`update sluice.job set buckets = '{other:a}' where id = $1`, [ids[0]])
      expect((await sluice.why(ids[0] ?? ''))?.reasons.map(({ kind }) => kind)).toContain('undefined-limit')
    })

    it('a cancelled attempt is aborted and its slot is free, even if its handler ignores the abort', async () => {
      let told: unknown
      const deaf = task('deaf', {
        input: z.object({}),
        run: (_, { signal }) =>
          new Promise(() => signal.addEventListener('abort', () => (told = (signal.reason as { code: string }).code))),
      })
      const worker = await sluice.work([deaf], { concurrency: 1 })
      const id = await sluice.send(deaf, {})
      await expect.poll(() => worker.running).toBe(1)
      await sluice.jobs.cancel(id)
      await expect.poll(() => worker.running).toBe(0)
      await worker.stop()
      expect(told).toBe('SLUICE_CANCELLED')
      expect((await sluice.jobs.get(id))?.state satisfies State | undefined).toBe('cancelled')
    })

    it('sluice.transaction creates jobs at its commit, with keys and limits', async () => {
      const send = (tx: Tx) => sluice.send(limited, { account: 'a' }, { tx, idempotencyKey: 'k' })
      const rolledBack = sluice.transaction(async (tx) => {
        await send(tx)
        throw new Error('no')
      })
      await expect(rolledBack).rejects.toThrow('no')
      const id = await sluice.transaction(async (tx) => {
        await sluice.sendMany(quiet, [{ n: 1 }, { n: 2 }], { tx })
        return send(tx)
      })
      expect(await sluice.send(limited, { account: 'a' }, { idempotencyKey: 'k' })).toBe(id)
      expect(await jobsLeft(sluice.db)).toBe(3)
      expect(await claimAll(sluice.db, await enter(sluice.db), ['limited'], 5)).toMatchObject([{ id }])
    })

    it('invalid options are refused before anything is done', async () => {
      const bad = { code: 'SLUICE_BAD_OPTION' }
      for (const keep of [-1, NaN, Infinity, '7' as never, '36501d', null as never] as const)
        for (const options of [{ keepDone: keep }, { keepFailed: keep }])
          await expect(sluice.prune(options)).rejects.toMatchObject(bad)
      await expect(sluice.send(quiet, {}, { tags: 'red' as never })).rejects.toMatchObject(bad)
      await expect(sluice.send(quiet, {}, { at: new Date('2100-01-01') })).rejects.toMatchObject(bad)
      await expect(sluice.send(quiet, {}, { delay: '367d' })).rejects.toMatchObject(bad)
      await expect(sluice.dispatchOnce([quiet], { queues: [] })).rejects.toMatchObject(bad)
      await expect(sluice.work([])).rejects.toMatchObject({ code: 'SLUICE_NO_TASKS' })
      await expect(sluice.why('x')).rejects.toMatchObject({ code: 'SLUICE_BAD_ID' })
      const unawaited = Promise.resolve('x') as never
      await expect(sluice.why(unawaited)).rejects.toThrow('await the send')
    })
  })
}

it('send takes a transaction of PGlite itself', async () => {
  const pglite = await ownPglite()
  const tx = (on: Pick<PGlite, 'query' | 'exec'>): Tx => ({
    query: async (sql, params) => (await on.query(sql, [...(params ?? [])])).rows as never,
    script: async (sql) => void (await on.exec(sql)),
  })
  const transaction = (body: (t: Tx) => Promise<unknown>) => pglite.transaction((own) => body(tx(own)))
  await migrate({ ...tx(pglite), transaction } as unknown as Db)
  const sluice = await openOn(engines[0])
  const id = newId()
  await pglite.transaction((own) => sluice.send(limited, { account: 'a' }, { tx: own, id, idempotencyKey: 'k' }))
  expect((await pglite.query('select id, buckets from sluice.job')).rows).toEqual([{ id, buckets: ['few:a'] }])
  await sluice.close()
  await pglite.close()
})
