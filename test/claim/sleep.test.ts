/** Workers that wait for one limit get wake-up times by which, together, they use all of the limit, with few empty claims. */
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Rate } from '../../src/core/rate.ts'
import { isLong } from '../long.ts'
import { guaranteeOf } from '../../src/limits/exposure.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import { claim, done, emptied, enter, mainEngines, ownClock, perTenant, quietTask } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = Date.parse('2025-07-01T10:00:00Z')

/** How many jobs each worker runs at a time. */
const slots = 10

interface Case {
  rate: Rate
  burst?: number
  /** The jobs have these limits too. */
  beside?: LimitOptions[]
  workers: number
  holdMs?: number
  atMost: number
  atLeast: number
}

let names = 0

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))

  /**
   * Lets workers wake at their times, up to 6 ms late (the same on each run), for `seconds` of the store's clock. `holdMs`: how long
   * an attempt has its slot after its instant, and then jobs do not wait beside the slots; undefined: they do, and take no time.
   */
  async function live(name: string, workers: number, seconds: number, warmS: number, holdMs?: number) {
    const wakes = await Promise.all(
      Array.from({ length: workers }, async () => ({
        id: await enter(at.db, [], {}, slots),
        atMs: 0,
        untilMs: [] as number[],
      })),
    )
    let [ran, calls, turn, fromMs] = [0, 0, 0, 0]
    for (;;) {
      const next = wakes.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > seconds * 1000) return { ran, calls, tookS: seconds - fromMs / 1000 }
      turn += 1
      const nowMs = next.atMs + (turn * 0.618 - Math.floor(turn * 0.618)) * 6
      next.untilMs = next.untilMs.filter((untilMs) => untilMs > nowMs)
      const want = slots - next.untilMs.length
      if (want === 0) {
        next.atMs = Math.min(...next.untilMs)
        continue
      }
      await at.clock.set(startMs + nowMs)
      const mode = { idle: true, ahead: holdMs === undefined ? 3 * slots : want }
      const { jobs, laterUs, again, wakeUs } = await claim(at.db, next.id, [name], want, newId(), mode)
      await done(at.db, jobs)
      if (holdMs !== undefined) next.untilMs.push(...laterUs.map((us) => nowMs + us / 1000 + holdMs))
      // The first claims, when all workers begin at once, and a rate's first window, with its burst, are not measured.
      if (turn <= workers || nowMs <= warmS * 1000) fromMs = nowMs
      else [ran, calls] = [ran + jobs.length, calls + 1]
      next.atMs =
        again || (jobs.length === want && wakeUs === undefined) ? nowMs + 1 : nowMs + (wakeUs ?? Number.NaN) / 1000
    }
  }

  it('a worker whose claim gave a unit to an expired job does not leave it to a sleeper', async () => {
    await at.clock.set(startMs)
    const sparse = quietTask('sparse', [limit('sparse', { rate: '6/min', burst: 2 }), perTenant('own', '100/s')])
    const [one, sleeper] = [await enter(at.db), await enter(at.db)]
    const wake = async (worker: string) => {
      for (;;) {
        const { again, wakeUs } = await claim(at.db, worker, ['sparse'], 20, newId(), { idle: worker === sleeper })
        if (!again) return wakeUs
      }
    }
    await at.sluice.sendMany(sparse, copies(5, { tenant: 'a' }))
    await wake(one)
    const others = Array.from({ length: 9 }, (_, n) => ({ tenant: `b${n}` }))
    await at.sluice.sendMany(sparse, others, { maxWait: '5s' })
    expect(await wake(sleeper)).toBeGreaterThan(10_000_000)
    await at.clock.set(startMs + 10_001)
    expect(await wake(one)).toBeLessThanOrEqual(50_000)
  })

  it.each([
    { rate: '20/s', workers: 8, atMost: 0.5, atLeast: 0.98 },
    { rate: '20/s', workers: 50, atMost: 0.8, atLeast: 0.98 },
    // Its pace forgives 16 ms.
    { rate: '200/s', workers: 8, atMost: 0.045, atLeast: 0.98 },
    {
      rate: '200/s',
      beside: [{ rate: '100000/min' }, { quota: '1000000/day' }],
      workers: 8,
      atMost: 0.045,
      atLeast: 0.98,
    },
    // Attempts too long for jobs to wait beside the slots.
    { rate: '200/s', workers: 2, holdMs: 40, atMost: 0.12, atLeast: 0.98 },
    // A bucket of one unit has no room for a unit that waits for a worker.
    { rate: '1/s', burst: 1, workers: 8, atMost: 1.05, atLeast: 0.97 },
    { rate: '5/s', burst: 1, workers: 4, atMost: 1.05, atLeast: 0.95 },
    { rate: '2/s', burst: 1, workers: 3, atMost: 1.05, atLeast: 0.95 },
    { rate: '10/min', workers: 8, atMost: 1.05, atLeast: 0.93 },
  ] as readonly Case[])(
    '$workers workers at $rate (burst $burst, beside $beside) use $atLeast of it, with at most $atMost claims a job',
    async ({ workers, atMost, atLeast, holdMs, beside = [], ...numbers }: Case) => {
      names += 1
      const vendor = limit(`vendor-${names}`, numbers)
      const others = beside.map((each, i) => limit(`beside-${names}-${i}`, each))
      const call = quietTask(`call-${names}`, [vendor, ...others])
      const { perSecond } = guaranteeOf(vendor).rules[0] as { perSecond: number }
      const warmS = vendor.rules.some(({ kind }) => kind === 'pace') ? 1.5 : 0
      // A claim gets ten jobs of a fast limit.
      const jobs = (isLong ? 300 : 150) * (perSecond <= 20 ? 1 : holdMs === undefined ? 12 : 4)
      const seconds = jobs / perSecond + warmS
      // More than the limit allows until then: the first window, with its burst, and a thousand for what is granted ahead.
      const waiting = Math.ceil(jobs + (1 + warmS) * perSecond) + 1_000
      await at.sluice.sendMany(call, copies(waiting))
      const { ran, calls, tookS } = await live(call.name, workers, seconds, warmS, holdMs)
      expect(ran / (tookS * perSecond)).toBeGreaterThan(atLeast)
      expect(calls / ran).toBeLessThanOrEqual(atMost)
    },
  )
})
