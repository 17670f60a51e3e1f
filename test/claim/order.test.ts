/** The order of jobs within a fair key (priority and age), and between fair keys (weights). */
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import {
  claim,
  claimAll,
  done,
  emptied,
  type Engine,
  mainEngines,
  finish,
  ownClock,
  perTenant,
  quietTask,
  tenantInput,
} from './engine.ts'
import { copies } from '../rows.ts'

const startMs = 1_800_000_000_000
const hourMs = 3_600_000
const minuteMs = 60_000

const quiet = task('quiet', { input: tenantInput, run: () => undefined })
const texts = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { text: string }).text)
const tenants = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { tenant: string }).tenant)

/** An empty store for each test, with a clock that the test controls. */
function store(engine: Engine) {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))
  const send = (text: string, priority: number, options = {}) =>
    at.sluice.send(quiet, { text }, { priority, ...options })
  const next = async () => (await claimAll(at.db, at.worker, ['quiet'], 1))[0]
  /** Claims one at a time, to the end. */
  const order = async () => {
    const all: string[] = []
    for (let job = await next(); job !== undefined; job = await next()) all.push(...texts([job]))
    return all
  }
  return Object.assign(at, { send, next, order })
}

describe.each(mainEngines)('within a fair key on $name', (engine) => {
  const at = store(engine)
  const set = (ms: number) => at.clock.set(startMs + ms)

  it('the higher priority goes first, and an hour of waiting counts for one step of priority', async () => {
    await set(0)
    await at.send('old', 0)
    await set(3 * hourMs)
    await at.send('two', 2)
    const four = await at.send('four', 4)
    const three = await at.send('low', -1)
    expect(await at.db.query('select 1 from sluice.lane')).toEqual([])
    const first = await at.next()
    expect(first?.id).toBe(four)
    expect((await at.sluice.why(three))?.reasons).toContainEqual({
      kind: 'order',
      text: 'ahead of it: 2 jobs of the same kind of higher priority, longer waiting or tried before',
      notBefore: undefined,
      acts: 'jobs',
    })
    expect(await at.order()).toEqual(['old', 'two', 'low'])
  })

  it('no job starves: a job that others overtake goes first once it has waited long enough', async () => {
    await set(0)
    await at.send('low', 0)
    const order: string[] = []
    for (let i = 0; !order.includes('low') && i < 40; i++) {
      await set((i * hourMs) / 2)
      await at.send('high', 5)
      await at.send('high', 5)
      order.push(...texts(await claimAll(at.db, at.worker, ['quiet'], 1)))
    }
    // Those that were sent within 5 hours of it, two each half hour, and itself.
    expect(order.length).toBeGreaterThan(15)
    expect(order.length).toBeLessThan(25)
  })

  it('a lane that never empties is as old as its head, not as its first job', async () => {
    await set(0)
    await at.send('0', 0)
    await at.send('0', 0)
    for (let hour = 1; hour <= 10; hour++) {
      await set(hour * hourMs)
      await at.send(String(hour), 0)
      await at.next()
    }
    await at.send('urgent', 4)
    expect(await at.order()).toEqual(['urgent', '9', '10'])
  })

  it('the lane that has waited longer goes first of two lanes of one priority', async () => {
    const places = ['b', 'a', 'c']
    const own = task('own', {
      input: tenantInput,
      limits: [limit('own', { rate: '1000/s', by: (input: { text?: string | undefined }) => input.text ?? '' })],
      fair: 'tenant' as never,
      run: () => undefined,
    })
    for (const [i, text] of places.entries()) {
      await set(i * minuteMs)
      await at.sluice.sendMany(own, [
        { tenant: 'x', text },
        { tenant: 'x', text },
      ])
    }
    const order: string[] = []
    for (let i = 0; i < 6; i++) order.push(...texts(await claimAll(at.db, at.worker, ['own'], 1)))
    expect(order).toEqual(['b', 'b', 'a', 'a', 'c', 'c'])
  })

  it('the age of a scheduled job counts from when it was due, and a retry keeps its age', async () => {
    await set(0)
    await at.send('retried', 0)
    const job = await at.next()
    if (job === undefined) throw new Error('nothing was claimed')
    await finish(at.db, [{ job, outcome: 'retry', delayUs: 24 * hourMs * 1_000 }])
    await at.send('scheduled', 1, { delay: '24h' })
    await set(24 * hourMs)
    // One claim promotes both jobs, and the next one absorbs them.
    await claimAll(at.db, at.worker, ['nobody'], 1)
    await at.send('urgent', 3)
    expect(await at.order()).toEqual(['retried', 'urgent', 'scheduled'])
  })
})

describe.each(mainEngines)('between fair keys on $name', (engine) => {
  const at = store(engine)
  const rows = (tenant: string, n: number) => copies(n, { tenant })

  /** Two tenants with these weights and a backlog each; resolves to the number of the heavier one's jobs among the first ones. */
  async function share(weights: [number, number], claims: number, want: number, shared = false) {
    await at.clock.set(startMs)
    const own = task('own', {
      input: tenantInput,
      limits: [
        ...(shared ? [limit('shared', { rate: '100/s', burst: 4 })] : []),
        perTenant('wide', '1000000/s', 1_000_000),
      ],
      fair: 'tenant' as never,
      run: () => undefined,
    })
    await at.sluice.sendMany(own, [...rows('heavy', claims * want + 20), ...rows('light', claims * want + 20)])
    await done(at.db, await claimAll(at.db, at.worker, ['own'], 2))
    for (const [i, tenant] of ['heavy', 'light'].entries())
      await at.db.query(`update sluice.lane set weight = $2 where sluice.hash64('wide:' || $1) = any (buckets)`, [
        tenant,
        weights[i],
      ])
    const got: string[] = []
    for (let i = 0; i < claims; i++) {
      await at.clock.set(startMs + (i + 1) * 1_000)
      got.push(...tenants(await claimAll(at.db, at.worker, ['own'], want)))
    }
    expect(got).toHaveLength(claims * want)
    return got.filter((tenant) => tenant === 'heavy').length
  }

  it.each([
    { claims: 40, want: 1, shared: false },
    { claims: 10, want: 4, shared: true },
    { claims: 4, want: 100, shared: false },
  ])('weights 3 and 1 get three to one: $claims claims of $want, shared limit: $shared', async (one) => {
    const heavy = await share([3, 1], one.claims, one.want, one.shared)
    const ideal = (one.claims * one.want * 3) / 4
    expect(Math.abs(heavy - ideal)).toBeLessThanOrEqual(2)
  })

  it('keys that one task served many times delay no other key where they wait in another task', async () => {
    const each = perTenant('stale.each', '100000/s', 10_000)
    const waiting = quietTask('stale.waiting', [each])
    const served = Array.from({ length: 8 }, (_, i) => quietTask(`stale.served.${i}`, [each]))
    const keys = ['a', 'b', 'c', 'd', 'e']
    const rows = (n: number) => keys.flatMap((tenant) => copies(n, { tenant }))
    await at.sluice.sendMany(waiting, rows(1))
    for (const one of served) await at.sluice.sendMany(one, rows(20))
    const names = served.map(({ name }) => name)
    for (const name of names) await done(at.db, await claimAll(at.db, at.worker, [name], 50))
    for (let left = 8 * 50 + 5; left > 0; left--) {
      const { jobs } = await claim(at.db, at.worker, [...names, 'stale.waiting'], 1)
      expect(jobs).toHaveLength(1)
      await done(at.db, jobs)
    }
  })

  it('keys that used turns elsewhere while they waited for a bucket are served when it has room, however many claims notice it', async () => {
    const by = (input: { text?: string | undefined }) => input.text ?? ''
    const own = task('behind', {
      input: tenantInput,
      limits: [limit('behind', { concurrency: 1, by })],
      fair: 'tenant' as never,
      run: () => undefined,
    })
    // More keys than a claim of one job advances before it decides.
    const keys = Array.from({ length: 12 }, (_, i) => `${i}`)
    const each = (text: (key: string) => string) => keys.map((tenant) => ({ tenant, text: text(tenant) }))
    const claimed = () => claimAll(at.db, at.worker, ['behind'], 1)
    await at.sluice.sendMany(own, [{ tenant: 'other', text: 'slow' }])
    const slow = await claimed()
    await at.sluice.sendMany(
      own,
      each(() => 'slow'),
    )
    expect(await claimed()).toEqual([])
    await at.sluice.sendMany(own, [...each((key) => key), ...each((key) => key)])
    for (const _ of [...keys, ...keys]) await done(at.db, await claimed())
    await done(at.db, slow)
    for (const _ of keys) {
      const jobs = await claimed()
      expect(jobs).toHaveLength(1)
      await done(at.db, jobs)
    }
    expect(await at.db.query('select 1 from sluice.lane where list is not null')).toEqual([])
  })

  it.each([1, 3, 40])(
    'a task that was held back stays fair within itself: %i jobs by a worker of both tasks, then by a worker of only this one',
    async (mixed) => {
      const fairly = { input: z.object({ tenant: z.string() }), fair: 'tenant', run: () => undefined } as const
      const [back, ahead] = [task(`back.${mixed}`, fairly), task(`ahead.${mixed}`, fairly)]
      const keys = ['a', 'b', 'c', 'd', 'e']
      const rows = (n: number) => keys.flatMap((tenant) => copies(n, { tenant }))
      // The lane is seated, and no worker claims it while the other task advances by 400 turns.
      await at.sluice.sendMany(back, rows(60))
      await done(at.db, (await claim(at.db, at.worker, [back.name], 1)).jobs)
      for (let round = 0; round < 4; round++) {
        await at.sluice.sendMany(
          ahead,
          rows(100).map(({ tenant }) => ({ tenant: `${tenant}-ahead` })),
        )
        await done(at.db, await claimAll(at.db, at.worker, [ahead.name], 450))
      }
      const got = new Map<string, number>(keys.map((key) => [key, 0]))
      const count = async (tasks: readonly string[], many: number) => {
        const { jobs } = await claim(at.db, at.worker, tasks, many)
        for (const { input } of jobs) {
          const { tenant = '' } = input as { tenant?: string }
          if (got.has(tenant)) got.set(tenant, (got.get(tenant) ?? 0) + 1)
        }
        await done(at.db, jobs)
      }
      for (let both = 0; both < mixed; both++) await count([back.name, ahead.name], 1)
      for (let own = 0; own < 60; own++) await count([back.name], 1)
      const each = [...got.values()]
      expect(Math.max(...each) - Math.min(...each)).toBeLessThanOrEqual(2)
    },
  )

  it('a limit gives weights to its keys', async () => {
    const by = (input: { tenant?: string | undefined }) => input.tenant ?? ''
    const crm = limit('crm', { rate: '1000000/s', burst: 1_000_000, by, weights: { heavy: 3 } })
    const own = task('keys', { input: tenantInput, limits: [crm], run: () => undefined })
    await at.clock.set(startMs)
    await at.sluice.sendMany(own, [...rows('light', 40), ...rows('heavy', 40)])
    const got = tenants(await claimAll(at.db, at.worker, ['keys'], 40))
    expect(Math.abs(got.filter((tenant) => tenant === 'heavy').length - 30)).toBeLessThanOrEqual(2)
  })

  it.each([1, 4, 40])(
    'retries that wait leave half of the turns to first attempts, and take none from other keys: claims of %i',
    async (want) => {
      await at.clock.set(startMs)
      const limits = [limit('all', { rate: '1000000/s', burst: 1_000_000 })]
      const own = task('failing', { input: tenantInput, limits, fair: 'tenant' as never, run: () => undefined })
      const [each, claims] = [200, 160 / want]
      await at.sluice.sendMany(own, [...rows('bad', each), ...rows('good', each)])
      const begun = await claimAll(at.db, at.worker, ['failing'], 2 * each)
      const failed = begun.filter((job) => tenants([job])[0] === 'bad')
      await finish(
        at.db,
        begun.map((job) => ({ job, outcome: failed.includes(job) ? 'retry' : 'done', delayUs: 1_000_000 })),
      )
      await at.clock.set(startMs + 10_000)
      await at.sluice.sendMany(own, [...rows('bad', each), ...rows('good', each)])
      // One claim promotes the retries, and the next one reads their arrival.
      for (const _ of ['promote', 'read']) await claimAll(at.db, at.worker, ['failing'], 1)
      const again = new Set(failed.map(({ id }) => id))
      const got = { again: 0, first: 0, good: 0 }
      for (let i = 0; i < claims; i++)
        for (const job of await claimAll(at.db, at.worker, ['failing'], want))
          got[tenants([job])[0] === 'good' ? 'good' : again.has(job.id) ? 'again' : 'first']++
      expect(got.good).toBeGreaterThanOrEqual(80 - 2)
      expect(got.good).toBeLessThanOrEqual(80 + 2)
      expect(got.first).toBeGreaterThanOrEqual(40 - 2)
      expect(got.again).toBeGreaterThanOrEqual(40 - 2)
    },
  )

  it.each(['have run', 'wait for another limit'])(
    'a key whose retries %s gets the turns of a whole key',
    async (now) => {
      await at.clock.set(startMs)
      const all = limit('all', { rate: '1000000/s', burst: 1_000_000 })
      const by = (input: { tenant?: string | undefined; vendor?: string | undefined }) => input.vendor ?? 'none'
      const limits = [all, limit('vendor', { concurrency: 1_000, by })]
      const input = z.object({ tenant: z.string(), vendor: z.string() })
      const own = task('recovered', { input, limits, fair: 'tenant' as never, run: () => undefined })
      const rowsOf = (tenant: string, vendor: string, n: number) => copies(n, { tenant, vendor })
      await at.sluice.sendMany(own, rowsOf('bad', 'broken', 3))
      const begun = await claimAll(at.db, at.worker, ['recovered'], 3)
      await finish(
        at.db,
        begun.map((job) => ({ job, outcome: 'retry', delayUs: 1_000_000 })),
      )
      await at.clock.set(startMs + 10_000)
      if (now !== 'have run') await at.sluice.pause({ limit: 'vendor', key: 'broken' }, { reason: 'it is down' })
      for (const _ of ['promote', 'read']) await done(at.db, await claimAll(at.db, at.worker, ['recovered'], 10))
      await at.sluice.sendMany(own, [...rowsOf('bad', 'fine', 60), ...rowsOf('good', 'fine', 60)])
      const got = tenants(await claimAll(at.db, at.worker, ['recovered'], 60))
      expect(Math.abs(got.filter((tenant) => tenant === 'bad').length - 30)).toBeLessThanOrEqual(2)
    },
  )

  it('a key whose retries of one task wait beside first attempts of another gets the turns of one key', async () => {
    await at.clock.set(startMs)
    const both = perTenant('both', '1000000/s', 1_000_000)
    const [one, two] = [quietTask('one', [both]), quietTask('two', [both])]
    await at.sluice.sendMany(one, rows('bad', 100))
    const begun = await claimAll(at.db, at.worker, ['one'], 100)
    await finish(
      at.db,
      begun.map((job) => ({ job, outcome: 'retry', delayUs: 1_000_000 })),
    )
    await at.clock.set(startMs + 10_000)
    await at.sluice.sendMany(two, [...rows('bad', 100), ...rows('good', 100)])
    for (const _ of ['promote', 'read']) await claimAll(at.db, at.worker, ['one', 'two'], 1)
    const got: string[] = []
    for (let i = 0; i < 60; i++) got.push(...tenants(await claimAll(at.db, at.worker, ['one', 'two'], 1)))
    expect(Math.abs(got.filter((tenant) => tenant === 'bad').length - 30)).toBeLessThanOrEqual(2)
  })

  it('weights 1000 and 1 get a thousand to one, and the light key gets its turn', async () => {
    const heavy = await share([1_000, 1], 11, 200)
    expect(2_200 - heavy).toBeGreaterThanOrEqual(1)
    expect(2_200 - heavy).toBeLessThanOrEqual(4)
  })
})
