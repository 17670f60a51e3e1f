/** The workers that new jobs notify: a few idle ones that can begin them, each of which notifies another when there may be more. */
import { describe, expect, it } from 'vitest'
import { Claims } from '../../src/claim/claim.ts'
import { systemClock } from '../../src/core/clock.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { newId } from '../../src/core/hash.ts'
import { defineGate } from '../../src/gates/gates.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import {
  changeWorkers,
  claim,
  claimAll,
  count,
  done,
  emptied,
  enter,
  mainEngines,
  quietTask,
  settle,
} from '../claim/engine.ts'
import { forgetIdle, idleWorkers } from './engine.ts'

describe.each(mainEngines)('on $name', (engine) => {
  const at = emptied(engine)
  const [mine, other] = [quietTask('mine'), quietTask('other')]

  /** Lets `count` workers of a task become idle. */
  async function asleep(name: string, count: number): Promise<string[]> {
    const ids = await Promise.all(Array.from({ length: count }, () => enter(at.db, [name])))
    for (const id of ids) await claim(at.db, id, [name], 5, newId(), { idle: true })
    return ids
  }
  /** The notifications during an act, which gets those that have arrived. */
  async function told(act: (all: readonly string[]) => Promise<unknown>): Promise<string[]> {
    const all: string[] = []
    const stop = await at.db.listen('sluice.wake', (payload) => void all.push(payload))
    await until(() => at.db.listening(), 'it listens')
    // Earlier notifications arrive before this mark.
    const mark = async (payload: string) => {
      await at.db.query(`select pg_notify('sluice.wake', $1)`, [payload])
      await until(() => all.includes(payload), 'all is heard')
    }
    await mark('begin')
    await act(all)
    await mark('end')
    await stop()
    return all.slice(all.indexOf('begin') + 1, -1)
  }
  /** The task is known to the store, and none of its jobs are left. */
  async function known(): Promise<void> {
    for (const task of [mine, other]) {
      await at.sluice.send(task, {})
      await claim(at.db, at.worker, [task.name], 5)
    }
  }

  it('a job notifies two of ten workers that have its task, and no other', async () => {
    await known()
    const ids = await asleep('mine', 10)
    await asleep('other', 3)
    const called = await told(() => at.sluice.send(mine, {}))
    expect(new Set(called).size).toBe(2)
    expect(ids.map((id) => `@${id}`)).toEqual(expect.arrayContaining(called))
    // They are still on the list, because a sender waits for no worker.
    expect(await idleWorkers(at.db)).toHaveLength(13)
  })

  it('a worker that a claim wakes for what is left is notified of a job that is sent meanwhile, too', async () => {
    await known()
    const [next = ''] = await asleep('mine', 1)
    await at.sluice.sendMany(mine, [{}, {}])
    expect(await told(() => claim(at.db, at.worker, ['mine'], 1))).toEqual([`@${next}`])
    // It may have looked already, and found less than will be there.
    expect(await told(() => at.sluice.send(mine, {}))).toEqual([`@${next}`])
  })

  it('a worker that claimed all it wanted ahead of time is not notified, and one that got less is', async () => {
    await known()
    // So slow that some may only begin later, even if the looks are 50 ms apart.
    const fast = quietTask('fast', [limit('fast', { rate: '50/s' })])
    await at.sluice.sendMany(fast, copies(1_000))
    const [full, free, roomy] = [await enter(at.db), await enter(at.db), await enter(at.db)]
    // Until the burst is used up, and some of those that it wants may begin later.
    await until(async () => {
      const { jobs, laterUs } = await claim(at.db, full, ['fast', 'mine'], 5, newId(), { idle: true, ahead: 5 })
      return jobs.length === 5 && (laterUs.at(-1) ?? 0) > 0
    }, 'it gets all it wants ahead of time')
    await claim(at.db, free, ['fast', 'mine'], 100, newId(), { idle: true, ahead: 100 })
    expect(await told(() => at.sluice.send(mine, {}))).toEqual([`@${free}`])
    await forgetIdle(at.db)
    // What may begin later waits beside the slots, so those are free.
    await until(async () => {
      const { jobs, laterUs } = await claim(at.db, roomy, ['fast', 'mine'], 5, newId(), { idle: true, ahead: 100 })
      return jobs.length >= 5 && (laterUs.at(-1) ?? 0) > 0
    }, 'it gets more than it has slots for')
    expect(await told(() => at.sluice.send(mine, {}))).toEqual([`@${roomy}`])
  })

  it('a job with an id notifies as many workers as one without, once for all tries, and a scheduled one notifies all', async () => {
    await known()
    await asleep('mine', 10)
    const id = newId()
    expect(new Set(await told(() => at.sluice.send(mine, {}, { id }))).size).toBe(2)
    expect(await told(() => at.sluice.send(mine, {}, { id }))).toEqual([])
    expect(await told(() => at.sluice.send(mine, {}, { delay: '1h' }))).toEqual(['default'])
  })

  it('jobs of two tasks that are sent together notify all, because a few could all have one of the tasks', async () => {
    await known()
    await asleep('mine', 10)
    await asleep('other', 1)
    const rows = [mine, other].map((task) => ({ task, options: { id: newId() } }))
    const called = await told(() => Promise.all(rows.map(({ task, options }) => at.sluice.send(task, {}, options))))
    expect(called).toContain('default')
  })

  it('a job notifies no worker that had no free place for its task when it became idle', async () => {
    await known()
    const id = await enter(at.db, ['mine', 'other'])
    await claim(at.db, id, ['other'], 5, newId(), { idle: true })
    expect(await told(() => at.sluice.send(mine, {}))).toEqual([])
    expect(await told(() => at.sluice.send(other, {}))).toEqual([`@${id}`])
  })

  it('a worker that got as many jobs as it wanted notifies another, until there are no more', async () => {
    await known()
    const ids = await asleep('mine', 4)
    await at.sluice.sendMany(mine, [{}, {}, {}])
    const calls: string[][] = []
    for (const id of ids.slice(0, 2))
      calls.push(await told(() => claim(at.db, id, ['mine'], 1, newId(), { idle: true })))
    calls.push(await told(() => claim(at.db, ids[2] ?? '', ['mine'], 2, newId(), { idle: true })))
    expect(calls.map((called) => called.length)).toEqual([1, 1, 0])
    expect(calls[0]).not.toEqual([`@${ids[0]}`])
  })

  it('the process of a claim that got all it wanted notifies another worker by itself', async () => {
    await known()
    const [next = ''] = await asleep('mine', 1)
    await at.sluice.sendMany(mine, [{}, {}])
    const who = { worker: at.worker, queues: undefined, tasks: ['mine'] }
    await told(async (all) => {
      await new Claims(storeOn(at.db)).claim(who, 1, { idle: true, ahead: 0 }, AbortSignal.timeout(60_000))
      await until(() => all.includes(`@${next}`), 'the other worker is notified')
    })
  })

  it('jobs that were claimed do not wait until the classes of others are made', async () => {
    await known()
    await at.sluice.send(mine, {})
    await at.sluice.send(quietTask('announced'), {})
    const store = storeOn(at.db)
    const call = store.call.bind(store) as (...given: unknown[]) => Promise<never>
    let calls = 0
    // What follows the claim is never answered.
    store.call = (...given: unknown[]) => (++calls === 1 ? call(...given) : new Promise<never>(() => {}))
    const who = { worker: at.worker, queues: undefined, tasks: ['mine'] }
    const mode = { idle: false, ahead: 0 }
    const { jobs } = await new Claims(store).claim(who, 1, mode, AbortSignal.timeout(60_000))
    expect(jobs).toHaveLength(1)
    expect(calls).toBe(2)
  })

  it('a claim that is repeated after classes were made goes by the time of its repetition', async () => {
    await known()
    await at.sluice.send(mine, {})
    let madeMs = 0
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + madeMs }
    const store = storeOn(at.db, { clock })
    const claims = new Claims(store)
    const who = { worker: at.worker, queues: undefined, tasks: ['mine'] }
    const next = () => claims.claim(who, 1, { idle: false, ahead: 0 }, AbortSignal.timeout(60_000))
    // Only then is the store's time known.
    await next()
    await at.sluice.send(quietTask('announced'), {})
    const call = store.call.bind(store) as (...given: unknown[]) => Promise<never>
    const caps: number[] = []
    store.call = (...given: unknown[]) => {
      const params = (given[1] ?? []) as unknown[]
      if (params.length === 0) madeMs = 5_000
      else caps.push(Number(params[4]))
      return call(...given)
    }
    await next()
    expect(caps).toHaveLength(2)
    expect((caps[1] ?? 0) - (caps[0] ?? 0)).toBeGreaterThan(5_000_000)
  })

  it('a claim that waits until jobs that are due have their lanes goes by the time when it is sent', async () => {
    await known()
    await at.sluice.send(mine, {})
    await at.sluice.send(mine, {}, { delay: 1 })
    await until(async () => (await count(at.db, 'sluice.job where due_at < sluice.now()')) === 1, 'it is due')
    let promotedMs = 0
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + promotedMs }
    const store = storeOn(at.db, { clock })
    const claims = new Claims(store)
    const who = { worker: at.worker, queues: undefined, tasks: ['mine'] }
    const next = () => claims.claim(who, 1, { idle: false, ahead: 0 }, AbortSignal.timeout(60_000))
    const call = store.call.bind(store) as (...given: unknown[]) => Promise<never>
    let capUs = 0
    store.call = async (...given: unknown[]) => {
      const params = (given[1] ?? []) as unknown[]
      if (params.length === 9) capUs = Number(params[4])
      const rows = await call(...given)
      // Those that are due get their lanes.
      if (params[1] === '-1') promotedMs = 5_000
      return rows
    }
    const [row] = await at.db.query<{ us: string }>('select sluice.now_us() as us')
    expect(await next()).toMatchObject({ jobs: [{ task: 'mine' }], again: true })
    await next()
    expect(capUs - Number(row?.us)).toBeGreaterThan(5_000_000)
  })

  it('a send in a transaction notifies all workers, because it cannot know which are idle at its commit', async () => {
    await known()
    await asleep('mine', 4)
    const called = await told(() => at.sluice.transaction((tx) => at.sluice.send(mine, {}, { tx })))
    expect(called).toEqual(['default'])
  })

  it('a job of a labelled limit notifies all workers, because only they know the room of their labels', async () => {
    const hosted = quietTask('hosted', [limit('ip', { rate: '60/h', burst: 1, by: label('host') })])
    await at.sluice.send(hosted, {})
    const ids = await asleep('hosted', 4)
    for (const id of ids) await changeWorkers(at.db, { labels: { host: id } }, [id])
    for (const id of ids) await claim(at.db, id, ['hosted'], 5, newId(), { idle: true })
    expect(await told(() => at.sluice.send(hosted, {}))).toEqual(['default'])
  })

  const cost = (input: { n?: number | undefined }) => input.n ?? 1

  it('units that are given back notify as many workers as jobs can begin by them', async () => {
    const long = quietTask('long', [limit('tokens', { window: '100/h', cost })] as never)
    await at.sluice.sendMany(long, [{ n: 60 }, { n: 60 }])
    const { jobs } = await claim(at.db, at.worker, ['long'], 1)
    await asleep('long', 4)
    expect(await idleWorkers(at.db)).toHaveLength(4)
    const used = () => Promise.all(jobs.map((job) => settle(at.db, job, 'tokens', 10, { units: 60 })))
    expect(await told(used)).toHaveLength(1)
  })

  it.each([0, 50])('a place that an attempt leaves notifies one worker, whatever its job cost: %i', async (n) => {
    const seated = quietTask('seated', [limit('seats', { concurrency: 1, window: '1000/h', cost })] as never)
    await at.sluice.sendMany(seated, [{ n }, { n }])
    const { jobs } = await claim(at.db, at.worker, ['seated'], 1)
    await asleep('seated', 4)
    expect(await idleWorkers(at.db)).toHaveLength(4)
    expect(await told(() => done(at.db, jobs))).toHaveLength(1)
  })

  const by = (input: { tenant?: string | undefined }) => input.tenant ?? ''
  const alone = quietTask('alone', [limit('alone', { concurrency: 1, by })])

  it('a job behind others that wait for a limit notifies nobody, unless it commits later; one of another key does', async () => {
    const slow = quietTask('slow', [limit('slow', { rate: '60/h', burst: 1, by })])
    const tenant = 'full'
    await at.sluice.sendMany(slow, [{ tenant }, { tenant }])
    expect((await claim(at.db, at.worker, ['slow'], 5)).jobs).toHaveLength(1)
    await asleep('slow', 4)
    expect(await told(() => at.sluice.send(slow, { tenant }))).toEqual([])
    expect(await told(() => at.sluice.send(slow, { tenant }, { id: newId() }))).toEqual([])
    expect(await told(() => at.sluice.sendMany(slow, copies(3, { tenant })))).toEqual([])
    expect(await told(() => at.sluice.transaction((tx) => at.sluice.send(slow, { tenant }, { tx })))).toEqual([
      'default',
    ])
    const mixed = [...copies(5, { tenant }), { tenant: 'other' }]
    expect(await told(() => at.sluice.sendMany(slow, mixed))).toHaveLength(2)
    expect(await told(() => at.sluice.send(slow, { tenant: 'free' }))).toHaveLength(2)
    expect(await told(() => at.sluice.send(slow, { tenant: 'new' }, { id: newId() }))).toHaveLength(2)
  })

  it.each([1, 2])(
    'a claim of the last jobs that waited for a limit is soon followed by another: %i lanes',
    async (lanes) => {
      const tenants = ['one', 'two'].slice(0, lanes)
      await at.sluice.sendMany(
        alone,
        [...tenants, ...tenants].map((tenant) => ({ tenant })),
      )
      const first = await claimAll(at.db, at.worker, ['alone'], 5)
      expect(first).toHaveLength(lanes)
      await done(at.db, first)
      const { jobs, again, wakeUs } = await claim(at.db, at.worker, ['alone'], 5, newId(), { idle: true })
      expect(jobs).toHaveLength(lanes)
      // A sender that has seen them wait notifies nobody.
      expect(again || (wakeUs ?? Infinity) <= 250_000).toBe(true)
    },
  )

  it('no worker is notified of a queue that is held back', async () => {
    await known()
    await asleep('mine', 3)
    await defineGate(sqlOn(at.db), 'paused', { queues: ['default'], reason: 'paused' })
    expect(await told(() => at.sluice.send(mine, {}))).toEqual([])
    expect(await told(() => at.sluice.send(other, {}))).toEqual([])
  })
})
