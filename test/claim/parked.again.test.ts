/** Parked data that still fail after their release, and bad data that belong to no job, lane or bucket. */
import { beforeEach, describe, expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { Claims } from '../../src/claim/claim.ts'
import { limit } from '../../src/limits/limit.ts'
import { hash64 } from '../../src/core/hash.ts'
import { hold, limiterNow, roomOf } from '../limits/engine.ts'
import { wakeForMissedWork } from '../fleet/engine.ts'
import { claimAll, done, emptied, mainEngines, perTenant, quietTask } from './engine.ts'
import { rebuildBucket } from './engine-parts.ts'
import { copies } from '../rows.ts'

const never = new AbortController().signal
const bigintMax = '9223372036854775807'
const by = ({ tenant }: { tenant?: string | undefined }) => tenant ?? ''

describe.each(mainEngines)('bad data on $name', (engine) => {
  const at = emptied(engine)
  let claims: Claims
  beforeEach(() => void (claims = new Claims(storeOn(at.db))))
  /** Ids of all jobs that may begin. */
  const ids = async (...tasks: readonly string[]) => {
    const all: string[] = []
    for (;;) {
      const { jobs, again } = await claims.claim(
        { worker: at.worker, queues: undefined, tasks },
        10,
        { idle: false, ahead: 0 },
        never,
      )
      all.push(...jobs.map(({ id }) => id))
      if (jobs.length === 0 && !again) return all
    }
  }
  const send = async (to: ReturnType<typeof quietTask>, ...tenants: string[]) => {
    const sent: string[] = []
    for (const tenant of tenants) sent.push(await at.sluice.send(to, { tenant }))
    return sent
  }
  /** Changes the newest ledger row of a bucket. */
  const ledger = (name: string, set: string) =>
    at.db.query(
      `update sluice.ledger set ${set} where ctid = (
         select ctid from sluice.ledger where bucket = sluice.hash64($1) order by at desc, n desc limit 1)`,
      [name],
    )

  it('a released bucket that still fails stays parked, and the changes it missed are kept until then', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.still', [limit('parked.still', { concurrency: 2 })])
    await send(own, 'a', 'b')
    const [one] = await claimAll(db, at.worker, [own.name], 1)
    await ledger('parked.still', `n = ${bigintMax}`)
    expect(await ids(own.name)).toEqual([])
    await hold(db, ['parked.still'], 3_600_000_000)
    for (let n = 0; n < 2; n++) {
      expect(await sluice.release('parked.still')).toBe(true)
      expect(await sluice.parked()).toMatchObject([{ name: 'parked.still', code: '22003' }])
    }
    await ledger('parked.still', 'n = 1')
    expect(await sluice.release('parked.still')).toBe(true)
    expect(await sluice.parked()).toEqual([])
    expect(await ids(own.name)).toEqual([])
    const room = roomOf(`array[${hash64('parked.still')}]`, limiterNow())
    const [left] = await db.query(`select r.debt, r.hold > ${limiterNow()} as held from ${room} r`)
    expect(left).toEqual({ debt: ['1'], held: true })
    expect(await done(db, one === undefined ? [] : [one])).toEqual([])
  })

  it('a bad bucket with a new definition does not keep other buckets from the definition', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.renewal', [limit('parked.renewal', { window: '1000/h', by })])
    for (let n = 0; n < 2; n++) {
      await send(own, 'bad', 'good')
      await done(db, await claimAll(db, at.worker, [own.name], 2))
    }
    // So many rows that no claim rebuilds the state within its time.
    await ledger('parked.renewal:bad', `n = ${bigintMax}`)
    await ledger('parked.renewal:good', 'n = 30000')
    await sluice.limits.set('parked.renewal', { window: '900/h' }, { reason: 'test' })
    const [bad = '', good = ''] = await send(own, 'bad', 'good')
    expect(await ids(own.name)).toEqual([])
    const renewed = [await rebuildBucket(db), await rebuildBucket(db), await rebuildBucket(db)]
    expect(renewed).toEqual([true, true, false])
    expect((await sluice.parked()).map(({ name }) => name)).toEqual(['parked.renewal:bad'])
    expect(await ids(own.name)).toEqual([good])
    await ledger('parked.renewal:bad', 'n = 2')
    expect(await sluice.release('parked.renewal:bad')).toBe(true)
    expect(await ids(own.name)).toEqual([bad])
  })

  it.each([
    ['a version', 'jobs', `update sluice.lane set v = ${bigintMax}`],
    ['a silence', undefined, `update sluice.ledger set hold = ${bigintMax}`],
    ['a time', 'job', `update sluice.job set created_at = '-infinity' where seq = (select min(seq) from sluice.job)`],
  ])('%s beyond all bounds stops no job beside it', async (what, kind, spoil) => {
    const { sluice, db } = at
    const own = quietTask('parked.beyond', [perTenant('parked.beyond', '1000/s', 1_000)])
    const beside = quietTask('parked.within')
    await send(own, 'a', 'a', 'a')
    await done(db, await claimAll(db, at.worker, [own.name], 1))
    await db.query(spoil)
    const [good] = await send(beside, '')
    expect(await ids(own.name, beside.name), what).toContain(good)
    expect((await sluice.parked()).map((one) => one.kind)).toEqual(kind === undefined ? [] : [kind])
  })

  it('a due time that no claim can compute stops no other job', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.far')
    const far = await sluice.send(own, {}, { delay: '1h' })
    await db.query(`update sluice.job set due_at = '294270-01-01' where id = $1`, [far])
    const [near] = await send(own, '')
    expect(await ids(own.name)).toEqual([near])
    await expect(wakeForMissedWork(db)).resolves.toBeUndefined()
  })

  it('a class whose turns cannot be compared makes claims fail, and parks none of its jobs', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.lift', [perTenant('parked.lift', '1000/s', 1_000)])
    const beside = quietTask('parked.beside')
    await send(own, 'a', 'b', 'a')
    await send(beside, '')
    await claimAll(db, at.worker, [own.name], 1)
    await db.query(`update sluice.class set lift = ${bigintMax}`)
    await expect(ids(own.name, beside.name)).rejects.toMatchObject({ code: '22003' })
    expect(await sluice.parked()).toEqual([])
  })

  it('a lane whose turn is far too late leaves turns to the classes that follow it', async () => {
    const { db } = at
    const [own, beside] = [quietTask('parked.late'), quietTask('parked.follows')]
    await send(own, '', '')
    await send(beside, '', '')
    const tasks = [own.name, beside.name]
    expect(await claimAll(db, at.worker, tasks, 1)).toHaveLength(1)
    const lane = (vstart: string) =>
      db.query(`update sluice.lane set vstart = ${vstart} where id in (select lane from sluice.job where task = $1)`, [
        own.name,
      ])
    await lane(bigintMax)
    expect(await claimAll(db, at.worker, tasks, 1)).toHaveLength(1)
    await lane('0')
    // A class is at most 64 turns behind another one, and each job takes a turn.
    for (const to of [own, beside]) await at.sluice.sendMany(to, copies(200))
    expect(await ids(...tasks)).toHaveLength(402)
  })
})
