/** The loop of a dispatcher, against a simulated store. */
import { afterEach, expect, test, vi } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import { type Claimed, type Claimer, type ClaimMode, Claims } from '../../src/claim/claim.ts'
import type { Finisher } from '../../src/claim/finish/finish.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { ClaimWindow, Dispatcher } from '../../src/claim/dispatcher.ts'
import type { Kind, Outlet, Reports } from '../../src/claim/outlet.ts'
import { patient } from '../worker/patience.ts'

afterEach(() => void vi.restoreAllMocks())

const none: Claimed = { jobs: [], again: false, wakeMs: undefined }

/** A dispatcher with `slots`, whose attempts never end, on a store with `waiting` jobs; an empty claim returns `wakeMs`. */
const tasks = ['few', 'many']
function dispatcher(slots: number, waiting: number, wakeMs?: number, ...others: Kind[]) {
  const wants: number[] = []
  const aheads: number[] = []
  const slept: number[] = []
  const clock = patient()
  const asked: (readonly string[])[] = []
  const at = { waiting, running: 0, wants, aheads, slept, asked, few: 100, reports: {} as Reports, during: () => {} }
  const claims = {
    offer: () => ({}),
    async claim({ tasks }: Claimer, want: number, { ahead }: ClaimMode): Promise<Claimed> {
      wants.push(want)
      aheads.push(ahead)
      asked.push(tasks)
      const jobs = Array.from({ length: Math.min(want, at.waiting) }, () => ({}) as ClaimedJob)
      at.waiting -= jobs.length
      at.during()
      return jobs.length > 0 ? { ...none, jobs } : { ...none, wakeMs }
    },
  }
  const outlet: Outlet = {
    slots,
    free: () => slots - at.running,
    kinds: [{ tasks: new Set(['few']), free: () => at.few }, ...others],
    start: (jobs) => void (at.running += jobs.length),
    abort() {},
  }
  const loop = new Dispatcher({
    claims: claims as unknown as Claims,
    outlet: (reports) => {
      at.reports = reports
      return outlet
    },
    finisher: { backlog: 0, registerJobs() {} } as unknown as Finisher,
    peer: undefined,
    throttle: undefined,
    timedOut: undefined,
    claimer: () => '1',
    stintRecorder: { begun: async () => new Set<string>(), left: async () => {}, beatFor: async () => {} },
    lostOutcome: (_, tookMs) => ({ kind: 'interrupt', error: '{}', tookMs }),
    clock: {
      ...clock,
      sleep: (ms, ...more) => {
        slept.push(ms)
        return clock.sleep(ms, ...more)
      },
    },
    registerClaimer: async () => ({ worker: '1', queues: undefined, tasks }),
    isListening: () => true,
    onLost() {},
    onError(error) {
      throw error
    },
  })
  return Object.assign(at, { loop })
}

test('a claim that got all jobs it wanted is followed by the next at once, until every slot is taken', async () => {
  const at = dispatcher(64, 1_000)
  at.loop.start()
  await expect.poll(() => at.running).toBe(64)
  expect(at.wants).toEqual([1, 2, 4, 8, 16, 32, 1])
  await at.loop.stop()
})

test('nothing is claimed to wait beside the slots before claims as large as all slots have begun in time, and never more than 500', async () => {
  const at = dispatcher(4, 1_000)
  vi.spyOn(at.loop.hand.freeSlots, 'countAhead').mockReturnValue(8)
  at.running = 3
  at.loop.start()
  await expect.poll(() => at.running).toBe(4)
  for (const running of [2, 0, 0]) {
    if (at.wants.length === 3) vi.spyOn(at.loop.hand.freeSlots, 'countAhead').mockReturnValue(1_000)
    at.running = running
    at.reports.changed()
    await expect.poll(() => at.running).toBe(4)
  }
  expect([at.wants, at.aheads]).toEqual([
    [1, 2, 4, 4],
    [1, 2, 12, 500],
  ])
  await at.loop.stop()
})

test('a claim wants no more than one kind of task can take, and another for the other kinds follows when it got that many', async () => {
  const at = dispatcher(64, 1_000)
  at.few = 2
  at.loop.start()
  await expect.poll(() => at.running).toBe(64)
  expect(at.wants).toEqual([1, 2, 4, 2, 8, 2, 16, 2, 27])
  expect(at.asked.map(({ length }) => length)).toEqual([2, 2, 1, 2, 1, 2, 1, 2, 1])
  await at.loop.stop()
})

test('a kind of task without room is left out, and a sleeping dispatcher claims for it once it has room', async () => {
  const at = dispatcher(64, 0)
  at.few = 0
  at.loop.start()
  await expect.poll(() => at.slept.length).toBe(1)
  expect(at.asked).toEqual([['many']])
  at.few = 1
  at.reports.changed()
  await expect.poll(() => at.asked.length).toBe(2)
  expect(at.asked[1]).toEqual(['few', 'many'])
  // The last place of a kind stays for claims.
  await expect.poll(() => at.slept.length).toBe(2)
  expect(at.loop.offer({ queue: 'a', task: 'few', input: '' })).toBe(undefined)
  expect(at.loop.offer({ queue: 'a', task: 'many', input: '' })).toBeDefined()
  await at.loop.stop()
})

test('without the loop, too, a claim for the tasks with more room is followed by one for the others', async () => {
  const at = dispatcher(64, 100, undefined, { tasks: new Set(['full']), free: () => 0 })
  const once = () => at.loop.claimOnce(64, new AbortController().signal)
  for (const count of [1, 2, 4]) expect(await once()).toBe(count)
  at.few = 1
  for (const count of [8, 1]) expect(await once()).toBe(count)
  at.waiting = 0
  at.during = () => void (at.waiting = 1)
  expect(await once()).toBe(1)
  expect(at.asked.slice(-2)).toEqual([['many'], ['few', 'many']])
})

test('a wake-up during a claim is not lost, and each leads to one more claim', async () => {
  const at = dispatcher(64, 0)
  at.during = () => {
    if (at.wants.length > 2) return
    if (at.wants.length === 2) at.waiting = 1
    at.loop.wake()
  }
  at.loop.start()
  await expect.poll(() => at.running).toBe(1)
  await at.loop.stop()
  expect(at.wants.length).toBeLessThanOrEqual(5)
})

test('a dispatcher with a scheduled wake-up does not claim earlier, because that work belongs to another worker', async () => {
  const at = dispatcher(64, 63, 5_000)
  at.loop.start()
  // The last job's claim, and one more, which returns a time to wake.
  await expect.poll(() => at.slept.at(-1)).toBe(5_000)
  await at.loop.stop()
  expect(at.wants.length).toBe(7)
  expect(at.slept).not.toContain(25)
})

test("waits do not attach to the dispatcher's long-lived abort signal, which would keep all of them in memory", async () => {
  const joined = vi.spyOn(AbortSignal, 'any')
  const at = dispatcher(64, 63)
  at.loop.start()
  // The last job's claim, and two more that find nothing; then it sleeps until it is woken.
  await expect.poll(() => at.wants.length).toBe(8)
  at.loop.wake()
  await expect.poll(() => at.wants.length).toBe(9)
  await at.loop.stop()
  expect(joined).not.toHaveBeenCalled()
})

test('a dispatcher reports once that the store has been away for seconds, and once that it is back', async () => {
  let failures = 20
  const call = async () => {
    if (failures-- > 0) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'away')
    return [{ now_us: '0', waited_us: '0', wake_us: null, again: false, since: null, jobs: null }]
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

test('a dispatcher reports that a server has no connection free at the first try that waited for one in vain', async () => {
  let nowMs = 0
  let tries = 0
  const call = async () => {
    nowMs += 15_000
    if (++tries < 3) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'no connection free')
    return [{ now_us: '0', waited_us: '0', wake_us: null, again: false, since: null, jobs: null }]
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

test('a claim that meets locks for as long as it is tried ends as if the store were away', async () => {
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

test('no job of a repeated claim begins before its instant when another one was cancelled while the claim was read', async () => {
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
  const answer = { ...row, jobs: JSON.stringify([place(1), place(2)]), instants: ['47000'] }
  const clock = { ...systemClock, monotonicMs: () => 1_000 }
  const claims = new Claims(storeOn({ call: async () => [answer] } as unknown as Db, { clock }))
  const who = { worker: '1', queues: undefined, tasks: ['a'] }
  const { jobs } = await claims.claim(who, 2, { idle: true, ahead: 2 }, new AbortController().signal)
  expect(jobs.map(({ notBeforeMs }) => notBeforeMs)).toEqual([1_040, 1_040])
})

test('jobs of a repeated claim were decided, for Redis, when the claim was first sent', async () => {
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

test.each([
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

test('grants that cannot be used in time make claims smaller until they can, and claims stay that small', () => {
  const hand = { overclaimed: 0, slots: 500 }
  const claimWindow = new ClaimWindow(hand)
  // A machine that begins 40 jobs in time; all further ones come back.
  const wants = Array.from({ length: 60 }, () => {
    const want = claimWindow.adaptWindow()
    claimWindow.recordClaim(want, false)
    if (want > 40) hand.overclaimed += want
    return want
  })
  expect(wants.slice(0, 9)).toEqual([1, 2, 4, 8, 16, 32, 64, 32, 36])
  const inTime = wants.slice(7).filter((want) => want <= 40)
  expect(inTime.length / wants.slice(7).length).toBeGreaterThan(0.7)
  expect(Math.max(...wants.slice(7))).toBeLessThanOrEqual(46)
  // The number of claimed jobs counts, not how many there could have been.
  const few = new ClaimWindow(hand)
  for (let i = 0; i < 12; i++) few.recordClaim(few.adaptWindow(), false)
  few.recordClaim(10, false)
  hand.overclaimed++
  expect(few.adaptWindow()).toBe(5)
})

test('a claim that got fewer jobs than it wanted although more were there does not keep claims small', () => {
  const wants = (more: boolean) => {
    const claimWindow = new ClaimWindow({ overclaimed: 0, slots: 100 })
    return Array.from({ length: 6 }, () => {
      const want = claimWindow.adaptWindow()
      claimWindow.recordClaim(Math.ceil(want / 2), more)
      return want
    })
  }
  expect(wants(true)).toEqual([1, 2, 4, 8, 16, 32])
  // The claim got all jobs that waited, so it shows nothing about a larger number.
  expect(wants(false)).toEqual([1, 2, 2, 2, 2, 2])
})

test('claims get jobs again after all slots were gone for a moment', () => {
  const hand = { overclaimed: 0, slots: 4 }
  const claimWindow = new ClaimWindow(hand)
  claimWindow.recordClaim(claimWindow.adaptWindow(), false)
  hand.slots = 0
  claimWindow.recordClaim(Math.min(claimWindow.adaptWindow(), hand.slots), false)
  hand.slots = 4
  expect(claimWindow.adaptWindow()).toBeGreaterThan(0)
})
