/** Jobs that another client has locked: nothing else is lost or delayed by that. */
import { expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { Finisher } from '../../src/claim/finish/finish.ts'
import {
  claim,
  claimAll,
  claimsInHand,
  count,
  emptied,
  engines,
  enter,
  perTenant,
  quietTask,
  workerIds,
} from './engine.ts'
import { suspect, watchWorkers, workerRound } from '../fleet/engine.ts'
import { lockJob } from '../servers/stranger.ts'
import { until } from '../until.ts'

const quiet = quietTask('quiet')
const at = emptied(engines[0])

it('the claim of a locked job stays beside a bad result', async (context) => {
  await at.sluice.sendMany(quiet, [{ n: 0 }, { n: 1 }, { n: 2 }])
  const jobs = (await claimAll(at.db, at.worker, ['quiet'], 3)) as unknown as ClaimedJob[]
  const finisher = new Finisher(storeOn(at.db))
  finisher.registerJobs(jobs)
  const free = await lockJob(context, at.sluice.url, jobs[2]?.id)
  const end = (job: ClaimedJob | undefined, result: string) =>
    finisher.end(job as ClaimedJob, { kind: 'done', result, tookMs: 1 })
  const ends = [end(jobs[0], '1'), end(jobs[1], '"\\u0000"')]
  const last = end(jobs[2], '3')
  await Promise.all(ends)
  expect(await claimsInHand(at.db)).toBe(1)
  await free()
  expect(await last).toBe(true)
  await until(async () => (await claimsInHand(at.db)) === 0, 'ended')
})

it('another worker is found lost while the job of a lost one is locked', async (context) => {
  const [a, b] = [await enter(at.db), await enter(at.db)]
  await at.sluice.sendMany(quiet, [{ n: 0 }, { n: 1 }])
  const locked = (await claim(at.db, a, ['quiet'], 1)).jobs[0]
  await claim(at.db, b, ['quiet'], 1)
  await watchWorkers(at.db)
  await suspect(at.db, [a])
  await lockJob(context, at.sluice.url, locked?.id)
  await until(async () => {
    await watchWorkers(at.db).catch(() => [])
    await workerRound(at.db, at.worker)
    return !(await workerIds(at.db)).includes(b)
  }, 'b is rescued')
})

it('a worker comes back for a due job that another client has locked four times a second, not more often', async (context) => {
  const id = await at.sluice.send(quiet, {}, { delay: '1ms' })
  await lockJob(context, at.sluice.url, id)
  await until(async () => (await count(at.db, 'sluice.job where due_at <= sluice.now()')) === 1, 'due')
  expect(await claim(at.db, at.worker, ['quiet'], 1)).toMatchObject({ jobs: [], again: false, wakeUs: 250_000 })
})

it('claims of one job pass over tenants whose jobs are locked', async (context) => {
  const each = quietTask('each', [perTenant('each', '1000/s')])
  const ids: string[] = []
  for (const tenant of ['a', 'b', 'c', 'd']) ids.push(await at.sluice.send(each, { tenant }))
  const free = []
  for (const id of ids.slice(0, 2)) free.push(await lockJob(context, at.sluice.url, id))
  const claimed: (string | undefined)[] = []
  const look = async () => claimed.push(...(await claim(at.db, at.worker, ['each'], 1)).jobs.map(({ id }) => id))
  for (let looks = 0; looks < 6; looks++) await look()
  expect(claimed).toEqual(ids.slice(2))
  for (const one of free) await one()
  for (let looks = 0; looks < 2; looks++) await look()
  expect(new Set(claimed)).toEqual(new Set(ids))
})

it('a claim that meets a locked job is followed at once by another for the lanes that it did not read', async (context) => {
  const each = quietTask('each', [perTenant('each', '1000/s')])
  await at.sluice.sendMany(
    each,
    Array.from({ length: 24 }, (_, i) => ({ tenant: `t${i}` })),
  )
  const ids = (await at.db.query<{ id: string }>('select id from sluice.job order by seq')).map(({ id }) => id)
  for (const id of [ids[0], ids[9], ids[17]]) await lockJob(context, at.sluice.url, id)
  let claimed = 0
  let found
  do {
    found = await claim(at.db, at.worker, ['each'], 4)
    claimed += found.jobs.length
  } while (found.again || found.jobs.length === 4)
  expect(claimed).toBe(21)
})
