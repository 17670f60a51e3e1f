/** Grants ahead of time: one claim gets jobs for the next instants of a saturated limit, and nobody starves beside it. */
import { beforeEach, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { isLong } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { acquire, further, taker } from '../takes/asks.ts'
import { fn } from '../servers/fn.ts'
import { type Answer, claim, count, done, emptied, enter, finish, mainEngines, ownClock, quietTask } from './engine.ts'

const startMs = Date.UTC(2026, 10, 26)
const rows = (n: number) => Array.from({ length: n }, () => ({}))
const fast = limit('fast', { rate: '100/s' })

describe.each(mainEngines)('on $name', (engine) => {
  const at = emptied(engine)
  let clock: Awaited<ReturnType<typeof ownClock>>
  let nowMs: number
  beforeEach(async () => {
    await at.db.query('drop table if exists sluice.test_clock')
    clock = await ownClock(at.db, startMs)
    nowMs = startMs
  })

  const pass = async (ms: number) => clock.set((nowMs += ms))
  const ahead = (worker: string, tasks: string[], want = 10) =>
    claim(at.db, worker, tasks, want, newId(), { idle: true, ahead: true })
  const used = (answer: Answer) => answer.laterUs.map((us) => answer.nowUs + us)

  /** Takes what is free at once, so that the limit is saturated from now on. */
  async function saturate(tasks: string[]): Promise<void> {
    for (let i = 0; i < 100; i++) {
      const { jobs, laterUs, again } = await ahead(at.worker, tasks)
      await done(at.db, jobs)
      if (laterUs.some((us) => us > 0) || (jobs.length === 0 && !again)) return
    }
    throw new Error('the limit is never saturated')
  }

  /** Lets workers claim at their times for some seconds of the store's clock. Resolves to the jobs that each one got. */
  async function live(workers: { id: string; tasks: string[]; isAhead?: boolean; want?: number }[], seconds: number) {
    const all = workers.map((one) => ({ ...one, got: 0, claims: 0, atMs: nowMs }))
    const endMs = nowMs + seconds * 1000
    for (;;) {
      const next = all.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > endMs) return all
      await clock.set((nowMs = Math.max(nowMs, next.atMs)))
      const want = next.want ?? 10
      const mode = { idle: true, ahead: next.isAhead ?? true }
      const { jobs, again, wakeUs } = await claim(at.db, next.id, next.tasks, want, newId(), mode)
      await done(at.db, jobs)
      next.got += jobs.length
      next.claims += 1
      const isFull = jobs.length === want && wakeUs === undefined
      next.atMs = nowMs + (again || isFull ? 1 : Math.max(1, Math.ceil((wakeUs ?? 1e6) / 1000)))
    }
  }

  const worker = (tasks: string[]) => enter(at.db, tasks, {}, 10)
  const isProved = async () => expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })

  it('a claim gets jobs for the next instants at which the limit allows them, at most a tenth of a second ahead', async () => {
    const task = quietTask('a', [fast])
    await at.sluice.sendMany(task, rows(300))
    await saturate(['a'])
    await pass(100)
    const first = await ahead(at.worker, ['a'], 50)
    expect(first.jobs.length).toBeGreaterThan(3)
    expect(Math.max(...first.laterUs)).toBeLessThanOrEqual(100_000)
    const second = await ahead(at.worker, ['a'], 50)
    expect(second.jobs).toEqual([])
    await pass(80)
    const third = await ahead(at.worker, ['a'], 50)
    const all = [...used(first), ...used(third)]
    expect(third.jobs.length).toBeGreaterThan(2)
    expect(all).toEqual(all.toSorted((a, b) => a - b))
    // From the second on each waits for a unit to become free.
    const gaps = all.slice(2).map((us, i) => us - (all[i + 1] ?? 0))
    expect(Math.min(...gaps)).toBeGreaterThan(9_000)
    await isProved()
  })

  it('a claim that does not ask for it, or is for another kind of rule, gets only what may start now', async () => {
    const window = quietTask('w', [limit('window', { window: '60/min' })])
    const plain = quietTask('p', [fast])
    await at.sluice.sendMany(window, rows(100))
    await at.sluice.sendMany(plain, rows(100))
    for (const [name, isAhead] of [
      ['w', true],
      ['p', false],
    ] as const) {
      const answers: Answer[] = []
      for (let i = 0; i < 30; i++, await pass(7))
        answers.push(await claim(at.db, at.worker, [name], 50, newId(), { idle: true, ahead: isAhead }))
      expect(answers.flatMap(({ laterUs }) => laterUs).filter((us) => us > 0)).toEqual([])
      expect(answers.flatMap(({ jobs }) => jobs).length).toBeGreaterThan(10)
    }
  })

  it('units that were granted ahead and not used are not given back, so that no window holds more', async () => {
    const task = quietTask('a', [fast])
    await at.sluice.sendMany(task, rows(100))
    await saturate(['a'])
    await pass(100)
    const { jobs } = await ahead(at.worker, ['a'], 20)
    const before = await at.db.query('select max(n) as n from sluice.ledger')
    await finish(
      at.db,
      jobs.map((job) => ({ job, outcome: 'unused' })),
    )
    expect(await at.db.query('select max(n) as n from sluice.ledger')).toEqual(before)
    expect((await ahead(at.worker, ['a'], 20)).jobs).toEqual([])
    await isProved()
  })

  it.each([
    { what: 'a taker in the line', ask: (id: string) => taker(at.db, id) },
    { what: 'a taker that does not wait', ask: (id: string) => () => acquire(at.db, id) },
  ])('$what gets units beside workers that claim ahead', async ({ ask }) => {
    const task = quietTask('a', [fast])
    await at.sluice.sendMany(task, rows(1_000))
    await saturate(['a'])
    const workers = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    let [granted, ran, take] = [0, 0, ask('fast')]
    for (let i = 0; i < 150; i++) {
      for (const one of await live(workers, 0.02)) ran += one.got
      for (let tries = 0; tries < 3; tries++, await pass(3)) {
        if (!(await take()).granted) continue
        granted += 1
        take = ask('fast')
      }
    }
    expect(granted).toBeGreaterThan(20)
    expect(ran).toBeGreaterThan(20)
    await isProved()
  })

  it('a running job gets its further requests beside workers that claim ahead', async () => {
    const task = quietTask('a', [fast])
    await at.sluice.sendMany(task, rows(1_000))
    const {
      jobs: [running],
    } = await ahead(at.worker, ['a'], 1)
    await saturate(['a'])
    const workers = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    let granted = 0
    for (let i = 0; i < 150; i++) {
      await live(workers, 0.02)
      for (let tries = 0; tries < 3; tries++, await pass(3))
        if ((await further(at.db, running, ['fast']))?.granted === true) granted += 1
    }
    expect(granted).toBeGreaterThan(20)
    await isProved()
  })

  it.each([
    { what: 'another task with the limit', limits: [fast], isAhead: true },
    { what: 'another task with the limit, whose workers do not claim ahead', limits: [fast], isAhead: false },
    { what: 'another task with a second limit', limits: [fast, limit('wide', { rate: '1000/s' })], isAhead: true },
  ])('$what gets its share beside one whose jobs are claimed ahead', async ({ limits, isAhead }) => {
    await at.sluice.sendMany(quietTask('a', [fast]), rows(1_000))
    await saturate(['a'])
    const first = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    const second = [{ id: await worker(['b']), tasks: ['b'], isAhead }]
    await live(first, 1)
    await at.sluice.sendMany(quietTask('b', limits), rows(1_000))
    const all = await live([...first, ...second], 8)
    const [a, b] = [all.filter(({ tasks }) => tasks[0] === 'a'), all.filter(({ tasks }) => tasks[0] === 'b')]
    const sum = (list: typeof all) => list.reduce((n, { got }) => n + got, 0)
    expect(sum(b)).toBeGreaterThan(sum(a) / 5)
    expect(sum(a)).toBeGreaterThan(sum(b) / 5)
    expect(sum(a) + sum(b)).toBeGreaterThan(8 * 100 * 0.7)
    await isProved()
  })

  it('one worker serves lanes with a second limit beside lanes that are claimed ahead', async () => {
    const keyed = limit('keyed', { rate: '1000/s', by: (input: { tenant?: string | undefined }) => input.tenant ?? '' })
    await at.sluice.sendMany(
      quietTask('a', [fast, keyed]),
      Array.from({ length: 800 }, (_, i) => ({ tenant: i % 2 ? 'x' : 'y' })),
    )
    await at.sluice.sendMany(quietTask('b', [fast]), rows(400))
    const ids = [await worker([]), await worker([])]
    await live(
      ids.map((id) => ({ id, tasks: ['a', 'b'] })),
      6,
    )
    const left = await at.db.query<{ task: string; n: string }>(
      'select task, count(*) as n from sluice.job group by 1 order by 1',
    )
    expect(left.map(({ task, n }) => [task, Number(n) < (task === 'a' ? 650 : 250)])).toEqual([
      ['a', true],
      ['b', true],
    ])
    await isProved()
  })

  it.each(isLong ? [1, 2, 4, 10, 50, 200] : [1, 10, 200])(
    'two workers that want %i jobs use the limit, and make few claims',
    async (want) => {
      await at.sluice.sendMany(quietTask('a', [fast]), rows(1_500))
      await saturate(['a'])
      const ids = await Promise.all([0, 1].map(() => enter(at.db, ['a'], {}, want)))
      const workers = ids.map((id) => ({ id, tasks: ['a'], want }))
      await live(workers, 2)
      const all = await live(workers, 10)
      const [ran, claims] = [all.reduce((n, { got }) => n + got, 0), all.reduce((n, one) => n + one.claims, 0)]
      expect(ran).toBeGreaterThan(10 * 76)
      expect(claims / ran).toBeLessThan(want < 4 ? 1.3 : 0.6)
      await isProved()
    },
  )

  it('a limit that the vendor refuses grants nothing ahead until a probe is accepted', async () => {
    await at.sluice.sendMany(quietTask('a', [fast]), rows(300))
    await saturate(['a'])
    await pass(200)
    await at.db.query(`select ${fn}.hold_buckets(array[sluice.hash64('fast')], 500000, null, null, 100000)`)
    for (let i = 0; i < 40; i++, await pass(20)) {
      const { jobs, laterUs } = await ahead(at.worker, ['a'], 50)
      expect(jobs.length).toBeLessThanOrEqual(1)
      expect(laterUs.filter((us) => us > 0)).toEqual([])
    }
  })

  it('places are counted from the claim on', async () => {
    const both = limit('both', { rate: '100/s', concurrency: 3 })
    await at.sluice.sendMany(quietTask('a', [both]), rows(300))
    const seen: number[] = []
    for (let i = 0; i < 60; i++, await pass(11)) {
      const { jobs } = await ahead(at.worker, ['a'], 50)
      seen.push(jobs.length)
      expect(await count(at.db, 'sluice.job where claim is not null')).toBeLessThanOrEqual(3)
      await done(at.db, jobs)
    }
    expect(Math.max(...seen)).toBe(3)
    await isProved()
  })

  it('a changed definition counts what was granted ahead at its instants', async () => {
    await at.sluice.sendMany(quietTask('a', [fast]), rows(800))
    await saturate(['a'])
    for (const rate of ['50/s', '100/s', '20/s', '100/s'] as const) {
      await live([{ id: at.worker, tasks: ['a'] }], 0.5)
      await at.sluice.limits.set('fast', { rate }, { reason: 'test' })
    }
    await live([{ id: at.worker, tasks: ['a'] }], 1)
    expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  })
})

it('a worker starts each job at its instant, and the record shows when', async () => {
  const starts: number[] = []
  const ring = task('ring', { limits: [limit('bell', { rate: '50/s' })], run: () => void starts.push(Date.now()) })
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  try {
    const ids = await Promise.all(rows(80).map(() => sluice.send(ring, {})))
    const worker = await sluice.work([ring], { concurrency: 10 })
    await until(() => starts.length === 80, 'all have started')
    await worker.stop()
    const seen = await Promise.all(ids.map((id) => sluice.jobs.get(id)))
    const begins = seen.map((job) => job?.attempts[0]?.startedAt.getTime() ?? Number.NaN).toSorted((a, b) => a - b)
    // The first ones begin at once; then each begins some 20 ms after the one before.
    const apart = (times: readonly number[]) => times.slice(20).filter((ms, i) => ms - (times[i + 19] ?? 0) >= 5).length
    expect(apart(starts)).toBeGreaterThan(40)
    expect(apart(begins)).toBeGreaterThan(40)
    expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  } finally {
    await sluice.close()
  }
})
