import pg from 'pg'
import { afterEach, describe, expect, it } from 'vitest'
import { type Store, storeOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import { admit } from '../../src/tasks/admit.ts'
import { task } from '../../src/tasks/task.ts'
import { limit } from '../../src/limits/limit.ts'
import { label } from '../../src/limits/pool.ts'
import { Outbox } from '../../src/store/send.ts'
import {
  claim,
  claimAll,
  count,
  done,
  emptied,
  endOverdue,
  engines,
  ownClock,
  perTenant,
  quietTask,
  tenantInput,
} from '../claim/engine.ts'
import { createClasses } from '../claim/engine-parts.ts'
import { registerIdle, replaceJob } from './engine.ts'

const quiet = quietTask('quiet')
const ns = (jobs: readonly { input: unknown }[]) => jobs.map(({ input }) => (input as { n: number }).n)

const places = [
  quietTask('plain'),
  task('whole', {
    input: tenantInput.required({ tenant: true }),
    limits: [
      limit('ip', { rate: '100/s', by: label('host') }),
      perTenant('own', '100/s'),
      limit('all', { rate: '100/s' }),
    ],
    fair: 'tenant',
    weight: 3,
    queue: 'elsewhere',
    run: () => undefined,
  }),
]

/** Returns the recorded rows in a comparable form, and deletes them. */
async function recorded(db: Db): Promise<unknown> {
  const jobs = await db.query(`with gone as (delete from sluice.job returning *)
    select to_jsonb(gone) - '{id,seq,created_at}'::text[] as job, seq - min(seq) over () as nth from gone order by seq`)
  const arrivals = await db.query(`with gone as (delete from sluice.arrival returning *)
    select class::text, lane::text, n, pos - min(pos) over () as nth from gone order by class, lane, pos`)
  return { jobs, arrivals }
}

for (const engine of engines) {
  describe(`a sent job on ${engine.name}`, () => {
    const at = emptied(engine)

    it.each(places)(
      'is recorded the same by the short statement for ordinary jobs and by the general one: $name',
      async (of) => {
        const { sluice } = at
        const row = (n: number) => ({ n, tenant: 'a@b:c', text: `one\ntwo "three" \\ \u2028 {four}` })
        for (let known = 0; known < 2; known++) {
          for (const count of [1, 3]) {
            const rows = Array.from({ length: count }, (_, n) => row(n))
            await sluice.sendMany(of, rows)
            const short = await recorded(sluice.db)
            await Promise.all(rows.map((each) => sluice.send(of, each, { id: newId() })))
            expect(short).toEqual(await recorded(sluice.db))
            expect(short).toMatchObject({ jobs: rows.map((input) => ({ job: { input } })) })
          }
          await sluice.send(of, row(0))
          await createClasses(sluice.db)
          await recorded(sluice.db)
        }
      },
    )

    it('begins at once if its time is past, even the first that JavaScript has', async () => {
      await at.sluice.send(quiet, { n: 1 }, { at: new Date(-8.64e15) })
      expect(ns(await claimAll(at.db, at.worker, ['quiet'], 1))).toEqual([1])
    })

    it('may nest its input as deep in SQL as in TypeScript, as may an event', async () => {
      const nested = (levels: number) => '[{"a":'.repeat(levels / 2) + '[1]' + '}]'.repeat(levels / 2)
      const send = (input: string) => at.db.query(`select sluice.send('quiet', $1::jsonb)`, [input])
      const emit = (data: string) => at.db.query(`select sluice.emit('deep.data', $1::jsonb)`, [data])
      for (const call of [send, emit]) {
        await expect(call(nested(32))).rejects.toThrow('SLUICE_BAD_PAYLOAD')
        await expect(call(nested(5_000))).rejects.toThrow('SLUICE_BAD_PAYLOAD')
        await call(nested(30))
      }
      expect((await at.sluice.list()).map(({ task }) => task)).toEqual(['quiet'])
    })
  })

  describe(`a job with a maximum wait on ${engine.name}`, () => {
    const at = emptied(engine)

    it('counts it from the time when it is due', async () => {
      const startMs = Math.floor(systemClock.wallMs())
      const clock = await ownClock(at.db, startMs)
      const send = (n: number, when: object) => at.sluice.send(quiet, { n }, { ...when, maxWait: '5min' })
      const delayed = await send(1, { delay: '1h' })
      await send(2, { at: new Date(startMs + 3_600_000) })
      const late = await send(3, { delay: '1h' })
      expect((await at.sluice.jobs.get(delayed))?.expiresAt).toEqual(new Date(startMs + 3_900_000))
      await clock.set(startMs + 3_540_000)
      await endOverdue(at.db)
      expect(await at.sluice.jobs.count({ state: 'scheduled' })).toMatchObject({ count: 3 })
      await clock.set(startMs + 3_840_000)
      await endOverdue(at.db)
      await claimAll(at.db, at.worker, ['nobody'], 1)
      expect(ns(await claimAll(at.db, at.worker, ['quiet'], 2))).toEqual([1, 2])
      await clock.set(startMs + 3_960_000)
      await endOverdue(at.db)
      expect(await at.sluice.jobs.get(late)).toMatchObject({ state: 'failed', reason: 'expired' })
    })
  })

  describe(`a repeated id on ${engine.name}`, () => {
    const at = emptied(engine)

    it('changes nothing while its job waits, runs, is done, failed or cancelled', async () => {
      const { sluice, worker } = at
      const { db } = sluice
      const id = newId()
      const again = async () => {
        expect(await sluice.send(quiet, { n: 2 }, { id })).toBe(id)
        expect(await claimAll(db, worker, ['quiet'], 5)).toEqual([])
        expect(
          await count(
            db,
            '(select id from sluice.job union all select id from sluice.done union all select id from sluice.failed) j',
          ),
        ).toBe(1)
      }
      await sluice.send(quiet, { n: 1 }, { id })
      await sluice.send(quiet, { n: 2 }, { id })
      const jobs = await claimAll(db, worker, ['quiet'], 5)
      expect(ns(jobs)).toEqual([1])
      await again()
      await done(db, jobs)
      await again()
      await db.query(`with gone as (delete from sluice.done returning *) insert into sluice.failed select * from gone`)
      await again()
      expect(await sluice.jobs.retry(id)).toBe(true)
      await sluice.jobs.cancel(id)
      await again()
    })

    it('is an error if its job is of another task, also beside other sends, and not if the task was renamed', async () => {
      const { sluice, worker } = at
      const id = newId()
      await sluice.send(quiet, { n: 1 }, { id })
      const other = quietTask('other')
      const refused = {
        code: 'SLUICE_OTHER_TASK',
        message: expect.stringContaining('job of task "quiet", not of "other"'),
      }
      const sends = [sluice.send(other, { n: 2 }, { id }), sluice.send(other, { n: 3 })]
      const [same, beside] = await Promise.allSettled(sends)
      expect(same).toMatchObject({ status: 'rejected', reason: refused })
      expect(beside?.status).toBe('fulfilled')
      // One statement inserts both.
      const shared = { id: newId() }
      const both = await Promise.allSettled([sluice.send(quiet, {}, shared), sluice.send(other, {}, shared)])
      expect(both.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
      const sql = () => sluice.db.query(`select sluice.send('other', '{}', $1)`, [JSON.stringify({ id })])
      await expect(sql()).rejects.toThrow('SLUICE_OTHER_TASK')
      await done(sluice.db, await claimAll(sluice.db, worker, ['quiet'], 5))
      await expect(sluice.send(other, { n: 2 }, { id })).rejects.toMatchObject(refused)
      const renamed = task('renamed', { formerly: ['quiet'], run: () => undefined })
      expect(await sluice.send(renamed, { n: 2 }, { id })).toBe(id)
      expect(await count(sluice.db, `sluice.job where task <> 'other'`)).toBe(0)
      // A program in another language still sends under the former name.
      const moved = newId()
      await sluice.send(renamed, {}, { id: moved })
      await sluice.dispatchOnce([renamed])
      const former = () =>
        sluice.db.query(`select sluice.send('quiet', '{}', $1) as id`, [JSON.stringify({ id: moved })])
      expect(await former()).toEqual([{ id: moved }])
    })

    it('with an idempotency key leads to the first job, also within one batch', async () => {
      const key = { idempotencyKey: 'k' }
      const same = await Promise.all([1, 2, 3].map((n) => at.sluice.send(quiet, { n }, key)))
      same.push(await at.sluice.send(quiet, { n: 4 }, key))
      expect(new Set(same).size).toBe(1)
      expect(await claimAll(at.sluice.db, at.worker, ['quiet'], 5)).toHaveLength(1)
    })

    it('is not recorded anew after a lost reply and a refusal, even if its job ran meanwhile', async () => {
      const { sluice, worker } = at
      const { db } = sluice
      let sends = 0
      // Committed and its reply lost; meanwhile they run; then refused, as by a time-out of the server.
      const call: Db['call'] = async (name, sql, params) => {
        if (!name.startsWith('send') || ++sends > 2) return db.call(name, sql, params)
        if (sends === 2) throw Object.assign(new Error('canceling statement'), { code: '57014' })
        await db.call(name, sql, params)
        await done(db, await claimAll(db, worker, ['quiet'], 5))
        throw new StoreError('SLUICE_STORE_UNREACHABLE', 'lost')
      }
      const faulty = new Proxy(db, { get: (on, name) => (name === 'call' ? call : Reflect.get(on, name, on)) })
      const outbox = new Outbox(storeOn(faulty))
      const jobs = await Promise.all([1, 2].map((n) => admit(quiet, { n }, {}, systemClock)))
      const ids = await Promise.all(jobs.map((job) => outbox.add(job)))
      expect(sends).toBe(4)
      expect(ids).toEqual(jobs.map(({ id }) => id))
      expect(await claimAll(db, worker, ['quiet'], 5)).toEqual([])
      expect(await count(db, 'sluice.done')).toBe(2)
    })

    it('replaces a job with all that was given, text that is cut within a character included', async () => {
      const { db, sluice } = at
      const to = quietTask('replaced', [perTenant('each', '100/s')])
      const all = { tags: ['a', 'b\ud83d'], delay: '1h', priority: 3, maxWait: '2h' } as const
      const sent = async (idempotencyKey: string, replace: boolean) => {
        const id = await sluice.send(to, { tenant: 't"\\' }, { ...all, idempotencyKey, replace })
        const [row] = await db.query<{ job: Record<string, unknown> }>(
          `select to_jsonb(j) - '{id,seq,created_at,due_at,expires_at}'::text[] as job from sluice.job j where id = $1`,
          [id],
        )
        return row?.job
      }
      const plain = await sent('one', false)
      expect(plain).toMatchObject({ task: 'replaced', tags: ['a', 'b\ufffd'], priority: 3 })
      expect(await sent('two', true)).toEqual(plain)
      expect(await sent('two', true)).toEqual(plain)
    })

    it('of a replacing send is recognised after others have replaced its job', async () => {
      const replace = (id: string) => replaceJob(at.db, 'quiet', 'k', id)
      const [first, second, third] = [newId(), newId(), newId()]
      expect(await replace(first)).toBe(first)
      expect(await replace(second)).toBe(second)
      expect(await replace(third)).toBe(third)
      // Its reply was lost: its repetition takes the key from no other job.
      expect(await replace(second)).toBe(third)
      expect(await replace(newId())).not.toBe(second)
    })

    it('in a batch to more queues than a notification can name is recorded, and wakes workers', async () => {
      await registerIdle(at.sluice.db, at.worker)
      let heard = ''
      const stop = await at.sluice.db.listen('sluice.wake', (payload) => (heard = payload))
      await expect.poll(() => at.sluice.db.listening()).toBe(true)
      const queue = (i: number) => `${String(i).padStart(3, '0')}-${'q'.repeat(90)}`
      const jobs = Array.from({ length: 100 }, (_, i) =>
        at.sluice.send(quiet, { n: i }, { queue: queue(i), tags: ['wide'] }),
      )
      await Promise.all(jobs)
      await expect.poll(() => heard).toBe('*')
      const transactions = await at.sluice.db.query('select distinct xid::text from sluice.arrival')
      expect(transactions.length).toBeLessThanOrEqual(2)
      await stop()
    })
  })
}

describe('a send in the transaction of the caller', () => {
  const [postgres] = engines
  const shared = limit('shared', { rate: '1000000/s', burst: 1_000_000 })
  const limited = quietTask('limited', [shared])
  const at = emptied(postgres)
  const clients: pg.Client[] = []
  // Before the next test empties the tables that they may hold.
  afterEach(() => Promise.all(clients.splice(0).map((client) => client.end())))

  const begin = async (how = 'begin') => {
    const client = new pg.Client(at.sluice.url)
    clients.push(client)
    await client.connect()
    await client.query(how)
    return client
  }
  const take = async () => ns(await claimAll(at.db, at.worker, ['limited'], 10))

  it('stays uncommitted, blocks no other send, and is not hidden by later jobs', async () => {
    const tx = await begin()
    await at.sluice.send(limited, { n: 1 }, { tx })
    await at.sluice.send(limited, { n: 2 })
    const second = await claimAll(at.db, at.worker, ['limited'], 10)
    expect(ns(second)).toEqual([2])
    expect(await done(at.db, second)).toEqual([])
    for (let i = 0; i < 3; i++) await claim(at.db, at.worker, ['limited'], 1)
    await tx.query('commit')
    expect(await take()).toEqual([1])
  })

  it('leaves nothing when rolled back, wholly or to a savepoint', async () => {
    const tx = await begin()
    await at.sluice.send(limited, { n: 1 }, { tx })
    await tx.query('rollback')
    await tx.query('begin')
    await at.sluice.send(limited, { n: 2 }, { tx })
    await tx.query('savepoint one')
    await at.sluice.send(limited, { n: 3 }, { tx })
    await tx.query('rollback to one')
    await tx.query('savepoint two')
    await at.sluice.send(limited, { n: 4 }, { tx })
    await tx.query('release two')
    await at.sluice.send(limited, { n: 5 })
    expect(await take()).toEqual([5])
    await tx.query('commit')
    expect(await take()).toEqual([2, 4])
    expect((await at.sluice.jobs.status()).waiting).toBe(0)
  })

  it('is not lost when many transactions are open and end in any order, with claims in between', async () => {
    const open = await Promise.all([0, 1, 2, 3, 4, 5].map(() => begin()))
    const taken: number[] = []
    for (const [i, tx] of open.entries()) await at.sluice.send(limited, { n: i }, { tx })
    for (const i of [3, 0, 5, 1, 4, 2]) {
      await at.sluice.send(limited, { n: 100 + i })
      taken.push(...(await take()))
      await at.sluice.send(limited, { n: 10 + i }, { tx: open[i] as pg.Client })
      await open[i]?.query('commit')
      taken.push(...(await take()))
    }
    expect(taken.toSorted((a, b) => a - b)).toEqual([
      0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 100, 101, 102, 103, 104, 105,
    ])
  })

  it.each(['repeatable read', 'serializable'])(
    'is found from a transaction whose snapshot is much older (%s)',
    async (level) => {
      const tx = await begin(`begin isolation level ${level}`)
      await tx.query('select count(*) from sluice.job')
      await at.sluice.sendMany(limited, [{ n: 1 }, { n: 2 }])
      expect(await take()).toEqual([1, 2])
      await at.sluice.send(limited, { n: 3 }, { tx })
      await at.sluice.send(limited, { n: 4 })
      expect(await take()).toEqual([4])
      await tx.query('commit')
      expect(await take()).toEqual([3])
    },
  )

  it.each(['read committed', 'repeatable read', 'serializable'])(
    'does not run a job twice that finished since the transaction began (%s)',
    async (level) => {
      const [before, since, fresh] = [newId(), newId(), newId()]
      const finish = async (id: string) => {
        await at.sluice.send(limited, { n: 1 }, { id })
        await done(at.db, await claimAll(at.db, at.worker, ['limited'], 10))
      }
      await finish(before)
      const tx = await begin(`begin isolation level ${level}`)
      await tx.query('select count(*) from sluice.job')
      await finish(since)
      expect(await at.sluice.send(limited, { n: 2 }, { id: before, tx })).toBe(before)
      expect(await at.sluice.send(limited, { n: 3 }, { id: fresh, tx })).toBe(fresh)
      const again = at.sluice.send(limited, { n: 2 }, { id: since, tx })
      if (level === 'read committed') expect(await again).toBe(since)
      else await expect(again).rejects.toMatchObject({ code: '40001' })
      await tx.query('commit')
      expect(await take()).toEqual(level === 'read committed' ? [3] : [])
      expect(await count(at.db, `sluice.done where state = 'marker'`)).toBe(0)
    },
  )
})

it('large jobs that are sent at one time are recorded by several statements', async () => {
  const calls: string[] = []
  const call = async (name: string) => {
    calls.push(name)
    return []
  }
  const outbox = new Outbox({ clock: systemClock, call } as unknown as Store)
  const input = { n: 1, tenant: 'x'.repeat(250_000) }
  const jobs = await Promise.all(Array.from({ length: 40 }, () => admit(quiet, input, {}, systemClock)))
  await Promise.all(jobs.map((job) => outbox.add(job)))
  expect(calls).toHaveLength(2)
})
