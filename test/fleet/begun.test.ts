/** What a dispatcher records of the jobs that its workers have begun. */
import { expect, it } from 'vitest'
import { Begins } from '../../src/claim/begins.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { StoreEpoch } from '../../src/claim/definitions/clock.ts'
import { Finisher } from '../../src/claim/finish/finish.ts'
import { StoreClock, systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import { storeOn } from '../../src/db/store.ts'
import { type Member, Membership } from '../../src/fleet/membership.ts'
import { Sluice } from '../../src/sluice.ts'
import { claim, count, enter, quietTask } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

it('begun jobs are recorded also when another transaction has locked their claim meanwhile', async (context) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  context.onTestFinished(() => sluice.close())
  const { db } = sluice
  const store = storeOn(db)
  const member = new Membership(store, {} as Member, new StoreEpoch(store, new StoreClock()))
  const [locked, free] = [newId(), newId()]
  for (const id of [locked, free])
    await db.query(`insert into sluice.claim (id, worker, at, lanes, seqs) values ($1, 1, 0, '{1, 1}', '{7, 8}')`, [id])
  const begun = async (id: string) =>
    (await db.query<{ begun: unknown }>('select begun::text from sluice.claim where id = $1', [id]))[0]?.begun

  let isRecorded = false
  let recorded: Promise<void> | undefined
  await db.transaction(async (tx) => {
    await tx.query('select from sluice.claim where id = $1 for update', [locked])
    recorded = member.begun([{ claim: locked, seq: 7 }]).then(() => void (isRecorded = true))
    await member.begun([{ claim: free, seq: 8 }])
    expect(await begun(free)).toBe('{8}')
    expect(isRecorded).toBe(false)
  })
  // As at each beat.
  await member.recordBegun()
  await recorded
  expect(await begun(locked)).toBe('{7}')
})

it('a job is not given back because another transaction had locked its claim when ends were recorded', async (context) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  context.onTestFinished(() => sluice.close())
  const store = storeOn(sluice.db)
  const member = new Membership(store, {} as Member, new StoreEpoch(store, new StoreClock()))
  const finisher = new Finisher(store)
  const [locked, free, gone] = [newId(), newId(), newId()]
  for (const id of [locked, free])
    await sluice.db.query(`insert into sluice.claim (id, worker, at, lanes, seqs) values ($1, 1, 0, '{1}', '{7}')`, [
      id,
    ])
  const refused: string[] = []
  const begins = new Begins({
    clock: systemClock,
    recordNow: () => finisher.recordNow(),
    record: (jobs) => member.begun(jobs),
    giveBack: (job) => refused.push(job.claim),
    changed() {},
  })
  finisher.takeBeginning = () => begins.takeNext()
  const job = (of: string) => {
    const nowMs = systemClock.monotonicMs()
    return { id: newId(), claim: of, seq: 7, notBeforeMs: nowMs + 90, decidedMs: nowMs - 200 } as unknown as ClaimedJob
  }
  let jobs: ClaimedJob[] = []
  const begun = async () =>
    (
      await sluice.db.query<{ id: string }>(`select id from sluice.claim where begun = '{7}' order by id <> $1`, [
        locked,
      ])
    ).map(({ id }) => id)
  await sluice.db.transaction(async (tx) => {
    await tx.query('select from sluice.claim where id = $1 for update', [locked])
    jobs = [locked, free, gone].map(job)
    const added = begins.add(jobs)
    await finisher.end(job(newId()), { kind: 'done', result: null, tookMs: 1 })
    expect([refused, jobs.map((one) => begins.has(one)), await begun()]).toEqual([[gone], [true, false, false], [free]])
    await added
  })
  // As at each beat.
  await member.recordBegun()
  await until(() => !begins.has(jobs[0]!), 'it may begin')
  expect([refused, await begun()]).toEqual([[gone], [locked, free]])
})

it('what begins shows which claims the worker still has', async (context) => {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url })
  context.onTestFinished(() => sluice.close())
  const store = storeOn(sluice.db)
  const member = new Membership(store, {} as Member, new StoreEpoch(store, new StoreClock()))
  const [own, gone] = [newId(), newId()]
  await sluice.db.query(`insert into sluice.claim (id, worker, at, lanes, seqs) values ($1, 1, 0, '{1}', '{7}')`, [own])
  const jobs = [own, gone].map((claim) => ({ claim, seq: 7 }))
  expect(await member.begun(jobs)).toEqual(new Set([own]))
})

it('a dispatcher tells the store the stints of a new registration, also when those of the one before are told late', async () => {
  const told: string[] = []
  let registered = 0
  let goOn = () => {}
  const store = {
    clock: systemClock,
    async run(file: string, [worker]: [string]) {
      if (file === 'fleet/insert_worker') return [{ id: String(++registered) }]
      if (file !== 'fleet/record_stints') return []
      told.push(worker)
      if (worker === '1') await new Promise<void>((resolve) => (goOn = resolve))
      return []
    },
  }
  const own = { tasks: [], hasStints: () => true } as unknown as Member
  const member = new Membership(store as never, own, { check: async () => {} } as never)
  const late = member.registerClaimer(['stint'])
  await until(() => told.length === 1, 'the first registration is told')
  member.dropRegistration('1')
  await member.registerClaimer()
  goOn()
  await late
  await member.registerClaimer(['stint'])
  expect(told).toEqual(['1', '2'])
})

it('the fleet lets nothing go back of a dispatcher that has claimed more since it was silent: it lives', async (context) => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  context.onTestFinished(() => sluice.close())
  const { db } = sluice
  const store = storeOn(db)
  const member = new Membership(store, {} as Member, new StoreEpoch(store, new StoreClock()))
  await sluice.sendMany(quietTask('quiet'), [{}, {}])
  const id = await enter(db, ['quiet'])
  await db.query(`update sluice.worker set stints = '{silent}' where id = $1`, [id])
  const claims = [newId(), newId()]
  for (const one of claims) await claim(db, id, ['quiet'], 1, one)
  const inHand = () => count(db, 'sluice.job where claim is not null')
  await member.left('silent', [], claims.slice(0, 1))
  expect(await inHand()).toBe(2)
  await member.left('silent', [], claims)
  expect(await inHand()).toBe(0)
})

it('a dispatcher records its stint again that another dispatcher has ended while it was silent', async (context) => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  context.onTestFinished(() => sluice.close())
  const { db } = sluice
  let aheadMs = 0
  const store = storeOn(db, { clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + aheadMs } })
  const own: Member = {
    queues: undefined,
    tasks: ['quiet'],
    homes: ['default'],
    once: [false],
    onFailed: [null],
    currently: [null],
    remote: [false],
    slots: 1,
    hasStints: () => true,
    version: '',
    labels: {},
  }
  const [silent, heir] = [0, 1].map(() => new Membership(store, own, new StoreEpoch(store, new StoreClock())))
  const { worker } = await silent!.registerClaimer(['queue'])
  const stints = async () =>
    (await db.query<{ stints: string[] }>('select stints from sluice.worker where id = $1', [worker]))[0]?.stints
  await heir!.left('queue', [], [])
  expect(await stints()).toEqual([])
  // It lives, and goes on.
  await silent!.runRound(false)
  await silent!.registerClaimer(['queue'])
  expect(await stints()).toEqual(['queue'])
  await heir!.left('queue', [], [])
  // It was stopped, and claims before its next round.
  aheadMs = 5_000
  await silent!.registerClaimer(['queue'])
  expect(await stints()).toEqual(['queue'])
})
