/** Data that make claims fail: they are found, parked and named, stop nothing else, and go on when they are released. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { zones } from '../../src/cli/zones.ts'
import { sqlOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { acquire } from '../takes/engine.ts'
import { task } from '../../src/tasks/task.ts'
import { isLong } from '../long.ts'
import { until } from '../until.ts'
import { limiterNow } from '../limits/engine.ts'
import {
  changeWorkers,
  claimAll,
  count,
  done,
  empty,
  enter,
  mainEngines,
  perTenant,
  quietTask,
  settle,
  tenantInput,
} from './engine.ts'
import { type Bad, bigintMax, parkedOn } from './parked-stage.ts'

describe.each(mainEngines)('a gate whose zone the server does not know, on $name', (engine) => {
  const at = parkedOn(engine)
  it('stays closed, holds back no other jobs, and is listed by name', async () => {
    const { sluice, db } = at
    const [gated, other] = [quietTask('parked.gated'), quietTask('parked.open')]
    await db.query(
      `insert into sluice.gate (name, tasks, zone, from_min, to_min, reason, by, created_at)
       values ('mars', '{parked.gated}', 'Mars/Olympus', 0, 1440, 'office hours', 'test', sluice.now())`,
    )
    const [held = ''] = await at.send(gated, 'a')
    expect(await at.ids([gated.name, other.name])).toEqual([])
    const sent = await at.send(other, 'a')
    expect(await at.ids([gated.name, other.name])).toEqual(sent)
    expect((await sluice.why(held))?.reasons[0]).toMatchObject({ kind: 'paused', gate: 'mars' })
    const found = await zones({ sql: sqlOn(db), schema: 'sluice', isEmbedded: false })
    expect(found).toMatchObject({ status: 'fail', text: expect.stringContaining('mars (Mars/Olympus)') })
    await db.query(`update sluice.gate set zone = 'Europe/Berlin' where name = 'mars'`)
    expect(await at.ids([gated.name, other.name])).toEqual([held])
    expect(await zones({ sql: sqlOn(db), schema: 'sluice', isEmbedded: false })).toMatchObject({ status: 'ok' })
    expect(at.names).toEqual([])
  })
})

describe.each(mainEngines)('the data that make a claim fail, on $name', (engine) => {
  const at = parkedOn(engine)

  it.each([
    ['window', { window: '1000/h' }, `n = ${bigintMax}`, 'n = 1'],
    ['places', { concurrency: 100 }, `debt = '{-9223372036854775808}'`, `debt = '{0}'`],
  ] as const)('are found in a bucket, which is parked: %s', async (kind, rule, corrupt, repair) => {
    const { sluice } = at
    const by = ({ tenant }: { tenant?: string | undefined }) => tenant ?? ''
    const own = quietTask(`parked.bucket.${kind}`, [limit(`parked.${kind}`, { ...rule, by })])
    const name = `parked.${kind}:bad`
    const other = quietTask('parked.other')
    await at.send(own, 'bad', 'good')
    await done(at.db, await claimAll(at.db, at.worker, [own.name], 2))
    await at.ledger(name, corrupt)
    const bad = await at.send(own, 'bad', 'bad')
    const good = await at.send(own, 'good', 'new')
    const others = await at.send(other, '', '')
    const names = [own.name, other.name]
    expect(await at.ids(names)).toEqual([...good, ...others].sort())
    expect(at.names).toEqual([name])
    expect(await sluice.parked()).toMatchObject([{ kind: 'limit', name: name, code: '22003' }])
    const why = await sluice.why(bad[0] ?? '')
    expect(why?.state).toBe('waiting')
    expect(why?.reasons.map(({ kind }) => kind)).toEqual(['parked', 'no-worker'])
    expect(why?.reasons[0]?.text).toContain(`\`sluice release --limit ${name.replace(':', ' --key ')}\``)
    expect((await sluice.jobs.get(bad[1] ?? ''))?.parked).toEqual([expect.stringContaining('sluice release')])
    // The gate stays bad, at no cost to others, and is found only once.
    const more = await at.send(own, 'bad', 'good')
    expect(await at.ids(names)).toEqual([more[1]])
    await expect(acquire(at.db, name)).rejects.toMatchObject({ code: 'SLW04' })
    await at.ledger(name, repair)
    expect(await sluice.release(name)).toBe(true)
    expect(await at.ids(names)).toEqual([...bad, more[0] ?? ''].sort())
    expect(at.names).toHaveLength(1)
    expect(await sluice.parked()).toEqual([])
  })

  it('are found in a bucket that is rebuilt for a changed limit, and parked', async () => {
    const { sluice } = at
    const own = quietTask('parked.rebuilt', [perTenant('parked.rebuilt', '1000/h')])
    await at.send(own, 'bad', 'good')
    await done(at.db, await claimAll(at.db, at.worker, [own.name], 2))
    await at.ledger('parked.rebuilt:bad', `n = ${bigintMax}`)
    await sluice.limits.set('parked.rebuilt', { rate: '2000/h' }, { reason: 'test' })
    const [, good = ''] = await at.send(own, 'bad', 'good')
    expect(await at.ids([own.name])).toEqual([good])
    expect(at.names).toEqual(['parked.rebuilt:bad'])
    await at.ledger('parked.rebuilt:bad', 'n = 1')
    expect(await sluice.release('parked.rebuilt:bad')).toBe(true)
    expect(await at.ids([own.name])).toHaveLength(1)
    await sluice.limits.unset('parked.rebuilt')
  })

  it.each([
    ['its number of attempts', 'attempt = 2147483647', 'attempt = 0'],
    ['the time since which it waits', `since = 'infinity'`, 'since = null'],
  ])('are found in a job, which is parked: %s', async (_, corrupt, repair) => {
    const { sluice } = at
    const own = quietTask('parked.job', [perTenant('parked.job', '1000/s', 1_000)])
    const sent = await at.send(own, 'a', 'a', 'a', 'b')
    const [first = '', bad = '', last = '', beside = ''] = sent
    await at.job(bad, corrupt)
    await at.job(first, corrupt)
    expect(await at.ids([own.name])).toEqual([last, beside].sort())
    expect(at.names.toSorted()).toEqual([first, bad].sort())
    expect(await sluice.jobs.status()).toMatchObject({ waiting: 2, scheduled: 0 })
    const why = await sluice.why(bad)
    expect(why?.state).toBe('waiting')
    expect(why?.reasons[0]).toMatchObject({
      kind: 'parked',
      text: expect.stringContaining(`\`sluice release ${bad}\``),
    })
    expect(await sluice.jobs.get(bad)).toMatchObject({ state: 'waiting', dueAt: null, parked: [expect.any(String)] })
    expect((await sluice.list({ state: 'waiting' })).map(({ id }) => id).sort()).toEqual([first, bad].sort())
    // The job fails again when nothing was repaired, and can be cancelled.
    expect(await sluice.release(first)).toBe(true)
    expect(await at.ids([own.name])).toEqual([])
    expect(at.names).toHaveLength(3)
    expect(await sluice.jobs.cancel(first)).toBe(true)
    expect((await sluice.parked()).map(({ name }) => name)).toEqual([bad])
    expect(await sluice.release(first)).toBe(false)
    await at.job(bad, repair)
    expect(await sluice.release(bad)).toBe(true)
    const [again] = await at.take([own.name])
    expect(again).toMatchObject({ id: bad, attempt: 1 })
    expect(await at.ids([own.name])).toEqual([])
  })

  it('are found in a lane, which is parked, and built again from its jobs when it is released', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.lane', [perTenant('parked.lane', '1000/s', 1_000)])
    const a = await at.send(own, 'a', 'a', 'a')
    const b = await at.send(own, 'b', 'b', 'b')
    const begun = await at.ids([own.name], 2)
    await db.query(
      `update sluice.lane set vstart = ${bigintMax} where id = (select lane from sluice.job where id = $1)`,
      [a[2]],
    )
    expect(await at.ids([own.name])).toEqual(b.filter((id) => !begun.includes(id)).sort())
    const [parked] = await sluice.parked()
    expect(parked).toMatchObject({ kind: 'jobs', name: 'parked.lane in default' })
    const more = await at.send(own, 'a', 'b')
    expect(await at.ids([own.name])).toEqual([more[1]])
    expect((await sluice.why(a[2] ?? ''))?.reasons[0]).toMatchObject({ kind: 'parked' })
    expect(at.names).toHaveLength(1)
    expect(await sluice.release(parked?.name ?? '')).toBe(true)
    expect(await at.ids([own.name])).toEqual([...a.filter((id) => !begun.includes(id)), more[0] ?? ''].sort())
    expect(at.names).toHaveLength(1)
  })

  it('are found in every list of lanes that may begin, not only in the first', async () => {
    const two = limit('parked.lists', {
      rate: '2/s',
      burst: 1,
      by: (input: { n: number }) => String(input.n),
    })
    const own = task('parked.lists', {
      input: z.object({ tenant: z.string(), n: z.number() }),
      fair: 'tenant',
      limits: [two],
      run: () => undefined,
    })
    const rows = [1, 2].flatMap((n) => ['a', 'b', 'c', 'd'].map((key) => ({ tenant: `${key}${n}`, n })))
    await at.sluice.sendMany(own, rows)
    const good = await at.ids([own.name])
    const [bad] = await at.db.query<{ id: string }>(
      `update sluice.job set attempt = 2147483647 where claim is null and lane = (
         select id from sluice.lane where list = (select max(id) from sluice.list) and vstart is not null
         order by vstart limit 1) returning id`,
    )
    const due = `sluice.list where id <> 0 and due <= ${limiterNow()}`
    await until(async () => (await count(at.db, due)) === 2, 'both lists are due')
    await until(async () => {
      good.push(...(await at.ids([own.name])))
      return good.length === rows.length - 1
    }, 'all others begin')
    expect(at.names).toEqual([bad?.id])
  })

  it("are found in a member of a pool or in a worker's own label, and other members and workers go on", async () => {
    const { sluice, db } = at
    const pooled = quietTask('parked.pooled', [limit('parked.pool', { window: '4/h', pool: ['x', 'y'] })])
    const hosted = quietTask('parked.hosted', [limit('parked.ip', { window: '4/h', by: label('host') })])
    const names = [pooled.name, hosted.name]
    const be = (host: string) => changeWorkers(db, { labels: { host } })
    await be('h1')
    await at.send(pooled, 'a', 'b')
    await at.send(hosted, 'a')
    expect(await at.ids(names)).toHaveLength(3)
    for (const name of ['parked.pool:x', 'parked.ip:h1']) await at.ledger(name, `n = ${bigintMax}`)
    const sent = [...(await at.send(pooled, 'a', 'b', 'c', 'd', 'e')), ...(await at.send(hosted, 'a'))]
    const run = await at.ids(names)
    // One unit of y was taken before.
    expect(run).toHaveLength(3)
    expect(at.names.toSorted()).toEqual(['parked.ip:h1', 'parked.pool:x'])
    await be('h2')
    run.push(...(await at.ids(names)))
    expect(run).toHaveLength(4)
    for (const name of ['parked.pool:x', 'parked.ip:h1']) {
      await at.ledger(name, 'n = 1')
      expect(await sluice.release(name)).toBe(true)
    }
    run.push(...(await at.ids(names)))
    expect(run.toSorted()).toEqual(sent.toSorted())
    expect(at.names).toHaveLength(2)
  })

  it('do not lose usage: what attempts used of a parked bucket counts when it is released', async () => {
    const { sluice, db } = at
    const own = quietTask('parked.count', [
      limit('parked.count', { concurrency: 2 }),
      limit('parked.units', { window: '4/h' }),
    ])
    await at.send(own, 'a', 'b', 'c', 'd', 'e')
    const [one, two] = await claimAll(db, at.worker, [own.name], 2)
    if (one === undefined || two === undefined) throw new Error('two run')
    const both = ['parked.count', 'parked.units']
    await at.ledger('parked.count', `debt = '{-9223372036854775808}'`)
    await at.ledger('parked.units', `n = ${bigintMax}`)
    expect(await at.take([own.name])).toEqual([])
    expect(at.names.toSorted()).toEqual(both)
    // One job uses a unit more than it was granted, and ends; the other goes on.
    await settle(db, one, 'parked.units', 2)
    expect(await done(db, [one])).toEqual([])
    await at.ledger('parked.count', `debt = '{0}'`)
    await at.ledger('parked.units', 'n = 2')
    for (const name of both) expect(await sluice.release(name)).toBe(true)
    // One place is free, and of four units three are used.
    expect(await at.take([own.name])).toHaveLength(1)
    expect(await done(db, [two])).toEqual([])
    expect(await at.take([own.name])).toEqual([])
    expect(at.names).toHaveLength(2)
  })

  it('may be many at once: all other jobs run, and after repair each of these runs once', async () => {
    const { sluice, db } = at
    const tenants = ['a', 'b', 'c', 'd']
    const kinds: Bad['kind'][] = ['job', 'lane', 'bucket']
    const tasks = [
      quietTask('parked.mix', [perTenant('parked.own', '1000/s', 1_000), limit('parked.all', { rate: '5000/s' })]),
      quietTask('parked.free'),
      task('parked.cost', {
        input: tenantInput,
        limits: [
          limit('parked.cost', {
            window: '1000000/h',
            by: ({ tenant }: { tenant?: string | undefined }) => tenant ?? '',
            cost: ({ n }: { n?: number | undefined }) => n ?? 1,
          }),
        ],
        run: () => undefined,
      }),
    ]
    const names = tasks.map(({ name }) => name)
    const bad = fc.record({ kind: fc.constantFrom(...kinds), task: fc.nat(2), tenant: fc.nat(3), n: fc.nat(5) })
    const sends = fc.array(fc.record({ task: fc.nat(2), tenant: fc.nat(3), priority: fc.nat(1) }), {
      minLength: 5,
      maxLength: 40,
    })
    const history = fc.asyncProperty(sends, fc.array(bad, { maxLength: 5 }), fc.nat(5), async (sent, bads, first) => {
      await empty(db)
      at.worker = await enter(db)
      at.begin()
      const ids: string[] = []
      const send = async () => {
        for (const one of sent)
          ids.push(
            await sluice.send(
              tasks[one.task] as (typeof tasks)[0],
              { tenant: tenants[one.tenant], n: 5 },
              { priority: one.priority },
            ),
          )
      }
      await send()
      const run = (await at.take(names, first)).map(({ id }) => id)
      // A bad turn behind a bad bucket is noticed only after the bucket is released.
      const those = bads.filter(({ kind }) => kind !== 'lane' || bads.every((one) => one.kind !== 'bucket'))
      const broken = await at.corrupt(
        those.map((one) => ({ ...one, task: names[one.task] ?? '', tenant: tenants[one.tenant] ?? '' })),
      )
      await send()
      run.push(...(await at.take(names, 500)).map(({ id }) => id))
      const parked = await sluice.parked()
      const left = await db.query<{ id: string; lane: string; buckets: string[] | null; whose: string }>(
        `select id, lane, buckets, coalesce((select l.fair::text from sluice.lane l where l.id = j.lane), '') as whose
         from sluice.job j where claim is null`,
      )
      // Jobs without bad data have run, and nothing else is parked.
      const isBad = (...named: string[]) => named.some((one) => broken.names.has(one))
      expect(left.filter(({ id, lane, buckets, whose }) => !isBad(id, lane, whose, ...(buckets ?? [])))).toEqual([])
      const lanes = new Map(left.map(({ lane, whose }) => [lane, whose]))
      const rows = await db.query<{ name: string }>('select name from sluice.parked')
      expect(rows.filter(({ name }) => !isBad(name, lanes.get(name.replace(/.* lane /, '')) ?? ''))).toEqual([])
      await broken.mend()
      for (const name of new Set(parked.map((one) => one.name))) expect(await sluice.release(name)).toBe(true)
      run.push(...(await at.take(names, 500)).map(({ id }) => id))
      expect(await sluice.parked()).toEqual([])
      expect(run.sort()).toEqual(ids.sort())
    })
    await fc.assert(history, { numRuns: isLong ? 150 : 15 })
  })
})
