/** The loop of a dispatcher, against a simulated store. */
import { afterEach, expect, test, vi } from 'vitest'
import type { Claimed, Claimer, ClaimMode, Claims } from '../../src/claim/claim.ts'
import type { Finisher } from '../../src/claim/finish/finish.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { ClaimSize, Dispatcher } from '../../src/claim/dispatcher.ts'
import type { Kind, Outlet, Reports } from '../../src/claim/outlet.ts'
import { until } from '../until.ts'
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
  const at = {
    waiting,
    running: 0,
    wants,
    aheads,
    slept,
    asked,
    few: 100,
    reports: {} as Reports,
    during: () => {},
    entering: () => {},
  }
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
    async registerClaimer() {
      at.entering()
      return { worker: '1', queues: undefined, tasks }
    },
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

test('nothing is claimed while the outlet has lost all slots since it had one', async () => {
  const at = dispatcher(2, 5)
  at.entering = () => void (at.running = 2)
  at.loop.start()
  await until(() => at.running === 2, 'the slots are lost')
  at.entering = () => {}
  at.running = 0
  at.reports.changed()
  await expect.poll(() => at.running).toBe(2)
  expect(at.wants).toEqual([1, 1])
  await at.loop.stop()
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

test('grants that cannot be used in time make claims smaller until they can, and claims stay that small', () => {
  const hand = { lateReturns: 0, slots: 500 }
  const claimSize = new ClaimSize(hand)
  // A machine that begins 40 jobs in time; all further ones come back.
  const wants = Array.from({ length: 60 }, () => {
    const want = claimSize.adapt()
    claimSize.recordClaim(want, false)
    if (want > 40) hand.lateReturns += want
    return want
  })
  expect(wants.slice(0, 9)).toEqual([1, 2, 4, 8, 16, 32, 64, 32, 36])
  const inTime = wants.slice(7).filter((want) => want <= 40)
  expect(inTime.length / wants.slice(7).length).toBeGreaterThan(0.7)
  expect(Math.max(...wants.slice(7))).toBeLessThanOrEqual(46)
  // The number of claimed jobs counts, not how many there could have been.
  const few = new ClaimSize(hand)
  for (let i = 0; i < 12; i++) few.recordClaim(few.adapt(), false)
  few.recordClaim(10, false)
  hand.lateReturns++
  expect(few.adapt()).toBe(5)
})

test('a claim that got fewer jobs than it wanted although more were there does not keep claims small', () => {
  const wants = (more: boolean) => {
    const claimSize = new ClaimSize({ lateReturns: 0, slots: 100 })
    return Array.from({ length: 6 }, () => {
      const want = claimSize.adapt()
      claimSize.recordClaim(Math.ceil(want / 2), more)
      return want
    })
  }
  expect(wants(true)).toEqual([1, 2, 4, 8, 16, 32])
  // The claim got all jobs that waited, so it shows nothing about a larger number.
  expect(wants(false)).toEqual([1, 2, 2, 2, 2, 2])
})

test('claims get jobs again after all slots were gone for a moment', () => {
  const hand = { lateReturns: 0, slots: 4 }
  const claimSize = new ClaimSize(hand)
  claimSize.recordClaim(claimSize.adapt(), false)
  hand.slots = 0
  claimSize.recordClaim(Math.min(claimSize.adapt(), hand.slots), false)
  hand.slots = 4
  expect(claimSize.adapt()).toBeGreaterThan(0)
})
