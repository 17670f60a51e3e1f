/** Pools: any member will do, each has the whole limit, and the claim takes the one with the most room. */
import { describe, expect, it } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import type { Queryable } from '../../src/db/db.ts'
import { hash64 } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { rescue } from '../fleet/engine.ts'
import { hold, unitsUsed } from '../limits/engine.ts'
import {
  changeWorkers,
  claim,
  claimAll,
  type Claimed,
  count,
  done,
  emptied,
  enter,
  finish,
  mainEngines,
  quietTask,
} from './engine.ts'
import { idleWorkers } from '../store/engine.ts'
import { copies } from '../rows.ts'

const rows = (n: number, tenant = 'a') => copies(n, { tenant })
const any = quietTask('any', [limit('sender', { window: '3/h', pool: ['a', 'b', 'c'] })])
const seats = quietTask('seats', [limit('seat', { concurrency: 2, pool: ['a', 'b'] })])

/** How often each member is charged for jobs in hand. */
async function inHand(db: Queryable, at = 1): Promise<Record<string, number>> {
  const found = await db.query<{ hold: string; n: number }>(
    `select charged_buckets[$1] as hold, count(*)::int as n from sluice.job where claim is not null group by 1 order by 1`,
    [at],
  )
  return Object.fromEntries(found.map(({ hold, n }) => [hold, n]))
}

for (const engine of mainEngines) {
  describe(`on ${engine.name}`, () => {
    const at = emptied(engine)
    const more = (task: string, want = 20) => claimAll(at.db, at.worker, [task], want)

    it('each member of a pool has the whole limit, and one claim may take all room of all members', async () => {
      await at.sluice.sendMany(any, rows(20))
      const { jobs } = await claim(at.db, at.worker, ['any'], 20)
      expect(jobs).toHaveLength(9)
      expect(await inHand(at.db)).toEqual({ 'sender:a': 3, 'sender:b': 3, 'sender:c': 3 })
      const answer = await claim(at.db, at.worker, ['any'], 20, undefined, { idle: true })
      expect(answer).toMatchObject({ jobs: [], again: false })
      expect(answer.wakeUs).toBeGreaterThan(1_000_000_000)
      const [lane] = await at.db.query('select list from sluice.lane where list is not null')
      expect(lane).toEqual({ list: hash64('sender*') })
      expect(await count(at.db, `sluice.ledger where bucket = ${hash64('sender*')}`)).toBe(0)
    })

    it('a claim charges one member for one job, and writes nothing for the others', async () => {
      await at.sluice.send(any, { tenant: 'a' })
      expect((await claim(at.db, at.worker, ['any'], 1)).jobs).toHaveLength(1)
      expect(await count(at.db, 'sluice.ledger')).toBe(1)
    })

    it('jobs go to the member with the most room', async () => {
      await at.sluice.sendMany(any, rows(20))
      for (let taken = 0; taken < 6; taken++) await claim(at.db, at.worker, ['any'], 1)
      expect(await inHand(at.db)).toEqual({ 'sender:a': 2, 'sender:b': 2, 'sender:c': 2 })
      await hold(at.db, ['sender:b'], 3_600_000_000)
      expect(await more('any')).toHaveLength(2)
      expect(await inHand(at.db)).toEqual({ 'sender:a': 3, 'sender:b': 2, 'sender:c': 3 })
    })

    it.each(['done', 'retry', 'unused', 'lost', 'cancelled'])(
      'an attempt that ends as %s frees a place of its member',
      async (end) => {
        await at.sluice.sendMany(seats, rows(10))
        const jobs = await more('seats')
        expect(await inHand(at.db)).toEqual({ 'seat:a': 2, 'seat:b': 2 })
        expect(await more('seats')).toEqual([])
        const [job] = await at.db.query<{ id: string }>(
          `select id from sluice.job where charged_buckets = '{seat:b}' limit 1`,
        )
        const ending = jobs.find(({ id }) => id === job?.id) as Claimed
        if (end === 'lost') await rescue(at.db, at.worker)
        else if (end === 'cancelled') await at.sluice.jobs.cancel(ending.id)
        else await finish(at.db, [{ job: ending, outcome: end, delayUs: 3_600_000_000 }], [])
        if (end === 'lost') at.worker = await enter(at.db)
        expect(await more('seats')).toHaveLength(end === 'lost' ? 4 : 1)
        expect(await inHand(at.db)).toEqual({ 'seat:a': 2, 'seat:b': 2 })
      },
    )

    it('a grant that is given back makes room at its member, and a waiting lane is claimed again', async () => {
      await at.sluice.sendMany(any, rows(20))
      const jobs = await more('any')
      expect(await more('any')).toEqual([])
      await finish(at.db, [{ job: jobs[0] as Claimed, outcome: 'unused', delayUs: 3_600_000_000 }], [])
      expect(await more('any')).toHaveLength(1)
      expect(await inHand(at.db)).toEqual({ 'sender:a': 3, 'sender:b': 3, 'sender:c': 3 })
    })

    it('room at a member notifies an idle worker', async () => {
      await at.sluice.sendMany(seats, rows(10))
      const jobs = await more('seats')
      const idle = await enter(at.db)
      await changeWorkers(at.db, { tasks: ['seats'] })
      await claim(at.db, idle, ['seats'], 1, undefined, { idle: true })
      expect(await idleWorkers(at.db)).toHaveLength(1)
      await done(at.db, jobs.slice(0, 1))
      expect(await idleWorkers(at.db)).toEqual([])
    })

    it('a pool holds together with a plain limit, a keyed one and a label', async () => {
      const mixed = quietTask('mixed', [
        limit('all', { window: '7/h' }),
        limit('tenant', { window: '4/h', by: (input: { tenant?: string | undefined }) => input.tenant ?? '' }),
        limit('from', { window: '2/h', pool: ['x', 'y', 'z'] }),
        limit('box', { window: '5/h', by: label('host') }),
      ])
      await at.sluice.sendMany(mixed, [...rows(10, 'a'), ...rows(10, 'b')])
      await changeWorkers(at.db, { labels: { host: 'one' } })
      expect(await more('mixed')).toHaveLength(5)
      expect(await inHand(at.db, 4)).toEqual({ 'box:one': 5 })
      const other = await enter(at.db, [], { host: 'two' })
      expect(await claimAll(at.db, other, ['mixed'], 20)).toHaveLength(1)
      expect(await inHand(at.db, 3)).toEqual({ 'from:x': 2, 'from:y': 2, 'from:z': 2 })
      const units = await at.db.query<{ name: string; units: number }>(
        `select b.name, sum(l.units)::int as units from sluice.ledger l join sluice.bucket b on b.id = l.bucket group by 1 order by 1`,
      )
      expect(units.map(({ units: sum }) => sum)).toEqual([6, 6, 6, 6])
      const used = await at.db.query<{ key: string; units: number }>(
        `select b.key, sum(l.units)::int as units from sluice.ledger l join sluice.bucket b on b.id = l.bucket where b.name = 'tenant' group by 1`,
      )
      for (const { units: sum } of used) expect(sum).toBeLessThanOrEqual(4)
    })

    it('a job with a cost goes to a member that has as much, and waits while no member has', async () => {
      const tokens = quietTask('tokens', [
        limit('token', {
          window: '10/h',
          pool: ['a', 'b'],
          cost: (input: { n?: number | undefined }) => input.n ?? 1,
        }),
      ] as never)
      await at.sluice.sendMany(
        tokens,
        [6, 6, 3, 4, 2].map((n) => ({ n })),
      )
      for (let looks = 0; looks < 6; looks++) await more('tokens')
      const found = await at.db.query<{ hold: string; units: number }>(
        `select charged_buckets[1] as hold, sum(costs[1])::int as units from sluice.job where claim is not null group by 1 order by 1`,
      )
      expect(found.reduce((sum, { units }) => sum + units, 0)).toBe(19)
      for (const { units } of found) expect(units).toBeLessThanOrEqual(10)
      expect(await unitsUsed(at.db)).toEqual(
        Object.fromEntries(found.map(({ hold: member, units }) => [member, units])),
      )
      const jobs = await at.db.query<{ costs: number[] }>('select costs from sluice.job where claim is null')
      expect(jobs).toHaveLength(1)
      const answer = await claim(at.db, at.worker, ['tokens'], 5, undefined, { idle: true })
      expect(answer).toMatchObject({ jobs: [], again: false })
    })

    it('a changed pool gives waiting jobs its new members at once, and counts running jobs at the old ones', async () => {
      await at.sluice.sendMany(seats, rows(20))
      await more('seats')
      await defineLimit(sqlOn(at.db), limit('seat', { concurrency: 2, pool: ['b', 'c', 'd'] }), 'later')
      expect(await more('seats')).toHaveLength(4)
      expect(await inHand(at.db)).toEqual({ 'seat:a': 2, 'seat:b': 2, 'seat:c': 2, 'seat:d': 2 })
      await rescue(at.db, at.worker)
      at.worker = await enter(at.db)
      expect(await more('seats')).toHaveLength(6)
      expect(await inHand(at.db)).toEqual({ 'seat:b': 2, 'seat:c': 2, 'seat:d': 2 })
      await defineLimit(sqlOn(at.db), limit('seat', { concurrency: 2, pool: ['a', 'b'] }), 'later')
    })

    it('one member can be paused while the others go on', async () => {
      await at.sluice.sendMany(any, rows(20))
      await at.sluice.pause({ limit: 'sender', key: 'b' }, { reason: 'banned' })
      expect(await more('any')).toHaveLength(6)
      expect(await inHand(at.db)).toEqual({ 'sender:a': 3, 'sender:c': 3 })
      await at.sluice.resume({ limit: 'sender', key: 'b' })
      expect(await more('any')).toHaveLength(3)
    })

    it('a parked member has no room: claims do not go round, and other jobs get what they share with those that wait', async () => {
      const total = limit('total', { window: '3/h' })
      const [pooled, alone] = [
        quietTask('pooled', [total, limit('member', { concurrency: 1, pool: ['a', 'b'] })]),
        quietTask('alone', [total]),
      ]
      const names = [pooled.name, alone.name]
      const look = () => claim(at.db, at.worker, names, 5, undefined, { idle: true })
      await at.sluice.sendMany(pooled, rows(3))
      expect((await look()).jobs).toHaveLength(2)
      await at.db.query(`update sluice.bucket set parked = true where name = 'member' and key <> '*'`)
      const { again, wakeUs } = await look()
      expect(again).toBe(false)
      expect(wakeUs ?? Infinity).toBeGreaterThan(1_000_000_000)
      const [job] = await at.db.query<{ id: string }>('select id from sluice.job where claim is null')
      expect((await at.sluice.why(job?.id ?? ''))?.reasons.map(({ kind }) => kind)).not.toContain('slots')
      await at.sluice.sendMany(alone, rows(1))
      expect((await look()).jobs).toHaveLength(1)
    })

    it('the explanation of a job shows that no member has room, and when one will', async () => {
      await at.sluice.sendMany(any, rows(10))
      await more('any')
      const [waiting] = await at.sluice.list({ state: 'waiting' })
      const why = await at.sluice.why(waiting?.id ?? '')
      const reason = why?.reasons.find(({ kind }) => kind === 'limit')
      expect(reason?.text).toBe('sender (3/h for any of its 3 members) is used up')
      expect(reason?.notBefore?.getTime()).toBeGreaterThan(Date.now() + 1_800_000)
    })
  })
}
