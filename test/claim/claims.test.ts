/** What a worker's process does when the answer to a claim is not the jobs. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { Claims } from '../../src/claim/claim.ts'
import { attemptCalls, claim, count, emptied, mainEngines, perTenant, quietTask } from './engine.ts'
import { createClasses, promotion } from './engine-parts.ts'

const quiet = quietTask('quiet', [perTenant('each', '100000/s')])

describe.each(mainEngines)('a worker that claims, on $name', (engine) => {
  const at = emptied(engine)
  const claimed = async (want: number) => {
    const who = { worker: at.worker, queues: undefined, tasks: [quiet.name] }
    const mode = { idle: false, ahead: 0 }
    return (await new Claims(storeOn(at.db)).claim(who, want, mode, AbortSignal.timeout(60_000))).jobs
  }

  it('checks a store whose server has started since the last look, before it gets jobs', async () => {
    await at.sluice.send(quiet, { tenant: 'a', n: 1 })
    await at.db.query('update sluice.epoch set server_at = null')
    // Nothing but the worker checks it.
    expect((await claim(at.db, at.worker, [quiet.name], 1)).jobs).toEqual([])
    expect(await claimed(1)).toMatchObject([{ task: quiet.name, input: { n: 1 } }])
    expect(await count(at.db, 'sluice.epoch where server_at = pg_postmaster_start_time()')).toBe(1)
  })

  it('rests between its tries while the check of a started server does not reach that server', async () => {
    await at.sluice.send(quiet, { tenant: 'a', n: 1 })
    await createClasses(at.db)
    await at.db.query('update sluice.epoch set server_at = null')
    let rests = 0
    let checks = 0
    // It draws a number for the length of each rest.
    const clock: Clock = { ...systemClock, random: () => (rests++, 0) }
    const store = storeOn(at.db, { clock })
    const call: typeof store.call = (name, ...rest) => {
      if (name === attemptCalls.claim || rests === 3) return store.call(name, ...rest)
      if (++checks > 10) throw new Error('it does not rest')
      return Promise.resolve([])
    }
    const claims = new Claims({ ...store, call })
    const who = { worker: at.worker, queues: undefined, tasks: [quiet.name] }
    expect((await claims.claim(who, 1, { idle: false, ahead: 0 }, AbortSignal.timeout(60_000))).jobs).toHaveLength(1)
  })

  it.each([
    ['a single lane', ['a', 'a', 'a', 'a']],
    ['two lanes', ['a', 'a', 'b', 'b']],
  ])('gets all of the other jobs of %s when one goes away meanwhile', async (_, tenants) => {
    const ids = tenants.map(() => newId())
    for (const [n, tenant] of tenants.entries()) await at.sluice.send(quiet, { tenant, n }, { id: ids[n] ?? '' })
    // As if another session had ended it first: the job that carries what all of its lane have in common.
    await at.db.query(`create function public.miss() returns trigger language plpgsql as $$ begin return null; end $$`)
    onTestFinished(async () => void (await at.db.query('drop function if exists public.miss cascade')))
    await at.db.query(
      `create trigger miss before update on sluice.job for each row when (new.claim is not null and new.id = '${ids[0]}') execute function public.miss()`,
    )
    const jobs = (await claimed(4)).toSorted((a, b) => a.seq - b.seq)
    expect(jobs).toMatchObject([1, 2, 3].map((n) => ({ id: ids[n], task: quiet.name, attempt: 1, input: { n } })))
  })
})

it('a dispatcher reports once that the store has been away for seconds, and once that it is back', async () => {
  let failures = 20
  const call = async () => {
    if (failures-- > 0) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    return [{ now_us: '0', waited_us: '0', wake_us: null, again: false, since: null, jobs: null, instants: null }]
  }
  const clock = { ...systemClock, sleep: async () => {} }
  const store = storeOn({ call } as unknown as Db, { clock })
  const claims = new Claims(store)
  const told: string[] = []
  store.report.on('connection', ({ isLost }) => told.push(isLost ? 'lost' : 'found'))
  const who = { worker: '1', queues: undefined, tasks: [] }
  const { signal } = new AbortController()
  await claims.claim(who, 1, { idle: false, ahead: 0 }, signal)
  expect(told).toEqual(['lost', 'found'])
  failures = 2
  await claims.claim(who, 1, { idle: false, ahead: 0 }, signal)
  expect(told).toEqual(['lost', 'found'])
})

it('a dispatcher reports that a server has no connection free at the first try that waited for one in vain', async () => {
  let nowMs = 0
  let tries = 0
  const call = async () => {
    nowMs += 15_000
    if (++tries < 3) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'no connection free')
    return [{ now_us: '0', waited_us: '0', wake_us: null, again: false, since: null, jobs: null, instants: null }]
  }
  const clock = { ...systemClock, sleep: async () => {}, monotonicMs: () => nowMs }
  const store = storeOn({ call } as unknown as Db, { clock })
  const told: [isLost: boolean, tries: number][] = []
  store.report.on('connection', ({ isLost }) => told.push([isLost, tries]))
  const who = { worker: '1', queues: undefined, tasks: [] }
  await new Claims(store).claim(who, 1, { idle: false, ahead: 0 }, new AbortController().signal)
  expect(told).toEqual([
    [true, 1],
    [false, expect.any(Number)],
  ])
})

it('a claim that meets locks for as long as it is tried ends as if the store were away', async () => {
  const busy = Object.assign(new Error('canceling statement due to lock timeout'), { code: '55P03' })
  let tries = 0
  const call = async () => {
    tries++
    throw busy
  }
  let nowMs = 0
  const clock = { ...systemClock, sleep: async () => {}, monotonicMs: () => (nowMs += 1_000) }
  const claims = new Claims(storeOn({ call } as unknown as Db, { clock }))
  claims.patienceMs = 60_000
  const who = { worker: '1', queues: undefined, tasks: [] }
  const claimed = claims.claim(who, 1, { idle: false, ahead: 0 }, new AbortController().signal)
  await expect(claimed).rejects.toMatchObject({ code: 'SLUICE_STORE_UNREACHABLE', retryable: true, cause: busy })
  expect(tries).toBeGreaterThan(5)
})

it('jobs of a repeated claim begin at their own instants, and none of them if one has no instant', async () => {
  const place = (seq: number) => [
    seq,
    newId(),
    1,
    0,
    'a',
    'default',
    0,
    0,
    0,
    false,
    0,
    ['x'],
    1,
    null,
    50_000,
    null,
    null,
    {},
  ]
  const row = {
    outcome: 'repeated',
    now_us: '7000',
    waited_us: '0',
    wake_us: null,
    again: true,
    since: null,
    redis_epoch: null,
  }
  const answer = { ...row, jobs: JSON.stringify([place(1), place(2)]), instants: ['47000', '57000'] }
  const clock = { ...systemClock, monotonicMs: () => 1_000 }
  const claims = new Claims(storeOn({ call: async () => [answer] } as unknown as Db, { clock }))
  const who = { worker: '1', queues: undefined, tasks: ['a'] }
  const claim = () => claims.claim(who, 2, { idle: true, ahead: 2 }, new AbortController().signal)
  expect((await claim()).jobs.map(({ notBeforeMs }) => notBeforeMs)).toEqual([1_040, 1_050])
  answer.instants.shift()
  await expect(claim()).rejects.toThrow('instants')
})

it('a claim wakes as long after its decision as it says, and after due jobs the next looks at no more lanes', async () => {
  let nowMs = 0
  const clock = { ...systemClock, monotonicMs: () => nowMs }
  const row = {
    now_us: '0',
    waited_us: '0',
    wake_us: '100000',
    again: false,
    since: null,
    jobs: null,
    instants: null,
    wake: null,
    stale: null,
    due: true,
  }
  let due = 0
  const wide: unknown[] = []
  const call = async (name: string, _: string, args: readonly unknown[]) => {
    nowMs += 30
    if (name === promotion) return [{ [promotion]: due }]
    wide.push(args[7])
    return [row]
  }
  const claims = new Claims(storeOn({ call } as unknown as Db, { clock }))
  const who = { worker: '1', queues: undefined, tasks: [] }
  const claim = () => claims.claim(who, 1, { idle: true, ahead: 0 }, new AbortController().signal)
  // To return the due jobs took 30 ms.
  expect(await claim()).toMatchObject({ again: false, wakeMs: 70 })
  due = 1
  expect(await claim()).toMatchObject({ again: true, wakeMs: undefined })
  row.again = true
  await claim()
  await claim()
  expect(wide).toEqual([false, false, false, true])
})

it('jobs of a repeated claim were decided, for Redis, when the claim was first sent', async () => {
  let nowMs = 1_000
  const clock = { ...systemClock, monotonicMs: () => nowMs, sleep: async () => {} }
  const place = [1, newId(), 1, 0, 'a', 'default', 0, 0, 0, false, 0, ['x'], 1, null, 50_000, null, null, {}]
  const row = {
    outcome: 'repeated',
    now_us: '5007000',
    waited_us: '0',
    wake_us: null,
    again: true,
    since: null,
    redis_epoch: 'one',
  }
  const answer = { ...row, jobs: JSON.stringify([place]), instants: ['47000'] }
  const call = async () => {
    if (nowMs > 1_000) return [answer]
    nowMs += 5_000
    throw new StoreError('SLUICE_STORE_UNREACHABLE', 'its reply was lost')
  }
  const claims = new Claims(storeOn({ call } as unknown as Db, { clock }))
  const who = { worker: '1', queues: undefined, tasks: ['a'] }
  const { jobs } = await claims.claim(who, 1, { idle: true, ahead: 1 }, new AbortController().signal)
  expect(jobs.map(({ decidedMs }) => decidedMs)).toEqual([1_000])
})

it.each([
  { what: 'waited 3 ms and took 5 after it decided', waited: 3_000, took: 5_000, expected: [1_003, 1_015] },
  { what: 'does not show how long it took', waited: 0, took: null, expected: [1_000, 1_020] },
  { what: 'took longer than the call, by a clock that stepped', waited: 0, took: 21_000, expected: [1_000, 1_020] },
  { what: 'waited too long for what it took', waited: 16_000, took: 5_000, expected: [1_000, 1_020] },
  { what: 'ended before it decided, by a clock that stepped', waited: 0, took: -1, expected: [1_000, 1_020] },
])('jobs granted ahead begin when their instants have come for certain, in a claim that $what', async (one) => {
  const times = [1_000, 1_000, 1_020]
  const clock = { ...systemClock, monotonicMs: () => times.shift() ?? 1_020 }
  const place = [1, newId(), 1, 0, 'a', 'default', 0, 0, 0, false, 0, ['x'], 1, null, 50_000, null, null, {}]
  const row = { now_us: '7000', waited_us: String(one.waited), wake_us: null, again: false, since: null }
  const answer = { ...row, took_us: one.took, jobs: JSON.stringify([place]), redis_epoch: null, instants: ['47000'] }
  const claims = new Claims(storeOn({ call: async () => [answer] } as unknown as Db, { clock }))
  const who = { worker: '1', queues: undefined, tasks: [] }
  const { jobs } = await claims.claim(who, 1, { idle: true, ahead: 1 }, new AbortController().signal)
  // The instant is 40 ms after the decision.
  expect([jobs[0]?.grantedMs, jobs[0]?.notBeforeMs]).toEqual(one.expected.map((ms) => ms + 40))
})
