/** What a worker does at each beat, with parts that are made up. */
import { expect, it } from 'vitest'
import { z } from 'zod'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { type Clock, systemClock } from '../../src/core/clock.ts'
import { StoreError } from '../../src/core/errors.ts'
import { task } from '../../src/tasks/task.ts'
import { createRound, repeatEveryBeat } from '../../src/worker/round.ts'
import { TaskSet } from '../../src/worker/task-set.ts'

const idleHand = { size: 1, jobs: () => [], drop() {}, endTimedOut() {}, lostClaimers: (): string[] => [] }

it('a round ends attempts of which nothing is reported while the store is away, too', async () => {
  let looks = 0
  const round = createRound({
    hand: { size: 1, endTimedOut: () => looks++ },
    member: { runRound: () => Promise.reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'away')) },
    stop: new AbortController().signal,
  } as never)
  await expect(round()).rejects.toThrow('away')
  expect(looks).toBe(1)
})

it('a round takes nothing over whose end was given up: it was called', async () => {
  const taken: unknown[] = []
  const finisher = { hasGivenUp: true, has: () => false, endEmpty: async () => {} }
  const round = createRound({
    hand: { ...idleHand, take: (jobs: unknown) => taken.push(jobs) },
    member: {
      runRound: async () => ({ leads: false, claims: ['unknown'], mayRest: false }),
      lostJobs: async () => [],
    },
    claims: { isOpen: () => false, adopt: async () => [{ id: 'job' }] },
    finisher,
    stop: new AbortController().signal,
    publish: async () => {},
  } as never)
  await round()
  expect(taken).toEqual([])
  finisher.hasGivenUp = false
  await round()
  expect(taken).toEqual([[{ id: 'job' }]])
})

it('a round keeps the workers whose jobs it inherited from being given up, whatever else of a round fails', async () => {
  const beats: string[] = []
  const round = createRound({
    hand: { ...idleHand, lostClaimers: () => ['7'] },
    member: {
      runRound: async () => ({ leads: true, claims: [], mayRest: false }),
      beatFor: async (worker: string) => void beats.push(worker),
      watch: () => Promise.reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'away')),
    },
    stop: new AbortController().signal,
  } as never)
  await expect(round()).rejects.toThrow('away')
  expect(beats).toEqual(['7'])
})

it('a round reports that a beat came much too late: a handler computed, or the machine stood still', async () => {
  const end = new AbortController()
  let nowMs = 0
  const blockedMs = [0, 1_000, 30_000, 0]
  const clock = { monotonicMs: () => nowMs, sleep: async (ms: number) => void (nowMs += ms + (blockedMs.shift() ?? 0)) }
  const late: number[] = []
  const round = async () => blockedMs.length === 0 && end.abort()
  await repeatEveryBeat(clock as unknown as Clock, round as never, end.signal, {
    failed() {},
    late: (ms) => late.push(ms),
  })
  expect(late).toEqual([30_000])
})

it('a round leaves alone what it has inherited of a task that only the dispatcher before had', () => {
  const tasks = new TaskSet([task('mine', { input: z.object({}), run: () => {} })], {})
  const ended = (name: string) => tasks.timedOut({ task: name, failed: 0 } as ClaimedJob, 1e9, systemClock)?.kind
  expect([ended('mine'), ended('theirs')]).toEqual(['retry', undefined])
})

it.each([
  [
    'what one step fails with keeps it from no other',
    new Error('publishing fails'),
    ['woken', 'ended', 'tidied', 'checked'],
  ],
  [
    'while the store is away the other steps do not wait for it, too',
    new StoreError('SLUICE_STORE_UNREACHABLE', 'away'),
    [],
  ],
])('%s', async (_, error, rest) => {
  const done: string[] = []
  const note = (what: string) => async () => void done.push(what)
  const round = createRound({
    hand: { size: 1, jobs: () => [], drop() {}, endTimedOut() {}, lostClaimers: () => [] },
    member: {
      runRound: async () => ({ leads: true, claims: [], mayRest: false }),
      watch: async () => [],
      lostJobs: async () => [],
      wakeForMissedWork: note('woken'),
      endOverdue: note('ended'),
    },
    finisher: { hasGivenUp: true },
    maintenance: { run: note('tidied') },
    alarms: { look() {}, check: note('checked') },
    stop: new AbortController().signal,
    publish: () => Promise.reject(error),
  } as never)
  await expect(round()).rejects.toBe(error)
  expect(done).toEqual(rest)
})

it('what fails on its data is parked, though a later step loses the store', async () => {
  let looks = 0
  const broken = Object.assign(new Error('bigint out of range'), { code: '22003' })
  const round = createRound({
    store: { call: async () => (looks++, []) },
    hand: idleHand,
    member: {
      runRound: async () => ({ leads: true, claims: [], mayRest: false }),
      watch: () => Promise.reject(broken),
      lostJobs: () => Promise.reject(new StoreError('SLUICE_STORE_UNREACHABLE', 'away')),
    },
    stop: new AbortController().signal,
  } as never)
  await expect(round()).rejects.toBe(broken)
  expect(looks).toBe(1)
})
