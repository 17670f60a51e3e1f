/** The cost of a claim when much waits, and what is deleted when nothing waits. */
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import type { Queryable } from '../../src/db/db.ts'
import { limit } from '../../src/limits/limit.ts'
import {
  blocked,
  claim,
  claimAll,
  claimsInHand,
  count,
  done,
  emptied,
  engines,
  perTenant,
  quietTask,
  tenantInput,
} from './engine.ts'
import { costOfClaim, deleteLanes, lockClasses } from './engine-parts.ts'
import { task } from '../../src/tasks/task.ts'
import { later, until } from '../until.ts'
import { queryable } from '../servers/database.ts'

const at = emptied(engines[0])

/**
 * How many pages the server looks at for a claim of ten: the least of four, because a claim that has to plan its statements
 * reads the catalog.
 */
async function pages(db: Queryable, worker: string, name: string, ahead = 0): Promise<number> {
  const all: number[] = []
  for (let n = 0; n < 4; n++) all.push((await costOfClaim(db, worker, [name], 10, { ahead })).pages)
  return Math.min(...all)
}

describe('a claim', () => {
  it('of a fair key with thousands of lanes costs as much as it grants', async () => {
    const { sluice, db, worker } = at
    // All users of one account are one fair key: its first keyed limit is the account's.
    const account = limit('account', {
      rate: '100000/s',
      by: (input: { tenant?: string | undefined }) => input.tenant ?? '',
    })
    const users = limit('user', { rate: '1000/s', by: (input: { n?: number | undefined }) => String(input.n) })
    const crowd = task('crowd', { input: tenantInput, limits: [account, users], run: () => undefined })
    const measured: number[] = []
    for (const users of [100, 1_900]) {
      await sluice.sendMany(
        crowd,
        Array.from({ length: users }, (_, n) => ({ tenant: 'a', n: n + measured.length * 1_000 })),
      )
      // In portions of 1,000 lanes.
      for (let i = 0; i < 10; i++) await claim(db, worker, ['crowd'], 1)
      measured.push(await pages(db, worker, 'crowd'))
    }
    expect((measured[1] ?? 0) / (measured[0] ?? 1)).toBeLessThan(3)
  })

  it('among thousands of fair keys costs as much as among some, also where it grants ahead', async () => {
    const { sluice, db, worker } = at
    const [own, total] = [perTenant('each', '1/day', 1), limit('total', { rate: '50/s', burst: 20 })]
    const measured: { free: number; ahead: number }[] = []
    for (const [i, tenants] of [50, 1_500].entries()) {
      const slow = quietTask(`slow.${i}`, [own, total])
      const keyed = Array.from({ length: tenants }, (_, n) => ({ tenant: `${i}.${n}` }))
      // Each tenant has used up its day, and another job of it waits for the next.
      await sluice.sendMany(quietTask('many', [own]), keyed)
      await done(db, await claimAll(db, worker, ['many'], tenants))
      await sluice.sendMany(slow, keyed)
      expect(await claimAll(db, worker, [slow.name], 1)).toEqual([])
      const fresh = Array.from({ length: 120 }, (_, n) => ({ tenant: `${i}.free.${n}` }))
      await sluice.sendMany(quietTask('wide', [perTenant('plenty', '10000/s', 1_000)]), [...keyed, ...fresh])
      await sluice.sendMany(slow, fresh)
      for (const name of ['wide', slow.name]) for (let n = 0; n < 5; n++) await claim(db, worker, [name], 10)
      measured.push({ free: await pages(db, worker, 'wide'), ahead: await pages(db, worker, slow.name, 20) })
    }
    const [few, many] = measured
    expect((many?.free ?? 0) / (few?.free ?? 1)).toBeLessThan(1.5)
    expect((many?.ahead ?? 0) / (few?.ahead ?? 1)).toBeLessThan(1.5)
  })

  it('reads thousands of new tenants in portions, and serves all of them', async () => {
    const { sluice, db, worker } = at
    const flood = quietTask('flood', [perTenant('own', '10/s')])
    await sluice.sendMany(
      flood,
      Array.from({ length: 2_500 }, (_, n) => ({ tenant: `t${n}` })),
    )
    await claim(db, worker, ['flood'], 1)
    expect(await count(db, 'sluice.lane where list is not null')).toBe(1_000 - 1)
    expect(await claimAll(db, worker, ['flood'], 2_499)).toHaveLength(2_499)
  })
})

it('thousands of sends of one tenant are read in as few portions as those of thousands of tenants', async () => {
  const { sluice, db, worker } = at
  const busy = quietTask('busy', [perTenant('busy', '1/h')])
  await sluice.send(busy, { tenant: 'a' })
  expect((await claim(db, worker, ['busy'], 1)).jobs).toHaveLength(1)
  await db.query(
    `insert into sluice.arrival (xid, class, lane, pos, n)
     select pg_current_xact_id(), class, id, bound + i, 1 from sluice.lane, generate_series(1, 5000) i`,
  )
  const unread = async () =>
    count(db, '(select * from sluice.class_state order by n desc limit 1) s where target is not null')
  for (const isLeft of [1, 1, 1, 1, 1, 0]) {
    await claim(db, worker, ['busy'], 1)
    expect(await unread()).toBe(isLeft)
  }
  const [state] = await db.query('select waiting::int from sluice.class_state order by n desc limit 1')
  expect(state).toEqual({ waiting: 5_000 })
})

it('lanes and fair keys without waiting jobs are deleted, and created again when needed', async () => {
  const { sluice, db, worker } = at
  const quiet = quietTask('quiet', [perTenant('wide', '10000/s')])
  const send = (tenants: string[]) =>
    sluice.sendMany(
      quiet,
      tenants.map((tenant) => ({ tenant })),
    )
  await send(['a', 'b', 'c', 'c'])
  const first = await claimAll(db, worker, ['quiet'], 3)
  await done(db, first)
  await sluice.prune()
  expect(await count(db, 'sluice.lane')).toBe(1)
  await send(['a', 'd'])
  const rest = await claimAll(db, worker, ['quiet'], 3)
  expect(rest).toHaveLength(3)
  await done(db, rest)
  await sluice.prune()
  expect(await count(db, 'sluice.lane')).toBe(0)
  await send(['a'])
  expect(await claimAll(db, worker, ['quiet'], 1)).toHaveLength(1)
})

it('a lane that empties while its class is not locked, and fills again, is not deleted', async () => {
  const { sluice, db, worker } = at
  const [locked, free] = [
    quietTask('locked', [perTenant('a', '10000/s')]),
    quietTask('free', [perTenant('b', '10000/s')]),
  ]
  const run = async (name: string, n: number) => done(db, await claimAll(db, worker, [name], n))
  await sluice.send(locked, { tenant: 'x' })
  await run('locked', 1)
  await sluice.sendMany(free, [{ tenant: 'y' }, { tenant: 'y' }])
  await run('free', 1)
  const [claimer, collector] = [new pg.Client(sluice.url), new pg.Client(sluice.url)]
  try {
    await Promise.all([claimer.connect(), collector.connect()])
    await claimer.query('begin')
    await lockClasses(queryable(claimer), 'locked')
    await collector.query('begin')
    const collected = later(deleteLanes(queryable(collector)))
    await until(async () => (await blocked(db)) > 0, 'it waits for the class')
    await run('free', 1)
    await claimer.query('commit')
    await collected
    await sluice.send(free, { tenant: 'y' })
    const claimed = later(claim(db, worker, ['free'], 1))
    await until(async () => (await blocked(db)) > 0 || (await claimsInHand(db)) > 0, 'it claims')
    await collector.query('commit')
    expect((await claimed).jobs).toHaveLength(1)
  } finally {
    await Promise.all([claimer.end(), collector.end()])
  }
})
