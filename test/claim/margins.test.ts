/** Margins of a fleet: measured by processes, in force as versions of a definition. Minutes on a clock that the test moves. */
import { describe, expect, it } from 'vitest'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { Margins } from '../../src/claim/definitions/margins.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { type Limit, limit, type LimitOptions } from '../../src/limits/limit.ts'
import { freshSluice } from '../servers/sluice.ts'
import { until } from '../until.ts'
import { fleetOn, narrow, wide } from './margin-fleet.ts'
import { definitionCalls, putAdapted } from './engine-parts.ts'

const sluice = await freshSluice()

const fleet = (options?: LimitOptions) => fleetOn(sluice, options)

describe('the margin of a fleet', () => {
  it('shrinks when all of its hosts have measured little, and is printed with the guarantee', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await join()
    expect(await inForce()).toEqual(wide)
    const before = (await sluice.limits.show(of.name)).guarantee.rules[0]
    await pass(40)
    expect(await inForce()).toEqual([10, 190])
    await pass(60)
    expect(await inForce()).toEqual(narrow)
    const { marginMs, guarantee, source, sources } = await sluice.limits.show(of.name)
    expect([marginMs, source, Object.keys(sources)]).toEqual([15, 'code', ['code']])
    expect(guarantee.rules[0]?.perSecond).toBeGreaterThan(1.1 * (before?.perSecond ?? Infinity))
    const history = await sluice.limits.history(of.name)
    expect(history.map(({ version }) => version)).toEqual([3, 2, 1])
    expect(history[0]?.reason).toBe('grants were used after 5 ms; answers varied by 4 ms')
  })

  it('is wide again before a process that joins has joined, and stays so until that has measured too', async () => {
    const { join, pass, inForce } = await fleet()
    const first = await join()
    await pass(100)
    expect(await inForce()).toEqual(narrow)
    await join()
    expect(await inForce()).toEqual(wide)
    await pass(100, [2, 4], [first])
    // Both are on one host, whose way is known.
    expect(await inForce()).toEqual(narrow)
  })

  it('grows no wider than that when a process joins while it shrinks, so a quota beside it keeps its counts', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '200/s', quota: '1000/day' })
    await join()
    for (let n = 0; n < 2; n++) {
      await pass(40)
      expect(await inForce()).toEqual([10, 190])
      await join()
      expect(await inForce()).toEqual(wide)
    }
    const quotas = await sluice.db.query(
      `select distinct spec -> 'rules' -> -1 from sluice.limit_def where name = $1`,
      [of.name],
    )
    expect(quotas).toHaveLength(1)
  })

  it('is wide again before a process that has not reported of late is granted anything', async () => {
    const { of, join, pass, inForce } = await fleet()
    const first = await join()
    const second = await join()
    await pass(100, [2, 4], [first])
    expect(await inForce()).toEqual(narrow)
    await second.join([of])
    expect(await inForce()).toEqual(wide)
    await second.join([of])
    await pass(100)
    expect(await inForce()).toEqual(narrow)
  })

  it('is wide again at the first doubt, and stays so when the process in doubt has ended', async () => {
    const { of, join, pass, inForce } = await fleet()
    const first = await join()
    const second = await join()
    await pass(100)
    expect(await inForce()).toEqual(narrow)
    second.applyStatedMargin([of])
    await until(async () => (await inForce())[1] === 100, 'it is wide')
    await sluice.db.query(
      `update sluice.measured set seen_at = seen_at - interval '5 minutes' where not sound and name = $1`,
      [of.name],
    )
    await pass(100, [2, 4], [first])
    expect(await inForce()).toEqual([10, 100])
    await sluice.db.query(
      `update sluice.measured set seen_at = seen_at - interval '6 minutes' where not sound and name = $1`,
      [of.name],
    )
    await pass(100, [2, 4], [first])
    expect(await inForce()).toEqual(narrow)
  })

  it('stays wide while one host has measured nothing', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await sluice.db.query(
      `insert into sluice.measured values ($1, gen_random_uuid(), 'far', sluice.now(), 0, 0, 0, 0, 0, 0, true)`,
      [of.name],
    )
    await pass(100)
    expect(await inForce()).toEqual(wide)
  })

  it('counts what lies between the nearest and the farthest host', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await sluice.db.query(
      `insert into sluice.measured values ($1, gen_random_uuid(), 'far', sluice.now(), 500, 5000, 0, 500, 30000, 31000, true)`,
      [of.name],
    )
    await pass(100)
    // 31 ms less 2 ms.
    expect(await inForce()).toEqual([10, 30])
  })

  it.each([
    ['the vendor refuses a request', (one: Margins, of: Limit) => one.applyStatedMargin([of])],
    ['a grant is used in a way that is not measured', (one: Margins, of: Limit) => one.applyStatedMargin([of])],
    ['a request fails', (one: Margins, of: Limit) => one.recordAnswer([of], undefined)],
    ['an answer takes long', (one: Margins, of: Limit) => one.recordAnswer([of], 300)],
  ])('is wide again when %s, for ten minutes', async (_, happens) => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    await pass(100)
    expect(await inForce()).toEqual(narrow)
    happens(one, of)
    await pass(10)
    expect(await inForce()).toEqual([10, 100])
    await pass(500)
    expect(await inForce()).toEqual([10, 100])
    await pass(160)
    expect(await inForce()).toEqual(narrow)
  })

  it('grows by lives of up to a second while grants come too late', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '5/s' })
    const one = await join()
    await pass(10)
    for (const [age, life] of [[150, 300] as const, [700, 1_000] as const]) {
      for (let i = 0; i < 600; i++) one.recordAge([of], age, true)
      await pass(10)
      expect(await inForce()).toEqual([life, 5])
    }
  })

  it('does not outgrow what is stated by what a process received too late while it was cold', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '5/s' })
    const one = await join()
    for (const expected of [wide, [1_000, 5]]) {
      for (let i = 0; i < 600; i++) one.recordAge([of], 600, true)
      await pass(10)
      expect(await inForce()).toEqual(expected)
    }
  })

  it('does not outgrow what is stated by what one cold process of many received too late', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '5/s' })
    const [one, ...others] = [await join(), await join(), await join()]
    for (let i = 0; i < 7; i++) one.recordAge([of], 600, true)
    await pass(10, [2, 4], others)
    await one.renew()
    expect(await inForce()).toEqual(wide)
  })

  it('grows once for what one process of many received too late', async () => {
    const { of, join, pass, inForce } = await fleet()
    const [one] = [await join(), await join(), await join(), await join()]
    await pass(120)
    expect(await inForce()).toEqual(narrow)
    for (let i = 0; i < 10; i++) one?.recordAge([of], 15, true)
    await pass(10)
    expect(await inForce()).toEqual([25, 5])
  })

  it('is not measured where it is stated, of other programs, or without a window', async () => {
    const fixed = await fleet({ rate: '200/s', transit: 30 })
    const shared = await fleet({ rate: '200/s', published: true })
    for (const { join, pass } of [fixed, shared]) {
      await join()
      await pass(110)
    }
    expect(await fixed.inForce()).toEqual([10, 30])
    expect(await shared.inForce()).toEqual(wide)
  })

  it('is what is stated after any change of the numbers, also after one that is withdrawn', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await pass(100)
    await sluice.limits.pin(of.name, { rate: '100/s' }, { reason: 'test' })
    expect(await inForce()).toEqual(wide)
    await pass(100)
    expect(await inForce()).toEqual(narrow)
    await sluice.limits.unpin(of.name)
    expect(await inForce()).toEqual(wide)
    await pass(100)
    expect(await inForce()).toEqual(narrow)
    await sluice.limits.set(of.name, { transit: 20 }, { reason: 'test' })
    expect(await inForce()).toEqual([100, 20])
    await sluice.limits.set(of.name, { transit: 'measured' }, { reason: 'test' })
    expect(await inForce()).toEqual(wide)
  })

  it('is what is stated while processes have different definitions', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await pass(100)
    await defineLimit(sqlOn(sluice.db), limit(of.name, { rate: '150/s' }))
    expect(await inForce()).toEqual(wide)
    await pass(100)
    expect(await inForce()).toEqual(wide)
  })

  it('belongs to the part of a share, too', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '200/s', shares: { urgent: 0.3 } })
    await join()
    await pass(100)
    for (const name of [of.name, `${of.name}/`, `${of.name}/urgent`]) expect(await inForce(name)).toEqual(narrow)
  })

  it('lets no caller go on before the margin suits the process, and tries again after a failure', async () => {
    const { of, join, pass, inForce } = await fleet()
    await join()
    await pass(100)
    const said: string[] = []
    let fail = true
    let go = () => {}
    const gate = new Promise<void>((resolve) => (go = resolve))
    const { clock } = storeOn(sluice.db, {})
    const store = storeOn(sluice.db, { clock })
    const call: typeof store.call = async (name, params) => {
      if (name === definitionCalls.adapt && fail) throw new Error('the store is away')
      if (name === definitionCalls.adapt) said.push('widens')
      if (name === definitionCalls.adapt) await gate
      return store.call(name, params)
    }
    const one = new Margins({ clock, call, run: store.run.bind(store) } as typeof store)
    one.follow(450, async () => void said.push('follows'))
    await expect(one.join([of])).rejects.toThrow('the store is away')
    fail = false
    const first = one.join([of])
    await until(() => said.length === 1, 'it widens')
    const second = one.join([of]).then(() => said.push('the second goes on'))
    await one.join([limit('another', { concurrency: 1 })])
    go()
    await Promise.all([first, second])
    expect(said).toEqual(['widens', 'follows', 'the second goes on'])
    expect(await inForce()).toEqual([100, 100])
  })

  it('counts what an ended process has measured until its last requests have left a window of a minute', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    const other = await join()
    await pass(100, [2, 30])
    one.recordAnswer([of], 4)
    expect(await inForce()).toEqual([10, 50])
    const seen = (seconds: number) =>
      sluice.db.query(
        `update sluice.measured set seen_at = now() - make_interval(secs => $2)
         where name = $1 and process = (select process from sluice.measured where name = $1 order by seen_at limit 1)`,
        [of.name, seconds],
      )
    await seen(100)
    const known = async () => (await sluice.db.query(`select 1 from sluice.measured where name = $1`, [of.name])).length
    await pass(10, [2, 4], [other])
    expect(await known()).toBe(2)
    await seen(130)
    await pass(10, [2, 4], [other])
    expect(await known()).toBe(1)
  })

  it('does not shrink by what was read before a process joined', async () => {
    const { of, join } = await fleet()
    const put = (known: number) =>
      putAdapted(sluice.db, of.name, {
        version: 1,
        numbers: { ...of, grantUs: 10_000, transitUs: 190_000 },
        known,
      })
    await join()
    await join()
    expect(await put(1)).toBe(false)
    expect(await put(2)).toBe(true)
  })
})
