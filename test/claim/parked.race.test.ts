/** Parking beside all other events of jobs, lanes and buckets: nothing is lost, and nothing runs twice. */
import { expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { Claims } from '../../src/claim/claim.ts'
import { isDataError } from '../../src/claim/parking/parked.ts'
import { isLong } from '../long.ts'
import { until } from '../until.ts'
import { type Claimed, done, emptied, engines, enter, perTenant, quietTask } from './engine.ts'
import { rebuildBucket } from './engine-parts.ts'
import { jobsLeft } from '../store/engine.ts'

const at = emptied(engines[0])
const bigintMax = '9223372036854775807'
const waiting = `claim is null and due_at is null order by random() limit 1`
/** Statements that make one job, lane or bucket bad, and that repair all of them. */
const spoils = [
  `update sluice.job set attempt = 2147483647 where id = (select id from sluice.job where ${waiting})`,
  `update sluice.lane set vstart = ${bigintMax} where list is distinct from 1 and id = (select lane from sluice.job where ${waiting})`,
  `update sluice.ledger l set n = ${bigintMax} from (
     select distinct on (k.bucket) k.bucket, k.at as was, k.n from sluice.ledger k
     where k.bucket in (select sluice.hash64(unnest(buckets)) from sluice.job where id = (select id from sluice.job where ${waiting}))
     order by k.bucket, k.at desc, k.n desc limit 1) x
   where (l.bucket, l.at, l.n) = (x.bucket, x.was, x.n) and l.n < ${bigintMax}`,
]
const mends = [
  'update sluice.job set attempt = 0 where attempt = 2147483647',
  `update sluice.ledger l set n = 1 + coalesce((
     select max(k.n) from sluice.ledger k where k.bucket = l.bucket and k.n < ${bigintMax}), 0) where l.n = ${bigintMax}`,
]

it('each job runs once, whatever is parked, released, cancelled, paused and redefined meanwhile', async () => {
  const { sluice, db } = at
  const own = quietTask('race.parked', [perTenant('race.parked', '1000/s', 1_000)])
  const free = quietTask('race.free')
  const names = [own.name, free.name]
  const rounds = isLong ? 60 : 8
  const sent = new Set<string>()
  const run: string[] = []
  const failures: unknown[] = []
  let isOver = false
  let parked = 0

  const work = async () => {
    const worker = await enter(db)
    const claims = new Claims(storeOn(db))
    claims.onParked = (found) => (parked += found.length)
    const who = { worker, queues: undefined, tasks: names }
    while (!isOver) {
      // Data that are repaired during the search are not found.
      const { jobs } = await claims
        .claim(who, 4, { idle: false, ahead: 0 }, new AbortController().signal)
        .catch((error: unknown) => {
          if (isDataError(error)) return { jobs: [] }
          throw error
        })
      run.push(...jobs.map(({ id }) => id))
      if (jobs.length > 0) await done(db, jobs as Claimed[])
    }
  }
  const release = async () => {
    for (const text of mends) await db.query(text)
    // A spoilt number makes a ledger look too long for a claim to renew the bucket: a worker's round rebuilds it.
    let hasMore: boolean | undefined = true
    while (hasMore) hasMore = await rebuildBucket(db)
    for (const { name } of await sluice.parked()) await sluice.release(name)
  }
  const disturb = async () => {
    for (let round = 0; round < rounds; round++) {
      for (let n = 0; n < 12; n++) {
        const id = await sluice.send(n % 3 === 0 ? free : own, { tenant: `t${n % 4}` }, { priority: n % 2 })
        sent.add(id)
        if (n % 6 === 5 && (await sluice.jobs.cancel(id))) sent.delete(id)
      }
      await db.query(spoils[round % spoils.length] ?? '')
      if (round % 4 === 1) await sluice.pause({ limit: 'race.parked', key: 't1' }, { reason: 'test' })
      if (round % 4 === 2) await sluice.limits.set('race.parked', { rate: `${1_000 + round}/s` }, { reason: 'test' })
      if (round % 4 === 3) await sluice.resume({ limit: 'race.parked', key: 't1' })
      if (round % 2 === 1) await release()
    }
    // A bucket that no claim has seen before is bad.
    await db.transaction(async (tx) => {
      const id = await sluice.send(own, { tenant: 't0' }, { tx })
      sent.add(id)
      await tx.query('update sluice.job set attempt = 2147483647 where id = $1', [id])
    })
    await until(() => parked > 0, 'it is parked')
    await sluice.limits.unset('race.parked', { reason: 'test' })
  }
  const all = [work(), work(), work()].map((one) => one.catch((error: unknown) => failures.push(error)))
  await disturb()
  await until(async () => {
    await release()
    return (await jobsLeft(db)) === 0 || failures.length > 0
  }, 'all jobs have run')
  isOver = true
  await Promise.all(all)
  expect(failures).toEqual([])
  // A job that was cancelled while it ran has run.
  expect(run.filter((id) => sent.has(id)).toSorted()).toEqual([...sent].toSorted())
  expect(new Set(run).size).toBe(run.length)
  expect(parked).toBeGreaterThan(0)
  expect(await sluice.parked()).toEqual([])
})
