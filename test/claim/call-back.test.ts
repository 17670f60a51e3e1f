/** What was granted ahead of time and has not begun, when what allowed it changes. */
import pg from 'pg'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { readCallBack } from '../../src/claim/ahead-jobs.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { hash64 } from '../../src/core/hash.ts'
import { limit, type Sluice, task } from '../../src/index.ts'
import { Sluice as Store } from '../../src/sluice.ts'
import { freshDatabase, queryable } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { hold as holdBuckets } from '../limits/engine.ts'

const reason = 'test'
const ran = new Set<string>()
const bell = limit('bell', { rate: '50/s' })
const ring = task('ring', { limits: [bell], run: (_: object, ctx) => void ran.add(ctx.job.id) })
let sluice: Sluice
let admin: pg.Client

beforeEach(async () => {
  ran.clear()
  const { url } = await freshDatabase()
  admin = new pg.Client(url)
  await admin.connect()
  sluice = await Store.open({ store: url })
  await sluice.sendMany(ring, copies(2_000))
  await sluice.work([ring], { concurrency: 10 })
})

afterEach(async () => {
  await sluice.close()
  await admin.end()
})

/** Resolves to the ids of the jobs that were granted ahead and wait for their instants, as soon as there are five, the last first. */
async function granted(): Promise<string[]> {
  let ids: string[] = []
  await until(async () => {
    const { rows } = await admin.query<{ id: string }>(
      'select id from sluice.job where claim is not null and dispatched_at > sluice.now() order by dispatched_at desc',
    )
    ids = rows.map(({ id }) => id)
    return ids.length >= 5
  }, 'jobs are granted ahead')
  return ids
}

/** Resolves to how many of these jobs went back, when all have begun or gone back. */
async function wentBack(ids: readonly string[]): Promise<number> {
  let back: string[] = []
  await until(async () => {
    const { rows } = await admin.query<{ id: string }>(
      'select id from sluice.job where id = any ($1) and claim is not null',
      [ids],
    )
    const held = new Set(rows.map(({ id }) => id))
    back = ids.filter((id) => !ran.has(id))
    return back.every((id) => !held.has(id))
  }, 'each has begun, or gone back')
  return back.length
}

const hold = (us: number) => holdBuckets(queryable(admin), ['bell'], us, 0)

it.each([
  {
    what: 'somebody pauses the limit',
    stop: () => sluice.pause({ limit: 'bell' }, { reason }),
    go: () => sluice.resume({ limit: 'bell' }),
  },
  {
    what: 'somebody pauses the queue',
    stop: () => sluice.pause({ queue: '*' }, { reason }),
    go: () => sluice.resume({ queue: '*' }),
  },
  { what: 'the limit is held', stop: () => hold(1_000_000), go: () => Promise.resolve() },
  {
    what: 'somebody lowers the limit',
    stop: () => sluice.limits.set('bell', { rate: '1/min' }, { reason }),
    go: () => sluice.limits.set('bell', { rate: '50/s' }, { reason }),
  },
])('jobs go back before their instants when $what', async ({ stop, go }) => {
  // On a busy machine the notification may come after their instants.
  let back = 0
  for (let round = 0; round < 15 && back === 0; round++) {
    const ids = await granted()
    await stop()
    back = await wentBack(ids)
    await go()
  }
  expect(back).toBeGreaterThan(0)
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
})

it('a job waits, and shows until when, before its instant; cancelled then, it goes back', async () => {
  const shown: unknown[] = []
  let back = 0
  for (let round = 0; round < 15 && (back === 0 || shown.length === 0); round++) {
    const id = (await granted())[0] ?? ''
    const [job, why] = [await sluice.jobs.get(id), await sluice.why(id)]
    if (job !== undefined && why?.reasons[0]?.kind === 'granted') {
      const isInstant = why.notBefore?.getTime() === job.dispatchedAt?.getTime()
      shown.push([job.state, job.startedAt, job.attempt, why.state, isInstant])
    }
    // On a busy machine it may have ended by now.
    if (!(await sluice.jobs.cancel(id, reason))) continue
    back += await wentBack([id])
    // It may have begun all the same, before its worker knew.
    const after = await sluice.jobs.get(id)
    expect(after).toMatchObject({ state: 'cancelled', ambiguous: true })
    expect(Number(after?.startedAt)).toBeLessThanOrEqual(Number(after?.finishedAt))
  }
  expect(back).toBeGreaterThan(0)
  expect(shown[0]).toEqual(['waiting', null, 0, 'waiting', true])
  expect(await sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
})

it('a change of one limit leaves what was granted ahead of others', () => {
  const job = { id: 'x', buckets: ['bell:a'] } as unknown as ClaimedJob
  const called = ['*', 'default', '!', '!bell', '!other', `!${hash64('bell:a')}`, `!${hash64('bell')}`, '!y,x']
  expect(called.map((told) => readCallBack(told)?.(job))).toEqual([
    undefined,
    undefined,
    true,
    true,
    false,
    true,
    false,
    true,
  ])
})
