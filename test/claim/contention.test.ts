import { afterAll, describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { openPg } from '../../src/db/pg.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { type Limit, limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { later, until } from '../until.ts'
import { isLong } from '../long.ts'
import { unitsUsed } from '../limits/engine.ts'
import { claim, claimsInHand, count, type Ending, enter, finish, perTenant, quietTask } from './engine.ts'
import { letClaimsWait } from './engine-parts.ts'
import { jobsLeft } from '../store/engine.ts'

const seconds = isLong ? 60 : 1
/** How many jobs are sent, about: a fast machine would send 5,000 a second, and take minutes to end them. */
const most = isLong ? 20_000 : 2_000
const claimers = 8
const open: Sluice[] = []
afterAll(() => Promise.all(open.map((sluice) => sluice.close())))

interface Ran {
  id: string
  attempt: number
}

/** Counts deadlocks, and lets everything else through. */
function deadlocks() {
  let seen = 0
  return {
    get seen() {
      return seen
    },
    async watch<T>(work: () => Promise<T>): Promise<T | undefined> {
      try {
        return await work()
      } catch (error) {
        if ((error as { code?: string }).code !== '40P01') throw error
        seen++
        return undefined
      }
    },
  }
}

/** @param names of tasks that share the limits. A claimer serves one: claims of the other lock other classes. */
async function load(bucket: { rate: '40/s' | '1000000/s'; burst?: number }, lanes: number, names: readonly string[]) {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url, connections: 4 })
  open.push(sluice)
  const shared = limit('shared', bucket)
  const limits = lanes === 1 ? [shared] : [shared, perTenant('own', '1000000/s', 1_000_000)]
  const tasks = names.map((name) => quietTask(name, limits))
  const db = openPg({ url, connections: claimers, clock: systemClock })
  // They give up about as early as the server looks for deadlocks, so none would ever be seen.
  await letClaimsWait(db)
  const trap = deadlocks()
  const ran: Ran[] = []
  const counted = new Set<string>()
  let isSending = true
  let isBroken = false
  let sent = 0
  const send = async (n: number, i: number) => {
    sent += n * tasks.length
    const inputs = Array.from({ length: n }, (_, k) => ({ n: i, tenant: `tenant-${(i * 7 + k) % lanes}` }))
    await Promise.all(tasks.map((task) => sluice.sendMany(task, inputs)))
  }
  const sender = async () => {
    const endMs = systemClock.monotonicMs() + seconds * 1_000
    for (let i = 0; (systemClock.monotonicMs() < endMs && sent < most) || sent < 20 * seconds; i++)
      await send(1 + (i % 7), i)
  }
  const claimer = async (name: string) => {
    const worker = await enter(db)
    while (!isBroken) {
      const isLast = !isSending
      const answer = await trap.watch(() => claim(db, worker, [name], 20, undefined, { idle: true }))
      if (answer === undefined) continue
      for (const job of answer.jobs) ran.push({ id: job.id, attempt: job.attempt })
      const endings = answer.jobs.map((job): Ending => {
        const dice = systemClock.random()
        if (dice < 0.1) counted.add(`${job.id} ${job.attempt}`)
        return dice < 0.1
          ? { job, outcome: 'return' }
          : dice < 0.25
            ? { job, outcome: 'retry', delayUs: 20_000 }
            : { job, outcome: 'done' }
      })
      if (endings.length > 0) while ((await trap.watch(() => finish(db, endings))) === undefined) continue
      if (isLast && (await jobsLeft(db)) === 0) return
    }
  }
  const working = later(Promise.all(Array.from({ length: claimers / names.length }, () => names.map(claimer)).flat()))
  try {
    await Promise.all([sender(), sender()])
    // A binding limit cannot drain everything in time; so the next version of the definition raises its rate.
    if (bucket.rate === '40/s') {
      await send(1_000, 0)
      const half = guaranteed(shared) / 2
      await until(
        async () => (await charged(sluice)) > 3 * half && (await worst(sluice)) > half,
        'more than a window is used',
      )
      expect(await jobsLeft(sluice.db)).toBeGreaterThan(0)
      await lift(sluice)
    }
    isSending = false
    await working
  } finally {
    isBroken = true
    await Promise.allSettled([working])
    await db.close()
  }
  return { sluice, shared, trap, ran, counted, sent }
}

async function lift(sluice: Sluice): Promise<void> {
  await sluice.db.query(
    `insert into sluice.limit_def (name, version, spec, kind, drain, weight, capacity, part_us, span, grant_us, created_at)
     select name, version + 1, '{}', '{rate}', '{1000}', '{1}', '{1000000}', '{0}', '{1}', grant_us, sluice.now() from sluice.limit_def where name = 'shared'`,
  )
  await sluice.db.query('update sluice.list set due = 0 where due is not null')
}

/** All units of the limit that claims have charged. */
async function charged(sluice: Sluice): Promise<number> {
  return (await unitsUsed(sluice.db))['shared'] ?? 0
}

/** The most units that any window may hold. */
const guaranteed = (shared: Limit) => guarantees(shared)[0]?.worst ?? 0

/** The most units that any half-open window of a second holds, by the ledger's rows under the first definition. */
async function worst(sluice: Sluice): Promise<number> {
  const [row] = await sluice.db.query<{ worst: string }>(
    `select max(w.units) as worst from sluice.ledger l join sluice.bucket b on b.id = l.bucket and b.name = 'shared'
     cross join lateral (select sum(o.units) as units from sluice.ledger o
       where o.bucket = l.bucket and o.version = 1 and o.at >= l.at and o.at < l.at + 1000000) w where l.version = 1`,
  )
  return Number(row?.worst)
}

describe.each([
  { bucket: { rate: '1000000/s', burst: 1_000_000 }, lanes: 1, names: ['t'] },
  { bucket: { rate: '1000000/s', burst: 1_000_000 }, lanes: 50, names: ['t'] },
  { bucket: { rate: '40/s' }, lanes: 1, names: ['t'] },
  { bucket: { rate: '40/s' }, lanes: 50, names: ['t'] },
  { bucket: { rate: '40/s' }, lanes: 50, names: ['t', 'u'] },
] as const)('8 claimers on one limit of $bucket.rate and $lanes lanes of $names', ({ bucket, lanes, names }) => {
  it(
    'never deadlock, run each attempt once, end all jobs, and keep the limit',
    async () => {
      const { sluice, shared, trap, ran, counted, sent } = await load(bucket, lanes, names)
      expect(trap.seen).toBe(0)
      expect(await count(sluice.db, `sluice.done where state = 'done'`)).toBe(sent)
      // A returned attempt does not count, so its number is used again.
      const attempts = ran
        .filter(({ id, attempt }) => !counted.has(`${id} ${attempt}`))
        .map(({ id, attempt }) => `${id} ${attempt}`)
      expect(attempts.length).toBe(new Set(attempts).size)
      expect(await claimsInHand(sluice.db)).toBe(0)
      expect(await charged(sluice)).toBe(ran.length)
      expect(await worst(sluice)).toBeLessThanOrEqual(guaranteed(shared))
      if (bucket.rate === '40/s') expect(await worst(sluice)).toBeGreaterThan(guaranteed(shared) / 2)
    },
    120_000 + seconds * 10_000,
  )
})
