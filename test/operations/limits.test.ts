/** Limits that an operator changes while everything runs: the source that is in force, and refused changes. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Sql, sqlOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openPg } from '../../src/db/pg.ts'
import { Definitions } from '../../src/claim/definitions/define.ts'
import { type AnyTask, limit, type LimitOptions, money, type Rate, Sluice, task } from '../../src/index.ts'
import { copies } from '../rows.ts'
import { later, until } from '../until.ts'
import { claim, empty, mainEngines, enter, finish } from '../claim/engine.ts'
import { definitionCalls } from '../claim/engine-parts.ts'
import { unitsUsed } from '../limits/engine.ts'

const named = (name: string, options: LimitOptions & { by?: string }, fair?: string): AnyTask =>
  task('call', {
    input: z.object({ account: z.string(), n: z.number().optional() }),
    limits: [limit(name, options as never)] as never,
    ...(fair === undefined ? {} : { fair: fair as never }),
    run: () => undefined,
  }) as unknown as AnyTask

const why = { reason: 'the vendor called' }

describe.each(mainEngines)('on $name', (engine) => {
  let store: string
  let sluice: Sluice
  let names = 0
  let name = ''
  beforeAll(async () => {
    store = await engine.store()
    sluice = await Sluice.open({ store })
  })
  beforeEach(async () => {
    name = `l${names++}`
    await empty(sluice.db)
  })
  afterAll(() => sluice.close())

  /** Defines the limits as a process that starts with this code, and then does nothing more. */
  const starts = async (options: LimitOptions & { by?: string }) => {
    const sql = sqlOn(sluice.db)
    const quiet: Sql = {
      // It would record that it has the definition once more, while a test assumes that nobody has.
      call: async <R>(...[name, ...rest]: Parameters<Sql['call']>) =>
        name === definitionCalls.renew ? [] : sql.call<R>(name, ...rest),
      run: sql.run.bind(sql),
      query: sql.query.bind(sql),
    }
    await new Definitions(quiet, systemClock).define(named(name, options).limits)
  }
  const rates = async () => (await sluice.limits.show(name)).guarantee.rules.map(({ rate }) => rate)

  it('a stored number overrides code, and a pinned one overrides both, however often code starts', async () => {
    await starts({ rate: '100/min', concurrency: 5, by: 'account' })
    await sluice.limits.set(name, { rate: '50/min' }, why)
    expect(await sluice.limits.show(name)).toMatchObject({
      source: 'stored',
      version: 2,
      numbers: { rate: '50/min', concurrency: 5 },
      keyed: true,
      path: 'account',
      reason: 'the vendor called',
      by: expect.stringMatching(/.@./),
      sources: { code: { numbers: { rate: '100/min', concurrency: 5 } }, stored: { numbers: { rate: '50/min' } } },
    })
    await starts({ rate: '100/min', concurrency: 5, by: 'account' })
    await sluice.db.query(`update sluice.limit_source set seen_at = '-infinity' where source = 'code'`)
    await starts({ rate: '80/min', concurrency: 5, by: 'account' })
    expect(await rates()).toEqual(['50/min', '5'])
    const pinned = await sluice.limits.pin(name, { concurrency: 1, transit: '2s' }, { reason: 'an incident' })
    expect(pinned).toMatchObject({ source: 'pinned', numbers: { rate: '50/min', concurrency: 1, transit: 2_000 } })
    expect(pinned).toMatchObject({ marginMs: 2_100 })
    // A change under a pin is recorded, and waits.
    expect(await sluice.limits.set(name, { rate: '40/min' }, why)).toMatchObject({ source: 'pinned' })
    expect(await rates()).toEqual(['50/min', '1'])
    expect(await sluice.limits.unpin(name, { reason: 'over' })).toBe(true)
    expect(await rates()).toEqual(['40/min', '5'])
    expect(await sluice.limits.unset(name)).toBe(true)
    expect(await rates()).toEqual(['80/min', '5'])
    expect(await sluice.limits.unset(name)).toBe(false)
    expect(await sluice.limits.unpin(name)).toBe(false)
    const history = await sluice.limits.history(name)
    expect(history.map(({ version, source, numbers, reason }) => [version, source, numbers.rate, reason])).toEqual([
      [5, 'code', '80/min', undefined],
      [4, 'stored', '40/min', 'over'],
      [3, 'pinned', '50/min', 'an incident'],
      [2, 'stored', '50/min', 'the vendor called'],
      [1, 'code', '100/min', undefined],
    ])
    expect(await sluice.limits.history(name, { max: 2 })).toHaveLength(2)
  })

  it('a number in another unit than the costs of the newest code does not hold', async () => {
    const inMoney = (quota: string) => ({ quota, cost: () => money(2) }) as unknown as LimitOptions
    const deployed = async (options: LimitOptions) => {
      await sluice.db.query(`update sluice.limit_source set seen_at = '-infinity' where source = 'code'`)
      await starts(options)
      return sluice.limits.show(name)
    }
    await starts(inMoney('50 USD/month'))
    await sluice.limits.set(name, { quota: '5 USD/month' }, why)
    await sluice.limits.pin(name, { quota: '4 USD/month', concurrency: 2 }, why)
    expect(await deployed(inMoney('60 USD/month'))).toMatchObject({ source: 'pinned', currency: 'USD' })
    // 4 USD would be 4,000,000 of these.
    expect(await deployed({ quota: '1000/month' })).toMatchObject({
      source: 'code',
      numbers: { quota: '1000/month' },
      currency: undefined,
      sources: { stored: { numbers: { quota: '5 USD/month' } }, pinned: { numbers: { quota: '4 USD/month' } } },
    })
    expect(await deployed(inMoney('60 EUR/month'))).toMatchObject({ source: 'code', currency: 'EUR' })
    await sluice.limits.unpin(name)
    await sluice.limits.unset(name)
    await sluice.limits.set(name, { quota: null, concurrency: 3 }, why)
    expect(await deployed({ quota: '1000/month' })).toMatchObject({ source: 'stored', numbers: { concurrency: 3 } })
    await sluice.limits.set(name, { quota: '500/month' }, why)
    expect(await deployed(inMoney('60 USD/month'))).toMatchObject({
      source: 'code',
      numbers: { quota: '60 USD/month' },
    })
    expect(await deployed({ quota: '1000/month' })).toMatchObject({ source: 'stored', numbers: { quota: '500/month' } })
  })

  it('null removes a number, and the next change starts from the stored definition', async () => {
    await starts({ rate: '100/min', burst: 5, transit: 50 })
    await sluice.limits.set(name, { rate: null, burst: null, window: ['100/min', '1000/h'] }, why)
    expect(await sluice.limits.show(name)).toMatchObject({
      numbers: { window: ['100/min', '1000/h'], transit: 50 },
      classic: false,
    })
    await sluice.limits.set(name, { concurrency: 3, window: undefined, transit: undefined }, why)
    expect(await rates()).toEqual(['100/min', '1000/h', '3'])
    // A grant lives a tenth of the window at most.
    const short = await sluice.limits.pin(name, { window: '10/100ms', concurrency: null, transit: 0 }, why)
    expect(short).toMatchObject({ marginMs: 10, numbers: { window: '10/100ms', transit: 0 } })
    expect(short.guarantee.rules[0]).toMatchObject({ worst: 10 })
  })

  it('keys and the vendor come from code, even with an operator’s numbers', async () => {
    await starts({ rate: '100/min' })
    await sluice.limits.pin(name, { rate: '50/min' }, why)
    await starts({ rate: '100/min', by: 'account', vendor: '40/min' })
    expect(await sluice.limits.show(name)).toMatchObject({
      source: 'pinned',
      keyed: true,
      numbers: { rate: '50/min' },
      guarantee: { warning: expect.stringContaining('allows 40/min') },
    })
  })

  it('an invalid change is refused, and changes nothing', async () => {
    await starts({ rate: '100/min' })
    const { limits } = sluice
    const refused = async (act: Promise<unknown>, code: string, message: RegExp) =>
      expect(act).rejects.toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }))
    await refused(limits.set('nobody', { rate: '1/s' }, why), 'SLUICE_NO_SUCH_LIMIT', /sluice limits/)
    await refused(limits.unpin('nobody'), 'SLUICE_NO_SUCH_LIMIT', /"nobody"/)
    await refused(limits.show('nobody'), 'SLUICE_NO_SUCH_LIMIT', /"nobody"/)
    await refused(limits.history('nobody'), 'SLUICE_NO_SUCH_LIMIT', /"nobody"/)
    await refused(limits.history(name, { max: 0 }), 'SLUICE_BAD_OPTION', /1 to 1000/)
    await refused(limits.history(name, { limit: 5 } as never), 'SLUICE_BAD_OPTION', /no "limit"/)
    await refused(limits.set(name, {}, why), 'SLUICE_BAD_LIMIT', /give at least one of rate/)
    await refused(limits.set(name, { rate: '0/min' }, why), 'SLUICE_BAD_RATE', /is not a rate/)
    await refused(limits.set(name, { rate: null }, why), 'SLUICE_BAD_LIMIT', /limits nothing/)
    await refused(limits.set(name, { transit: '1 fortnight' as never }, why), 'SLUICE_BAD_DURATION', /span of time/)
    await refused(limits.set(name, { by: 'account' } as never, why), 'SLUICE_BAD_LIMIT', /has no "by"/)
    const misplaced = { rate: '1/s', reason: 'why' } as never
    await refused(limits.set(name, misplaced, { reason: 'why' }), 'SLUICE_BAD_LIMIT', /here it is the last argument/)
    await refused(limits.set(name, { rate: '1/s' }, { reason: ' ' }), 'SLUICE_BAD_LIMIT', /give a reason of 1 to 500/)
    await refused(limits.rekey(name, { from: 'a', to: 'b' }), 'SLUICE_BAD_LIMIT', /no keys/)
    expect(await limits.show(name)).toMatchObject({ version: 1, source: 'code' })
    expect((await limits.list()).map((line) => line.name)).toContain(name)
  })

  it('waiting jobs are released by a change at once, and held back by another', async () => {
    const call = named(name, { rate: '1/h' })
    await sluice.sendMany(
      call,
      [1, 2, 3, 4, 5].map((n) => ({ account: 'a', n })),
    )
    const worker = await enter(sluice.db)
    const claimed = async () => (await claim(sluice.db, worker, ['call'], 10)).jobs.length
    expect(await claimed()).toBe(1)
    expect(await claimed()).toBe(0)
    await sluice.limits.set(name, { rate: '36000/h' }, why)
    expect(await claimed()).toBe(4)
    await sluice.limits.pin(name, { rate: '1/h' }, why)
    await sluice.send(call, { account: 'a' })
    expect(await claimed()).toBe(0)
    await sluice.limits.unpin(name)
    expect(await claimed()).toBe(1)
  })

  it.runIf(engine.name === 'PostgreSQL')('a change succeeds while eight workers claim without a pause', async () => {
    const call = named(name, { rate: '1000000/s' })
    await sluice.sendMany(call, copies(50, { account: 'a' }))
    const db = openPg({ url: store, connections: 8, clock: systemClock })
    let isOver = false
    let claims = 0
    const claimer = async () => {
      const worker = await enter(db)
      while (!isOver) {
        // A claim that waited too long for a lock is rolled back whole, and is repeated.
        const { jobs } = await claim(db, worker, ['call'], 5).catch((error: { code?: string }) => {
          if (error.code === '55P03') return { jobs: [] }
          throw error
        })
        claims += 1
        if (jobs.length > 0)
          await finish(
            db,
            jobs.map((job) => ({ job, outcome: 'retry', delayUs: 0 })),
          )
      }
    }
    const claiming = later(Promise.all(Array.from({ length: 8 }, claimer)))
    try {
      for (const units of [900_000, 800_000, 700_000, 600_000]) {
        const before = claims
        await until(() => claims > before + 8)
        await sluice.limits.set(name, { rate: `${units}/s` as Rate }, why)
      }
    } finally {
      isOver = true
      await Promise.allSettled([claiming])
      await db.close()
    }
    await claiming
    expect(await sluice.limits.show(name)).toMatchObject({ version: 5, numbers: { rate: '600000/s' } })
  })

  it('a change warns of jobs that cost more than there will ever be room for', async () => {
    const call = task('call', {
      input: z.object({ n: z.number() }),
      limits: [limit(name, { window: '1000/h', cost: 'n' })],
      run: () => undefined,
    })
    await sluice.send(call, { n: 1 })
    await sluice.send(call, { n: 300 })
    expect(await sluice.limits.set(name, { window: '300/h' }, why)).not.toHaveProperty('warning')
    expect(await sluice.limits.set(name, { window: '200/h' }, why)).toMatchObject({
      warning: expect.stringMatching(/cost up to 300, and there is never room for more than 200/),
    })
  })

  describe('rekey', () => {
    const waits = () =>
      sluice.db.query(
        `select buckets, fair, claim is not null as runs, due_at is not null as later from sluice.job order by seq`,
      )

    it('moves waiting and scheduled jobs with their turns, and leaves running ones', async () => {
      const call = named(name, { rate: '60/h', by: 'account' }, 'account')
      const [acme, other] = [{ account: 'acme' }, { account: 'other' }]
      await sluice.sendMany(call, [acme, acme, acme])
      await sluice.send(call, acme, { delay: '1h' })
      const worker = await enter(sluice.db)
      const { jobs } = await claim(sluice.db, worker, ['call'], 1)
      expect(jobs).toHaveLength(1)
      await sluice.send(call, other)
      expect(await sluice.limits.rekey(name, { from: 'acme', to: 'acme-eu' })).toBe(3)
      const old = { buckets: [`${name}:acme`], fair: 'call:acme' }
      const moved = { buckets: [`${name}:acme-eu`], fair: 'call:acme-eu' }
      expect(await waits()).toEqual([
        { ...old, runs: true, later: false },
        { ...moved, runs: false, later: false },
        { ...moved, runs: false, later: false },
        { ...moved, runs: false, later: true },
        { buckets: [`${name}:other`], fair: 'call:other', runs: false, later: false },
      ])
      expect(await sluice.limits.rekey(name, { from: 'acme', to: 'acme-eu' })).toBe(0)
      // The room of the new key, of which nothing was used: 6 at once, for two jobs and no others.
      expect((await claim(sluice.db, worker, ['call'], 10)).jobs).toHaveLength(3)
      expect(await unitsUsed(sluice.db)).toEqual({ [`${name}:acme`]: 1, [`${name}:acme-eu`]: 2, [`${name}:other`]: 1 })
    })

    it('keeps the new key when a worker takes the job, whatever its input contains', async () => {
      const call = named(name, { rate: '60/h', by: 'account' })
      const id = await sluice.send(call, { account: 'acme' })
      await sluice.limits.rekey(name, { from: 'acme', to: 'acme-eu' })
      expect(await sluice.dispatchOnce([call])).toBe(1)
      expect(await sluice.jobs.get(id)).toMatchObject({
        state: 'done',
        attempt: 1,
        limits: [`${name}:acme-eu`],
        ruled: [{ rule: 'limits rekey', keys: { [name]: 'acme-eu' } }],
      })
    })

    it('runs each job once, under one key or the other, while others claim', async () => {
      const call = named(name, { rate: '100000/h', by: 'account' })
      await sluice.sendMany(call, copies(600, { account: 'acme' }))
      const worker = await enter(sluice.db)
      const seen: string[] = []
      let isMoved = false
      const claimed = async () => {
        while (seen.length < 600) {
          // On a busy machine all jobs may be claimed before the change begins; so the last ones wait for it.
          if (seen.length >= 500) await until(() => isMoved, 'the keys are changed')
          for (const job of (await claim(sluice.db, worker, ['call'], 10)).jobs) seen.push(job.id)
        }
      }
      const claiming = later(claimed())
      await until(() => seen.length > 50)
      const moved = await sluice.limits.rekey(name, { from: 'acme', to: 'acme-eu' })
      isMoved = true
      await claiming
      expect(moved).toBeGreaterThan(0)
      expect(new Set(seen).size).toBe(600)
      expect(await unitsUsed(sluice.db)).toEqual({ [`${name}:acme`]: 600 - moved, [`${name}:acme-eu`]: moved })
    })
  })
})
