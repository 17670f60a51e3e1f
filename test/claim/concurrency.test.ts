/** Places of concurrency rules: a claim takes them, and the end of an attempt frees them, however it ends. */
import pg from 'pg'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Queryable } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { placementOf } from '../../src/tasks/placement.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'
import {
  blocked,
  changeWorkers,
  claim,
  claimAll,
  type Claimed,
  done,
  emptied,
  engines,
  enter,
  finish,
  mainEngines,
  quietTask,
} from './engine.ts'
import { further } from '../takes/engine.ts'
import { rescue, suspect, watchWorkers } from '../fleet/engine.ts'
import { idleWorkers } from '../store/engine.ts'

const two = quietTask('two', [
  limit('seats', { concurrency: 2, by: (input: { tenant?: string | undefined }) => input.tenant ?? '' }),
])
const rows = (n: number, tenant = 'a') => copies(n, { tenant })

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    const more = async (want = 10) => claimAll(at.db, at.worker, ['two'], want)

    it('a key has its number of places, and each end of an attempt frees one', async () => {
      await at.sluice.sendMany(two, [...rows(5), ...rows(1, 'b')])
      const first = await more()
      expect(first).toHaveLength(3)
      expect(await more()).toEqual([])
      const mine = first.filter(({ input }) => (input as { tenant: string }).tenant === 'a')
      await done(at.db, mine.slice(0, 1))
      expect(await more()).toHaveLength(1)
      expect(await more()).toEqual([])
    })

    it.each(['done', 'failed', 'retry', 'return', 'unused', 'interrupt'])(
      'an attempt that ends as %s frees one place, once',
      async (outcome) => {
        await at.sluice.sendMany(two, rows(6))
        const [one, other] = (await more()) as [Claimed, Claimed]
        const ending = { job: one, outcome, delayUs: 3_600_000_000 }
        await finish(at.db, [ending])
        await finish(at.db, [ending])
        const next = await more()
        expect(next).toHaveLength(1)
        await done(at.db, [other, ...next])
        expect(await more()).toHaveLength(2)
      },
    )

    it.each(['return', 'unused', 'denied', 'interrupt', 'lost', 'shutdown'])(
      'a job that goes back as %s is not passed by the next one of its key',
      async (how) => {
        const one = quietTask('one', [
          limit('seat', { concurrency: 1, by: (input: { tenant?: string | undefined }) => input.tenant ?? '' }),
        ])
        await at.sluice.sendMany(one, rows(3))
        const [first] = (await claimAll(at.db, at.worker, ['one'], 1)) as [Claimed]
        if (how === 'lost' || how === 'shutdown') {
          await rescue(at.db, at.worker, how)
          at.worker = await enter(at.db)
        } else await finish(at.db, [{ job: first, outcome: how }])
        const { jobs } = await claim(at.db, at.worker, ['one'], 1)
        expect(jobs.map(({ id }) => id)).toEqual([first.id])
      },
    )

    it('a job that waits elsewhere from now on is not passed by the next one there', async () => {
      const seat = limit('seat', { concurrency: 1, by: (input: { tenant?: string | undefined }) => input.tenant ?? '' })
      const before = quietTask('one', [seat])
      const since = quietTask('one', [seat, limit('more', { concurrency: 5 })])
      await at.sluice.sendMany(before, rows(1))
      const [first] = (await claimAll(at.db, at.worker, ['one'], 1)) as [Claimed]
      await at.sluice.sendMany(since, rows(1))
      const place = placementOf(since, { tenant: 'a' }, 'default', 0, ['seat:a', 'more'])
      await finish(at.db, [{ job: first, outcome: 'readmit', place }])
      const { jobs } = await claim(at.db, at.worker, ['one'], 1)
      expect(jobs.map(({ id }) => id)).toEqual([first.id])
    })

    it('a lost worker and a cancelled running job free their places, too', async () => {
      await at.sluice.sendMany(two, rows(6))
      const [one] = (await more()) as [Claimed]
      expect(await at.sluice.jobs.cancel(one.id)).toBe(true)
      expect(await more()).toHaveLength(1)
      const waiting = await at.sluice.list({ state: 'waiting' })
      await at.sluice.jobs.cancel(waiting[0]?.id ?? '')
      expect(await more()).toEqual([])
      await rescue(at.db, at.worker)
      at.worker = await enter(at.db)
      expect(await more()).toHaveLength(2)
      expect(await more()).toEqual([])
    })

    it('a further request of a running job takes no second place', async () => {
      await at.sluice.sendMany(two, rows(2))
      const [one] = (await more()) as [Claimed]
      const answer = await further(at.db, one, ['seats:a'])
      expect(answer).toEqual({ granted: true, lost: false })
    })

    it('a concurrency rule beside a rate and a window: each of them blocks jobs on its own', async () => {
      const all = quietTask('two', [limit('all', { rate: '1000/s', window: '5/h', concurrency: 3 })])
      await at.sluice.sendMany(all, rows(20))
      const first = await more()
      expect(first).toHaveLength(3)
      await done(at.db, first)
      const second = await more()
      expect(second).toHaveLength(2)
      await done(at.db, second)
      expect(await more()).toEqual([])
      const [waiting] = await at.sluice.list({ state: 'waiting' })
      const why = await at.sluice.why(waiting?.id ?? '')
      expect(why?.reasons.map(({ kind }) => kind)).toContain('limit')
      expect(why?.notBefore?.getTime()).toBeGreaterThan(Date.now() + 1_800_000)
    })

    it('the explanation of a waiting job names the place that it waits for', async () => {
      await at.sluice.sendMany(two, rows(3))
      await more()
      const [waiting] = await at.sluice.list({ state: 'waiting' })
      const why = await at.sluice.why(waiting?.id ?? '')
      expect(why?.notBefore).toBeUndefined()
      expect(why?.reasons.find(({ kind }) => kind === 'concurrency')).toMatchObject({
        limit: 'seats',
        key: 'a',
        text: 'all 2 places of seats (2 at once for a) are taken; the job can start when one of those jobs ends',
      })
    })

    it('a new definition counts the jobs that run already, and a higher one lets more run at once', async () => {
      const before = quietTask('late', [limit('late', { rate: '1000/s' })])
      const counted = (places: number) => quietTask('late', [limit('late', { concurrency: places })])
      await at.sluice.sendMany(before, rows(6))
      const running = await claimAll(at.db, at.worker, ['late'], 2)
      expect(running).toHaveLength(2)
      const inNew = async (places: number) => {
        const sluice = await other()
        await sluice.define([counted(places)])
        return sluice
      }
      const other = async () => (engine.name === 'PGlite' ? at.sluice : Sluice.open({ store: at.sluice.url ?? '' }))
      if (engine.name === 'PGlite') return
      const second = await inNew(3)
      expect(await claimAll(at.db, at.worker, ['late'], 5)).toHaveLength(1)
      await second.close()
      await at.db.query(`update sluice.limit_source set seen_at = '-infinity'`) // as if 15 s had passed
      const third = await inNew(4)
      expect(await claimAll(at.db, at.worker, ['late'], 5)).toHaveLength(1)
      await done(at.db, running)
      expect(await claimAll(at.db, at.worker, ['late'], 5)).toHaveLength(2)
      await third.close()
    })
  })
}

describe('workers', () => {
  const at = emptied(engines[0])

  it('are notified of a free place one at a time: one idle worker, by its id', async () => {
    const idle = await Promise.all([enter(at.db), enter(at.db)])
    await changeWorkers(at.db, { tasks: ['two'] })
    await at.sluice.sendMany(two, rows(4))
    const jobs = await claimAll(at.db, at.worker, ['two'], 2)
    for (const worker of idle)
      await until(async () => !(await claim(at.db, worker, ['two'], 1, undefined, { idle: true })).again, 'it sleeps')
    expect(await idleWorkers(at.db)).toHaveLength(2)
    const heard: string[] = []
    const listener = new pg.Client(at.sluice.url)
    await listener.connect()
    listener.on('notification', ({ payload }) => heard.push(payload ?? ''))
    await listener.query('listen "sluice.wake"')
    await done(at.db, jobs.slice(0, 1))
    await until(() => heard.length > 0, 'one is called')
    expect(idle.map((worker) => `@${worker}`)).toContain(heard[0])
    expect(await idleWorkers(at.db)).toHaveLength(1)
    await done(at.db, jobs.slice(1))
    await until(() => heard.length > 1, 'the other is called')
    expect(heard.toSorted()).toEqual(idle.map((worker) => `@${worker}`).toSorted())
    await listener.end()
  })

  it('of several tasks that share a place get one notification in all', async () => {
    const shared = limit('shared', { concurrency: 1 })
    const tasks = ['one', 'other', 'third'].map((name) => quietTask(name, [shared]))
    const idle = await Promise.all(tasks.map(() => enter(at.db)))
    await changeWorkers(at.db, { tasks: ['one', 'other', 'third'] })
    for (const each of tasks) await at.sluice.sendMany(each, rows(2))
    const names = tasks.map(({ name }) => name)
    const jobs = await claimAll(at.db, at.worker, names, 1)
    for (const worker of idle)
      await until(async () => !(await claim(at.db, worker, names, 1, undefined, { idle: true })).again, 'it sleeps')
    expect(await idleWorkers(at.db)).toHaveLength(3)
    await done(at.db, jobs)
    expect(await idleWorkers(at.db)).toHaveLength(2)
  })

  it('get a definition that begins to count places only after attempts that are just ending, which it does not count', async () => {
    const uncounted = quietTask('ending', [limit('ending', { rate: '1000/s' })])
    await at.sluice.sendMany(uncounted, rows(4))
    const jobs = await claimAll(at.db, at.worker, ['ending'], 2)
    const finisher = new pg.Client(at.sluice.url)
    const second = await Sluice.open({ store: at.sluice.url ?? '' })
    try {
      await finisher.connect()
      await finisher.query('begin')
      const query = async (sql: string, params?: readonly unknown[]) =>
        (await finisher.query(sql, params as unknown[])).rows
      await done({ query } as Queryable, jobs)
      const defined = later(second.define([quietTask('ending', [limit('ending', { concurrency: 2 })])]))
      await until(async () => (await blocked(at.db)) > 0, 'it waits for the finish')
      await finisher.query('commit')
      await defined
      expect(await claimAll(at.db, at.worker, ['ending'], 4)).toHaveLength(2)
    } finally {
      await Promise.all([finisher.end(), second.close()])
    }
  })

  it.each(['unused', 'readmit'])(
    'that claim while a job goes back to its key, %s, wait for it, and do not take the next one',
    async (outcome) => {
      const one = quietTask('seat', [limit('seat', { concurrency: 1 })])
      await at.sluice.sendMany(one, rows(1), outcome === 'readmit' ? { queue: 'elsewhere' } : {})
      const [first] = (await claimAll(at.db, at.worker, ['seat'], 1)) as [Claimed]
      await at.sluice.sendMany(one, rows(2))
      const place = placementOf(one, {}, 'default', 0, ['seat'])
      const finisher = new pg.Client(at.sluice.url)
      onTestFinished(() => finisher.end())
      await finisher.connect()
      await finisher.query('begin')
      const query = async (sql: string, params?: readonly unknown[]) =>
        (await finisher.query(sql, params as unknown[])).rows
      await finish({ query } as Queryable, [{ job: first, outcome, ...(outcome === 'readmit' ? { place } : {}) }])
      await at.sluice.sendMany(one, rows(1))
      const claimed = later(claim(at.db, at.worker, ['seat'], 1))
      await until(async () => (await blocked(at.db)) > 0, 'it waits for the finish')
      await finisher.query('commit')
      expect((await claimed).jobs.map(({ id }) => id)).toEqual([first.id])
    },
  )

  it('that are lost are rescued one per transaction', async () => {
    const lost = [await enter(at.db), await enter(at.db)]
    await suspect(at.db, lost)
    const given: string[] = []
    for (let looks = 0; looks < 3; looks++) {
      const ids = await watchWorkers(at.db)
      expect(ids.length).toBe(looks < 2 ? 1 : 0)
      given.push(...ids)
    }
    expect(given.toSorted()).toEqual(lost.toSorted())
  })

  it('run all jobs of a narrow limit, never two at once, without waiting for their next poll', async () => {
    let now = 0
    let most = 0
    const narrow = quietTask('narrow', [limit('narrow', { concurrency: 1 })])
    const work = {
      ...narrow,
      run: async () => {
        most = Math.max(most, ++now)
        await new Promise((resolve) => setImmediate(resolve))
        now--
      },
    } as typeof narrow
    const workers = await Promise.all([
      at.sluice.work([work], { concurrency: 4 }),
      at.sluice.work([work], { concurrency: 4 }),
    ])
    const began = performance.now()
    await at.sluice.sendMany(narrow, rows(60))
    await later(until(async () => (await at.sluice.jobs.status()).done === 60, 'all done'))
    // With polls alone each job would take 1.1 to 1.9 s.
    expect((performance.now() - began) / 60).toBeLessThan(1_000)
    expect(most).toBe(1)
    await Promise.all(workers.map((worker) => worker.stop()))
  })
})
