/** Claims that grant for instants still to come, at which their limits have room. */
import { beforeAll, describe, expect, it } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { decodeJobs } from '../../src/claim/claimed-job.ts'
import { limit } from '../../src/limits/limit.ts'
import { fn } from '../servers/fn.ts'
import { emptied, enter, finish, mainEngines, ownClock, quietTask } from './engine.ts'

const startMs = Date.parse('2025-07-01T10:00:00Z')
let names = 0

describe.each(mainEngines)('on $name', (engine) => {
  const at = Object.assign(emptied(engine), { clock: {} as Awaited<ReturnType<typeof ownClock>> })
  beforeAll(async () => void (at.clock = await ownClock(at.db, startMs)))

  const vendorAt = (rate: '20/s' | '200/s', transit = 0) => limit(`vendor-${(names += 1)}`, { rate, burst: 0, transit })

  async function claim(tasks: string[], want: number, ahead: number, { id = newId(), worker = at.worker } = {}) {
    const [row] = await at.db.query<{ jobs: string | null; wake_us: string | null; again: boolean }>(
      `select jobs, wake_us, again from ${fn}.claim_jobs($1,$2,null,$3,$4,null,true,null,false,$5)`,
      [id, worker, tasks, want, ahead],
    )
    const jobs = decodeJobs(row?.jobs ?? null, id, { decidedMs: 0, heardMs: 0 })
    const waits = jobs.map(({ fromMs = 0 }) => Math.round(fromMs * 1_000)).toSorted((a, b) => a - b)
    return { id, jobs, waits, wakeUs: Number(row?.wake_us), again: row?.again }
  }

  /** The times of the grants of a limit, in microseconds from the start. */
  async function granted(name: string): Promise<number[]> {
    const rows = await at.db.query<{ us: number; units: number }>(
      `select (at - $2)::float as us, units::float from sluice.ledger l
       join sluice.bucket b on b.id = l.bucket and b.name = $1 where units > 0 order by at, n`,
      [name, startMs * 1_000],
    )
    return rows.flatMap(({ us, units }) => Array<number>(units).fill(us))
  }

  it('one claim grants a lane all that its limit allows within a quarter of a second, each job for its instant', async () => {
    await at.clock.set(startMs)
    const vendor = vendorAt('20/s')
    const call = quietTask(`call-${names}`, [vendor])
    await at.sluice.sendMany(call, Array(20).fill({}))
    // A lane that never waited has what may start now.
    expect((await claim([call.name], 10, 10)).waits).toEqual([0])
    await at.clock.set(startMs + 1_000)
    const [rule] = vendor.rules
    const everyUs = Math.ceil((rule?.weight ?? 0) / (rule?.drain ?? 1))
    const { jobs, waits, wakeUs } = await claim([call.name], 10, 10)
    expect(waits).toEqual([0, 1, 2, 3, 4].map((i) => Math.ceil((i * (rule?.weight ?? 0)) / (rule?.drain ?? 1))))
    expect((await granted(vendor.name)).slice(1)).toEqual(waits.map((us) => us + 1_000_000))
    // Each instant is a claim of its own, by which its grant can be given back.
    expect(new Set(jobs.map((job) => job.claim)).size).toBe(5)
    // The next claim comes half of the horizon before the first instant that is left.
    expect(wakeUs).toBeGreaterThan(5 * everyUs - 125_000 - 5_000)
    expect(wakeUs).toBeLessThan(5 * everyUs)
  })

  it('a repeated claim returns the same jobs, under the same claims, with what is left of their waits', async () => {
    await at.clock.set(startMs)
    const call = quietTask(`call-${names + 1}`, [vendorAt('20/s')])
    await at.sluice.sendMany(call, Array(20).fill({}))
    const first = await claim([call.name], 10, 10)
    await at.clock.set(startMs + 60)
    const again = await claim([call.name], 10, 10, { id: first.id })
    const known = ({ id, claim: of }: (typeof first.jobs)[number]) => `${id} ${of}`
    expect(again.jobs.map(known).toSorted()).toEqual(first.jobs.map(known).toSorted())
    expect(again.waits).toEqual(first.waits.map((us) => Math.max(0, us - 60_000)))
  })

  it('without room for jobs beside its slots a worker gets what may start now, and sleeps until the next instant', async () => {
    await at.clock.set(startMs)
    const call = quietTask(`call-${names + 1}`, [vendorAt('20/s')])
    await at.sluice.sendMany(call, Array(20).fill({}))
    expect((await claim([call.name], 10, 0)).waits).toEqual([0])
    expect((await claim([call.name], 10, 3)).waits).toHaveLength(3)
    const { jobs, wakeUs } = await claim([call.name], 10, 0)
    expect(jobs).toEqual([])
    expect(wakeUs).toBeGreaterThan(150_000)
  })

  it('a job of several limits has an instant at which all of them have room, and waits for no end of those of one', async () => {
    await at.clock.set(startMs)
    const vendor = vendorAt('20/s')
    const other = limit(`other-${names}`, { rate: '100/s', burst: 0, transit: 0 })
    const [one, both] = [quietTask(`one-${names}`, [vendor]), quietTask(`both-${names}`, [vendor, other])]
    await at.sluice.sendMany(one, Array(60).fill({}))
    await at.sluice.sendMany(both, Array(10).fill({}))
    const second = await enter(at.db)
    const ran = { one: 0, both: 0 }
    for (let ms = 0; ms <= 2_000; ms += 50) {
      await at.clock.set(startMs + ms)
      const first = async () => (ran.one += (await claim([one.name], 10, 10)).jobs.length)
      const next = async () => (ran.both += (await claim([both.name], 10, 10, { worker: second })).jobs.length)
      for (const turn of ms % 100 === 0 ? [first, next] : [next, first]) await turn()
    }
    expect(ran.one + ran.both).toBeGreaterThanOrEqual(38)
    expect(ran.both).toBeGreaterThanOrEqual(8)
    const times = await granted(vendor.name)
    for (const [i, us] of times.entries()) expect(us - (times[i - 1] ?? -Infinity)).toBeGreaterThanOrEqual(51_000)
  })

  it('lanes that wait for one limit are granted instants in turn', async () => {
    await at.clock.set(startMs)
    const vendor = vendorAt('20/s')
    const call = quietTask(`call-${names}`, [vendor])
    for (const priority of [1, 2, 3]) await at.sluice.sendMany(call, Array(20).fill({}), { priority })
    const waits: number[] = []
    for (let looks = 0; looks < 8; looks++) waits.push(...(await claim([call.name], 10, 10)).waits)
    // Half of the horizon ahead, so that a later claim finds several.
    expect(waits).toEqual([0, 51_250, 102_500])
    await at.clock.set(startMs + 100)
    for (let looks = 0; looks < 8; looks++) waits.push(...(await claim([call.name], 10, 10)).waits)
    expect(waits.slice(3)).toEqual([53_750, 105_000])
  })

  it('a job that goes back before its instant gives back the last grant, and none for which later ones stand', async () => {
    await at.clock.set(startMs)
    const call = quietTask(`call-${names + 1}`, [vendorAt('20/s')])
    await at.sluice.sendMany(call, Array(20).fill({}))
    await claim([call.name], 10, 10)
    await at.clock.set(startMs + 1_000)
    const { jobs, waits } = await claim([call.name], 10, 10)
    const at0 = (i: number) => jobs.find(({ fromMs = 0 }) => Math.round(fromMs * 1_000) === waits[i]) as never
    await finish(at.db, [{ job: at0(1), outcome: 'unused' }], [])
    expect((await claim([call.name], 10, 10)).waits.filter((us) => us < (waits[4] ?? 0))).toEqual([])
  })
})
