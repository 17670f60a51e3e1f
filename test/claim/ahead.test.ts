/** Grants ahead of time: one claim gets jobs for the next instants of a saturated limit, and nobody starves beside it. */
import { describe, expect, it } from 'vitest'
import { copies } from '../rows.ts'
import { newId } from '../../src/core/hash.ts'
import { aheadMostUs } from '../../src/limits/margin.ts'
import { limit } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import { acquire, further, taker, takersWithTurn } from '../takes/engine.ts'
import { checkClock, hold, limiterNowUs, sumUsage, watchClock } from '../limits/engine.ts'
import { rescue } from '../fleet/engine.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { Finisher } from '../../src/claim/finish/finish.ts'
import { storeOn } from '../../src/db/store.ts'
import { recordBegun } from './engine-parts.ts'
import { type Answer, claim, count, enter, finish, mainEngines, quietTask } from './engine.ts'
import { aheadOn, fast, used } from './ahead-stage.ts'

/** How often takers try beside workers, and how long workers live, in seconds of the clock. */
const [rounds, spanS, servedS] = isLong ? [150, 10, 6] : [30, 3, 3]

const settings = [
  ...mainEngines.map((engine) => ({ engine, name: engine.name, limits: [fast] })),
  {
    engine: mainEngines[0] ?? expect.fail(),
    name: 'PostgreSQL, where jobs have other limits too',
    limits: [limit('a-minute', { rate: '60000/min' }), fast, limit('a-day', { rate: '500/s', quota: '1000000/day' })],
  },
]

describe.each(settings)('on $name', ({ engine, limits }) => {
  const { at, now, pass, ahead, saturate, live, besideAnother, worker, isProved } = aheadOn(engine, limits)

  it('a claim gets jobs for the next instants at which the limit allows them, at most a fifth of a second ahead', async () => {
    const task = quietTask('a', limits)
    await at.sluice.sendMany(task, copies(300))
    await saturate(['a'])
    await pass(100)
    const first = await ahead(at.worker, ['a'], 50)
    expect(first.jobs.length).toBeGreaterThan(3)
    expect(Math.max(...first.laterUs)).toBeLessThanOrEqual(aheadMostUs)
    const second = await ahead(at.worker, ['a'], 50)
    expect(second.jobs).toEqual([])
    await pass(aheadMostUs / 1000 - 20)
    const third = await ahead(at.worker, ['a'], 50)
    const all = [...used(first), ...used(third)]
    expect(third.jobs.length).toBeGreaterThan(2)
    expect(all).toEqual(all.toSorted((a, b) => a - b))
    // From the second on each waits for a unit to become free.
    const gaps = all.slice(2).map((us, i) => us - (all[i + 1] ?? 0))
    expect(Math.min(...gaps)).toBeGreaterThan(9_000)
    await isProved()
  })

  it('a job waits until its instant, also in the numbers of the store', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await saturate(['a'])
    await pass(100)
    const { jobs, laterUs } = await ahead(at.worker, ['a'], 50)
    const later = laterUs.filter((us) => us > 0).length
    expect(later).toBeGreaterThan(3)
    const { jobs: shown } = at.sluice
    const { waiting, running } = await shown.status()
    expect(running).toBe(jobs.length - later)
    expect([running, waiting]).toEqual([
      (await shown.count({ state: 'running' })).count,
      (await shown.count({ state: 'waiting' })).count,
    ])
  })

  it('of a lost worker’s jobs those are in doubt that it recorded as begun, or that could begin before that', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await saturate(['a'])
    await pass(100)
    const lost = await worker(['a'])
    const { jobs, laterUs } = await claim(at.db, lost, ['a'], 10, newId(), { idle: true, ahead: 50 })
    const later = jobs.filter((_, i) => (laterUs[i] ?? 0) > 100_000)
    expect([later.length > 3, later.length < jobs.length]).toEqual([true, true])
    const begun = later.slice(0, 2)
    const finisher = new Finisher(storeOn(at.db), undefined, { slots: () => 10, isPressing: () => false })
    const [ended, ...others] = jobs.filter((job) => !later.includes(job))
    finisher.registerJobs(jobs as unknown as ClaimedJob[])
    const gone = { claim: newId(), seq: 1 }
    const held: string[] = []
    const recorded = (ids: ReadonlySet<string>) => void held.push(...ids)
    finisher.takeBeginning = () => ({ jobs: [...begun.slice(0, 1), gone], recorded, failed() {} })
    const done = { kind: 'done', result: null, tookMs: 1 } as const
    expect(await finisher.end({ ...ended } as unknown as ClaimedJob, done)).toBe(true)
    expect(held).toEqual([ended?.claim])
    await recordBegun(at.db, begun.slice(1))
    await pass(20_000)
    await rescue(at.db, lost)
    for (const job of [...others, ...later]) {
      const isDoubtful = begun.includes(job) || !later.includes(job)
      const counts = isDoubtful ? { crashes: 1, attempt: 1 } : { crashes: 0, attempt: 0 }
      expect(await at.sluice.jobs.get(job.id)).toMatchObject({ state: 'waiting', ambiguous: isDoubtful, ...counts })
    }
    await isProved()
  })

  it('units that were granted ahead and not used are given back, and no window holds more', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(2_000))
    await saturate(['a'])
    let [ahead, unused] = [0, 0]
    for (let i = 0; i < 150; i++) {
      const { jobs, laterUs } = await claim(at.db, at.worker, ['a'], 10, newId(), { idle: true, ahead: 10 })
      ahead += laterUs.filter((us) => us > 0).length
      await pass((i * 7) % 60)
      // Never more than half of a claim, which would end claims ahead.
      const outcome = (k: number) => (k % 3 === i % 3 ? 'unused' : 'done')
      unused += jobs.filter((_, k) => outcome(k) === 'unused').length
      await finish(
        at.db,
        jobs.map((job, k) => ({ job, outcome: outcome(k) })),
      )
      await pass((i * 11) % 40)
    }
    expect([ahead > 100, unused > 100]).toEqual([true, true])
    await isProved()
    expect(
      await count(
        at.db,
        'sluice.ledger where units < 0 and claim in (select claim from sluice.ledger where earlier is not null)',
      ),
    ).toBeGreaterThan(20)
  })

  it.each([
    { what: 'a taker in the line', ask: (id: string) => taker(at.db, id) },
    { what: 'a taker that does not wait', ask: (id: string) => () => acquire(at.db, id) },
  ])('$what gets units beside workers that claim ahead', async ({ ask }) => {
    const task = quietTask('a', limits)
    await at.sluice.sendMany(task, copies(1_000))
    await saturate(['a'])
    const workers = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    let [granted, ran, take] = [0, 0, ask('fast')]
    for (let i = 0; i < rounds; i++) {
      for (const one of await live(workers, 0.03)) ran += one.got
      for (let tries = 0; tries < 3; tries++, await pass(3)) {
        if (!(await take()).granted) continue
        granted += 1
        take = ask('fast')
      }
    }
    expect(granted).toBeGreaterThan(rounds / 7.5)
    expect(ran).toBeGreaterThan(rounds / 7.5)
    await isProved()
  })

  it('a running job gets its further requests beside workers that claim ahead', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(1_000))
    const running = (await ahead(at.worker, ['a'], 1)).jobs[0]
    await saturate(['a'])
    const workers = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    let granted = 0
    for (let i = 0; i < rounds; i++) {
      await live(workers, 0.02)
      for (let tries = 0; tries < 3; tries++, await pass(3))
        if ((await further(at.db, running, ['fast']))?.granted === true) granted += 1
    }
    expect(granted).toBeGreaterThan(rounds / 7.5)
    // It ends grants ahead for as long as it waits, and not for long after that.
    await pass(2_000)
    expect(await saturate(['a'])).toBe(true)
    await isProved()
  })

  it.each([
    { what: 'another task with the limit', others: [fast], isAhead: true },
    { what: 'another task with the limit, whose workers do not claim ahead', others: [fast], isAhead: false },
    {
      what: 'another task with one of the other limits',
      others: [limit('a-minute', { rate: '60000/min' })],
      isAhead: true,
    },
    { what: 'another task with a second limit', others: [fast, limit('wide', { rate: '1000/s' })], isAhead: true },
  ])('$what gets its share beside one whose jobs are claimed ahead', async ({ others, isAhead }) => {
    await at.sluice.sendMany(quietTask('a', limits), copies(1_000))
    await saturate(['a'])
    const first = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    const second = [{ id: await worker(['b']), tasks: ['b'], isAhead }]
    await live(first, 1)
    await at.sluice.sendMany(quietTask('b', others), copies(1_000))
    const all = await live([...first, ...second], spanS)
    const [a, b] = [all.filter(({ tasks }) => tasks[0] === 'a'), all.filter(({ tasks }) => tasks[0] === 'b')]
    const sum = (list: typeof all) => list.reduce((n, { got }) => n + got, 0)
    expect(sum(b)).toBeGreaterThan(sum(a) / 5)
    expect(sum(a)).toBeGreaterThan(sum(b) / 5)
    expect(sum(a) + sum(b)).toBeGreaterThan(spanS * 100 * 0.7)
    await isProved()
  })

  it('one worker serves lanes with a second limit beside lanes that are claimed ahead', async () => {
    const keyed = limit('keyed', { rate: '1000/s', by: (input: { tenant?: string | undefined }) => input.tenant ?? '' })
    await at.sluice.sendMany(
      quietTask('a', [fast, keyed]),
      Array.from({ length: 800 }, (_, i) => ({ tenant: i % 2 ? 'x' : 'y' })),
    )
    await at.sluice.sendMany(quietTask('b', [fast]), copies(400))
    const ids = [await worker([]), await worker([])]
    await live(
      ids.map((id) => ({ id, tasks: ['a', 'b'] })),
      servedS,
    )
    const left = await at.db.query<{ task: string; n: string }>(
      'select task, count(*) as n from sluice.job group by 1 order by 1',
    )
    expect(left.map(({ task, n }) => [task, Number(n) < (task === 'a' ? 800 : 400) - 25 * servedS])).toEqual([
      ['a', true],
      ['b', true],
    ])
    await isProved()
  })

  it.each(isLong ? [1, 2, 4, 10, 50, 200] : [1, 10, 200])(
    'two workers that want %i jobs use the limit, and make few claims',
    async (want) => {
      await at.sluice.sendMany(quietTask('a', limits), copies(1_500))
      await saturate(['a'])
      const ids = await Promise.all([0, 1].map(() => enter(at.db, ['a'], {}, want)))
      const workers = ids.map((id) => ({ id, tasks: ['a'], want }))
      await live(workers, 2)
      const all = await live(workers, spanS)
      const [ran, claims] = [all.reduce((n, { got }) => n + got, 0), all.reduce((n, one) => n + one.claims, 0)]
      expect(ran).toBeGreaterThan(spanS * 76)
      expect(claims / ran).toBeLessThan(want < 4 ? 1.3 : 0.6)
      await isProved()
    },
  )

  it('a worker that does not claim ahead gets its share beside one that does', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(1_500))
    await saturate(['a'])
    const [first, plain] = [await worker(['a']), await worker(['a'])]
    const all = await live(
      [
        { id: first, tasks: ['a'] },
        { id: plain, tasks: ['a'], isAhead: false },
      ],
      servedS,
    )
    expect(all[1]?.got).toBeGreaterThan((all[0]?.got ?? 0) / 5)
  })

  it('a take that does not wait, every 1.5 s, is granted now and then', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(2_500))
    await saturate(['a'])
    const workers = [await worker(['a']), await worker(['a'])].map((id) => ({ id, tasks: ['a'] }))
    let granted = 0
    for (let i = 0; i < 10; i++) {
      const next = Math.min(...(await live(workers, 1.5 + i * 0.003)).map(({ atMs }) => atMs))
      await pass(Math.max(0, next - 1 - now.ms))
      if ((await acquire(at.db, 'fast')).granted) granted += 1
    }
    expect(granted).toBeGreaterThan(1)
  })

  it('a taker of several buckets is the first in its line, whoever was denied without a line', async () => {
    await besideAnother()
    await acquire(at.db, 'fast')
    await taker(at.db, ['fast', 'other'])()
    expect(await takersWithTurn(at.db)).toBe(2)
  })

  it('a backward step of the clock does not move the limiter on to the last instant', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await saturate(['a'])
    await pass(200)
    for (let i = 0; i < 5; i++) if ((await ahead(at.worker, ['a'], 50)).laterUs.some((us) => us > 0)) break
    await watchClock(at.db)
    const before = await limiterNowUs(at.db)
    await now.clock.set(now.ms - 10_000)
    await checkClock(at.db, before)
    expect(Math.abs((await limiterNowUs(at.db)) - before)).toBeLessThan(2_000)
  })

  it('usage of other limits is summed while units are granted ahead', async () => {
    await besideAnother()
    const sum = async (after: string | null) => (await sumUsage(at.db, after)).until
    let until = await sum(null)
    await pass(5)
    await claim(at.db, at.worker, ['o'], 1)
    for (let i = 0; i < 3; i++, await pass(1_000)) until = await sum(until)
    expect(await count(at.db, `sluice.usage where name = 'other'`)).toBe(1)
  })

  it('a claim whose reply was lost returns the same instants', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await saturate(['a'])
    await pass(100)
    const id = newId()
    const first = await claim(at.db, at.worker, ['a'], 10, id, { idle: true, ahead: 10 })
    expect(first.laterUs.at(-1)).toBeGreaterThan(0)
    await pass(30)
    const again = await claim(at.db, at.worker, ['a'], 10, id, { idle: true, ahead: 10 })
    expect(again.jobs.map(({ seq }) => seq)).toEqual(first.jobs.map(({ seq }) => seq))
    expect(used(again)).toEqual(used(first))
  })

  it('a limit that the vendor refuses grants nothing ahead until a trial is accepted', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await saturate(['a'])
    await pass(200)
    await hold(at.db, ['fast'], 500_000, 100_000)
    for (let i = 0; i < 40; i++, await pass(20)) {
      const { jobs, laterUs } = await ahead(at.worker, ['a'], 50)
      expect(jobs.length).toBeLessThanOrEqual(1)
      expect(laterUs.filter((us) => us > 0)).toEqual([])
    }
  })

  it('a changed definition counts what was granted ahead at its instants', async () => {
    await at.sluice.sendMany(quietTask('a', limits), copies(800))
    await saturate(['a'])
    for (const rate of ['50/s', '100/s', '20/s', '100/s'] as const) {
      await live([{ id: at.worker, tasks: ['a'] }], 0.5)
      await at.sluice.limits.set('fast', { rate }, { reason: 'test' })
    }
    await live([{ id: at.worker, tasks: ['a'] }], 1)
    expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  })
})

describe.each(mainEngines)('on $name, where jobs have limits of their own,', (engine) => {
  const { at, now, pass, live, worker } = aheadOn(engine, [fast])

  it('a claim that does not ask for it, or is for another kind of rule, for places, or for jobs that run at most once, gets only what may start now', async () => {
    await at.db.query(`insert into sluice.task (name, queue, once, seen_at) values ('once', '', true, sluice.now())`)
    const own = (name: string) => limit(`of-${name}`, { rate: '100/s' })
    const once = quietTask('once', [own('once')])
    const window = quietTask('w', [limit('window', { window: '60/min' })])
    const keyed = quietTask('k', [
      limit('of-k', { rate: '1000/s' }),
      limit('slow-key', { rate: '100/s', by: () => 'x' }),
    ])
    const placed = quietTask('c', [own('c'), limit('placed', { concurrency: 1_000 })])
    for (const [task, isAhead] of [
      [window, true],
      [keyed, true],
      [placed, true],
      [quietTask('p', [fast]), false],
      [once, true],
    ] as const) {
      await at.sluice.sendMany(task, copies(100))
      const answers: Answer[] = []
      for (let i = 0; i < 30; i++, await pass(7))
        answers.push(await claim(at.db, at.worker, [task.name], 50, newId(), { idle: true, ahead: isAhead ? 50 : 0 }))
      expect(answers.flatMap(({ laterUs }) => laterUs).filter((us) => us > 0)).toEqual([])
      expect(answers.flatMap(({ jobs }) => jobs).length).toBeGreaterThan(10)
    }
  })

  it('jobs that do not use their units end it, so that others run in their place', async () => {
    const ran = async (name: string, isAhead: boolean) => {
      const id = await enter(at.db, [name], {}, 50)
      await at.sluice.sendMany(quietTask(name, [limit(`of-${name}`, { rate: '100/s' })]), copies(2_000))
      let jobs = 0
      for (const endMs = now.ms + 3_000; now.ms < endMs;) {
        const answer = await claim(at.db, id, [name], 50, newId(), { idle: true, ahead: isAhead ? 50 : 0 })
        jobs += answer.jobs.length
        // A rule discards nine of ten at dispatch.
        await finish(
          at.db,
          answer.jobs.map((job, i) => ({ job, outcome: i % 10 === 0 ? 'done' : 'discard' })),
        )
        await pass(answer.again ? 1 : Math.max(1, Math.ceil((answer.wakeUs ?? 1e6) / 1000)))
      }
      return jobs
    }
    expect(await ran('y', true)).toBeGreaterThan(0.7 * (await ran('x', false)))
  })

  it.each([
    { what: 'a window', rule: { window: '20/5s' as const }, seconds: 10 },
    { what: 'a rate and a window', rule: { rate: '10/s' as const, window: '30/10s' as const }, seconds: 10 },
    { what: 'a rate and places', rule: { rate: '100/s' as const, concurrency: 4 }, seconds: 2 },
    { what: 'a rate that the vendor refuses', rule: { rate: '100/s' as const }, seconds: 2, isRefused: true },
  ])('workers that wait for $what make no more claims than without, and know when to wake', async (given) => {
    const { what, rule, seconds, isRefused = false } = given
    const run = async (isAhead: boolean) => {
      const name = `${what}${isAhead}`.replaceAll(' ', '-')
      await at.sluice.sendMany(quietTask(name, [limit(`of-${name}`, rule)]), copies(500))
      const ids = [await worker([name]), await worker([name])]
      const workers = ids.map((id) => ({ id, tasks: [name], isAhead }))
      await live(workers, 1)
      if (isRefused) await hold(at.db, [`of-${name}`], 500_000, 100_000)
      const all = await live(workers, seconds)
      return { claims: all.reduce((n, one) => n + one.claims, 0), got: all.reduce((n, one) => n + one.got, 0) }
    }
    const [plain, other] = [await run(false), await run(true)]
    expect(other.claims).toBeLessThan(1.3 * plain.claims + 10)
    expect(other.got).toBeGreaterThan(0.9 * plain.got - 2)
  })
})
