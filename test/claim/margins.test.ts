/** Margins of a fleet: measured by processes, in force as versions of a definition. Minutes on a clock that the test moves. */
import { beforeAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { columnsOf, numbersOnly } from '../../src/claim/definitions/columns.ts'
import { defineLimit, Definitions } from '../../src/claim/definitions/define.ts'
import { Margins } from '../../src/claim/definitions/margins.ts'
import { sqlOn, storeOn } from '../../src/db/store.ts'
import { type Limit, limit, type LimitOptions } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { fn } from '../servers/fn.ts'
import { until } from '../until.ts'

let sluice: Sluice
beforeAll(async () => {
  sluice = await Sluice.open({ store: (await freshDatabase()).url })
  return () => sluice.close()
})

let made = 0

/** A limit, processes that call under it, and a clock for their samples. */
async function fleet(options: LimitOptions = { rate: '200/s' }) {
  const of = limit(`m${++made}`, options)
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const store = storeOn(sluice.db, { clock })
  await new Definitions(sqlOn(sluice.db), clock).define([of])
  const all: Margins[] = []
  const join = async () => {
    const one = new Margins(store)
    await one.join([of])
    all.push(one)
    return one
  }
  /** Passes so many seconds, in which each process answers some requests within these times, and reports. */
  const pass = async (
    seconds: number,
    tookMs = [2, 4],
    who: readonly Margins[] = all,
    charge?: (limits: ReadonlySet<string>) => Promise<void>,
  ) => {
    for (let at = 0; at < seconds; at += 10) {
      nowMs += 10_000
      for (const one of who)
        for (let i = 0; i < 60; i++) {
          one.aged([of], 5, false)
          one.answered([of], tookMs[i % tookMs.length] ?? 0, charge)
        }
      for (const one of who) await one.renew()
    }
  }
  const inForce = async (name = of.name) => {
    const [row] = await sluice.db.query<{ grant: number; way: number }>(
      `select (spec ->> 'grantUs')::int / 1000 as grant, (spec ->> 'transitUs')::int / 1000 as way
       from sluice.limit_def where name = $1 order by version desc limit 1`,
      [name],
    )
    return [row?.grant, row?.way]
  }
  return { of, join, pass, inForce }
}

const wide = [100, 100]
const narrow = [10, 5]

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
    second.unmeasured([of])
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
    ['the vendor refuses a request', (one: Margins, of: Limit) => one.unmeasured([of])],
    ['a grant is used in a way that is not measured', (one: Margins, of: Limit) => one.unmeasured([of])],
    ['a request fails', (one: Margins, of: Limit) => one.answered([of], undefined)],
    ['an answer takes long', (one: Margins, of: Limit) => one.answered([of], 300)],
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

  it('stays small when few answers are slow, each of which is charged once more', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    const charged: string[] = []
    const charge = async (limits: ReadonlySet<string>) => void charged.push(...limits)
    await pass(100, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
    expect(charged).toEqual([])
    expect(one.way([of]).overdueMs()).toBe(102)
    for (const tookMs of [60, 300, 4]) one.answered([of], tookMs, charge)
    expect(charged).toEqual([of.name, of.name])
    await new Promise(setImmediate)
    await pass(10, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
  })

  it('is wide again when a slow answer could not be charged once more', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    await pass(100, [2, 4], [one], async () => {})
    expect(await inForce()).toEqual(narrow)
    one.answered([of], 60, () => Promise.reject(new Error('the store is away')))
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is wide again when a slow answer was charged so late that its request may have left the window', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    await pass(100, [2, 4], [one], async () => {})
    let recorded = () => {}
    one.answered([of], 60, () => new Promise((resolve) => (recorded = resolve)))
    await pass(10, [2, 4], [one], async () => {})
    expect(await inForce()).toEqual(narrow)
    recorded()
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is wide again when an answer was noticed so late that its request may have left the window', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    const charge = async () => {}
    await pass(100, [2, 4], [one], charge)
    one.answered([of], 990, charge)
    await new Promise(setImmediate)
    await pass(10, [2, 4], [one], charge)
    expect(await inForce()).toEqual(narrow)
    one.answered([of], 1_010, charge)
    await until(async () => (await inForce())[1] === 100, 'it is wide')
  })

  it('is measured by the answer where only another limit of the request takes it for overdue', async () => {
    const quick = await fleet()
    const short = await fleet({ rate: '40/200ms' })
    const one = await quick.join()
    await one.join([short.of])
    const charged: string[] = []
    const charge = async (limits: ReadonlySet<string>) => void charged.push(...limits)
    await quick.pass(100, [2, 4], [one], charge)
    const answers = () =>
      sluice.db.query(`select answers::int as answers, most::int / 1000 as most from sluice.measured where name = $1`, [
        short.of.name,
      ])
    const way = one.way([quick.of, short.of], charge)
    expect(way.overdueMs()).toBe(102)
    way.overdue(102)
    expect([charged, way.overdueMs()]).toEqual([[quick.of.name], undefined])
    way.answered(400)
    expect(charged).toEqual([quick.of.name])
    await quick.pass(10, [2, 4], [one], charge)
    // Half as much again as its only answer differs from itself, and a millisecond.
    expect(await answers()).toEqual([{ answers: 1, most: 401 }])
  })

  it('widens before slower answers are no longer charged, when many are slow', async () => {
    const { of, join, pass, inForce } = await fleet()
    const one = await join()
    let charged = 0
    const charge = async () => void charged++
    await pass(100, [2, 4], [one], charge)
    await pass(10, [2, 4, 30], [one], charge)
    expect(charged).toBe(20)
    expect(await inForce()).toEqual([10, 30])
    await pass(10, [2, 4, 30], [one], charge)
    expect(charged).toBe(20)
    // What varies by more than is stated is not charged at all.
    await pass(60, [2, 4, 300], [one], charge)
    expect(await inForce()).toEqual([10, 100])
    expect(one.way([of]).overdueMs()).toBeUndefined()
  })

  it('is measured as ever where quotas, short windows or stated numbers leave nothing to be gained by a charge', async () => {
    for (const options of [
      { rate: '20/200ms' },
      { rate: '200/s', quota: '9000/day' },
      { rate: '200/s', transit: 30 },
    ]) {
      const { of, join, pass } = await fleet(options as LimitOptions)
      const one = await join()
      let charged = 0
      await pass(60, [2, 4, 60], [one], async () => void charged++)
      expect([charged, one.way([of]).overdueMs()]).toEqual([0, undefined])
    }
  })

  it('grows by lives of up to a second while grants come too late', async () => {
    const { of, join, pass, inForce } = await fleet({ rate: '5/s' })
    const one = await join()
    for (const [age, life, way] of [[150, 200, 100] as const, [700, 1_000, 5] as const]) {
      for (let i = 0; i < 600; i++) one.aged([of], age, true)
      await pass(10)
      expect(await inForce()).toEqual([life, way])
    }
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

  it('does not shrink by what was read before a process joined', async () => {
    const { of, join } = await fleet()
    const put = async (known: number) => {
      const margin = { grantUs: 10_000, transitUs: 190_000 }
      const numbers = { ...of, ...margin }
      const spec = JSON.stringify(numbersOnly(numbers))
      const columns = JSON.stringify(columnsOf(numbers))
      const [row] = await sluice.db.query<{ adapt_limit: boolean }>(
        `select ${fn}.adapt_limit($1, 1, 'measured', $2, $3, $4, 'test', null) as adapt_limit`,
        [of.name, known, spec, columns],
      )
      return row?.adapt_limit
    }
    await join()
    await join()
    expect(await put(1)).toBe(false)
    expect(await put(2)).toBe(true)
  })
})
