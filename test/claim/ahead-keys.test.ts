/** Grants ahead of time for jobs of many keys: one claim serves many accounts under a total, exact for each of them. */
import fc from 'fast-check'
import { beforeEach, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { isLong } from '../long.ts'
import '../property.ts'
import { hold } from '../limits/engine.ts'
import {
  type Answer,
  claim,
  empty,
  emptied,
  enter,
  finish,
  mainEngines,
  ownClock,
  perTenant,
  quietTask,
} from './engine.ts'
import { jobsLeft } from '../store/engine.ts'

const startMs = Date.UTC(2026, 10, 27, 11, 59, 50)
const total = limit('total', { rate: '100/s' })
/** How long workers live whose jobs use next to nothing, in seconds of the clock: each makes a claim for each unit then. */
const spanS = isLong ? 3 : 1

interface Call {
  atUs: number
  tenant: string
}

/** The limit of an account, and the most that any time so long may have of it. */
interface Own {
  options: LimitOptions
  units: number
  windowMs: number
}

function byTenant(calls: readonly Call[]): Map<string, Call[]> {
  const all = new Map<string, Call[]>()
  for (const call of calls) all.set(call.tenant, [...(all.get(call.tenant) ?? []), call])
  return all
}

describe.each(mainEngines)('on $name, jobs with a limit of their account and a total', (engine) => {
  const at = emptied(engine)
  let clock: Awaited<ReturnType<typeof ownClock>>
  let nowMs: number
  beforeEach(async () => {
    await at.db.query('drop table if exists sluice.test_clock')
    clock = await ownClock(at.db, startMs)
    nowMs = startMs
  })

  const callsOf = ({ jobs, laterUs, nowUs }: Answer): Call[] =>
    jobs.map(({ input }, i) => ({ atUs: nowUs + (laterUs[i] ?? 0), tenant: (input as { tenant: string }).tenant }))
  const tenants = (n: number, jobs: number) => Array.from({ length: jobs }, (_, i) => ({ tenant: `t${i % n}` }))
  const isProved = async () => expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })

  /** The most calls in any time so long. */
  function mostIn(windowMs: number, calls: readonly Call[]): number {
    const times = calls.map(({ atUs }) => atUs).toSorted((a, b) => a - b)
    let [most, from] = [0, 0]
    times.forEach((us, i) => {
      while ((times[from] ?? 0) <= us - windowMs * 1_000) from++
      most = Math.max(most, i - from + 1)
    })
    return most
  }

  interface Member {
    id: string
    want: number
    ahead: number
    atMs: number
    claims: number
    empty: number
  }
  const member = async (want: number, ahead: number): Promise<Member> => ({
    id: await enter(at.db, ['k'], {}, want),
    want,
    ahead,
    atMs: nowMs,
    claims: 0,
    empty: 0,
  })

  /** Lets workers claim at their times until `endMs`; `unused` selects jobs that use nothing. Resolves to all that was called. */
  let ahead = 0
  async function live(members: Member[], endMs: number, unused: (i: number) => boolean = () => false): Promise<Call[]> {
    const calls: Call[] = []
    let n = 0
    for (;;) {
      const next = members.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > endMs) break
      await clock.set((nowMs = Math.max(nowMs, next.atMs)))
      const answer = await claim(at.db, next.id, ['k'], next.want, newId(), { idle: true, ahead: next.ahead })
      const { jobs, again, wakeUs } = answer
      const made = callsOf(answer)
      ahead += answer.laterUs.filter((us) => us > 0).length
      const endings = jobs.map((job, i) => ({ job, outcome: unused(n++) ? 'unused' : 'done', call: made[i] }))
      calls.push(...endings.flatMap(({ outcome, call }) => (outcome === 'done' && call !== undefined ? call : [])))
      await finish(at.db, endings)
      next.claims += 1
      if (jobs.length === 0) next.empty += 1
      const isFull = jobs.length >= next.want && wakeUs === undefined
      // A place that became free is no matter of time: workers are notified of it, here a second later at most.
      next.atMs = nowMs + (again || isFull ? 1 : Math.min(1_000, Math.max(1, Math.ceil((wakeUs ?? 1e6) / 1000))))
    }
    await clock.set((nowMs = Math.max(nowMs, endMs)))
    return calls
  }

  it('are granted ahead in few claims, with each account in its turn, and use the total', async () => {
    await at.sluice.sendMany(quietTask('k', [perTenant('account', '50/s'), total]), tenants(40, 1_500))
    const members = [await member(10, 30), await member(10, 30), await member(10, 30)]
    await live(members, nowMs + 1_000)
    const before = members.reduce((n, { claims }) => n + claims, 0)
    const calls = await live(members, nowMs + 5_000)
    const claims = members.reduce((n, one) => n + one.claims, 0) - before
    expect(calls.length).toBeGreaterThan(5 * 80)
    expect(claims / calls.length).toBeLessThan(0.1)
    const each = byTenant(calls)
    expect(each.size).toBe(40)
    const counts = [...each.values()].map((list) => list.length)
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(2)
    expect(mostIn(1_000, calls)).toBeLessThanOrEqual(100)
    await isProved()
  })

  it('are granted ahead although some are not used, unless that is more than half of a claim', async () => {
    await at.sluice.sendMany(quietTask('k', [perTenant('unused', '50/s'), total]), tenants(40, 1_500))
    const members = [await member(10, 30)]
    await live(members, nowMs + 1_000)
    const claims = async (unused: (i: number) => boolean) => {
      const [before, one] = [members[0]?.claims ?? 0, await live(members, nowMs + 1_000 * spanS, unused)]
      expect(one.length).toBeGreaterThan(spanS * 60)
      return (members[0]?.claims ?? 0) - before
    }
    const few = await claims((i) => i % 13 === 5)
    expect(await claims((i) => i % 13 !== 5 && i % 13 !== 6 && i % 13 !== 7)).toBeGreaterThan(2 * few)
  })

  it('find what their accounts have left, however many before them wait for their own accounts', async () => {
    const task = quietTask('k', [perTenant('barred', '60/min'), total])
    await at.sluice.sendMany(task, tenants(60, 60))
    const members = [await member(16, 30)]
    await live(members, nowMs + 40_000)
    const held = Array.from({ length: 40 }, (_, i) => `barred:t${i}`)
    await hold(at.db, held, 60_000_000)
    await at.sluice.sendMany(task, tenants(60, 60))
    for (const one of members) one.atMs = nowMs
    expect((await live(members, nowMs + 1_000)).length).toBe(20)
  })

  it('try the vendor when the holds of their accounts end before their instants', async () => {
    await at.sluice.sendMany(quietTask('k', [perTenant('tried', '50/s'), total]), tenants(20, 300))
    const one = await member(5, 5)
    await live([one], nowMs + 1_000)
    const accounts = Array.from({ length: 20 }, (_, i) => `tried:t${i}`)
    await clock.set((nowMs = one.atMs))
    await hold(at.db, accounts, 5_000, 100_000)
    const { jobs, laterUs, isOnTrial } = await claim(at.db, one.id, ['k'], 5, newId(), { idle: true, ahead: 5 })
    expect([jobs.length > 0, Math.min(...laterUs) > 0, isOnTrial]).toEqual([true, true, true])
  })

  it('exceed neither the total nor any account, whatever the rates, arrivals and workers, and none is left waiting', async () => {
    const step = fc.record({
      jobs: fc.nat(60),
      spread: fc.integer({ min: 1, max: 30 }),
      ms: fc.integer({ min: 1, max: 700 }),
    })
    const world = fc.record({
      own: fc.constantFrom<Own>(
        { options: { rate: '3/s' }, units: 3, windowMs: 1_000 },
        { options: { rate: '10/s' }, units: 10, windowMs: 1_000 },
        { options: { rate: '1000/s' }, units: 1_000, windowMs: 1_000 },
        // A stated burst comes on top (docs/guarantees.md).
        { options: { rate: '40/s', burst: 9 }, units: 48, windowMs: 1_000 },
        { options: { window: '4/500ms' }, units: 4, windowMs: 500 },
        { options: { rate: '20/s', quota: '300/min' }, units: 20, windowMs: 1_000 },
        { options: { rate: '20/s', concurrency: 2 }, units: 20, windowMs: 1_000 },
      ),
      workers: fc.array(fc.record({ want: fc.integer({ min: 1, max: 12 }), ahead: fc.constantFrom(0, 10, 30) }), {
        minLength: 1,
        maxLength: 3,
      }),
      steps: fc.array(step, { minLength: 2, maxLength: 8 }),
      unused: fc.constantFrom(0, 3, 7),
    })
    await fc.assert(
      fc.asyncProperty(world, async ({ own: { options, units, windowMs }, workers, steps, unused }) => {
        const name = `of-${newId().slice(-12)}`
        const all = limit(`${name}-all`, { rate: '100/s' })
        const task = quietTask('k', [
          limit(name, { ...options, by: ({ tenant }: { tenant?: string | undefined }) => tenant ?? '' }),
          all,
        ])
        // A case that failed before leaves its own.
        await empty(at.db)
        const members: Member[] = []
        for (const { want, ahead } of workers) members.push(await member(want, Math.max(want, ahead)))
        const calls: Call[] = []
        const skip = (i: number) => unused > 0 && i % unused === 0
        for (const { jobs, spread, ms } of steps) {
          if (jobs > 0) await at.sluice.sendMany(task, tenants(spread, jobs))
          // They were notified.
          for (const one of members) one.atMs = Math.min(one.atMs, nowMs)
          calls.push(...(await live(members, nowMs + ms, skip)))
        }
        for (let i = 0; i < 120 && (await jobsLeft(at.db)) > 0; i++) calls.push(...(await live(members, nowMs + 1_000)))
        expect(await jobsLeft(at.db)).toBe(0)
        expect(mostIn(1_000, calls)).toBeLessThanOrEqual(100)
        for (const list of byTenant(calls).values()) expect(mostIn(windowMs, list)).toBeLessThanOrEqual(units)
        await isProved()
        expect(members.reduce((n, { empty }) => n + empty, 0)).toBeLessThan(400)
      }),
      { numRuns: isLong ? 80 : 5, endOnFailure: true },
    )
    expect(ahead).toBeGreaterThan(100)
  })
})
