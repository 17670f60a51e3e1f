/** Jobs granted ahead of time begin when that is recorded, with a simulated outlet, finisher and store. */
import { readFileSync } from 'node:fs'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Beginning } from '../../src/claim/begins.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { InHand } from '../../src/claim/in-hand.ts'
import { until } from '../until.ts'

/**
 * Jobs in hand.
 * @param held the claims that the store has when it records what begins; default: all, at once
 * @param waits how many ends wait for others
 */
function stage(held?: Promise<ReadonlySet<string>>, waits = 0) {
  const at = {
    started: [] as ClaimedJob[],
    ends: [] as string[],
    /** The jobs of which it was recorded that they begin, by statement of their own. */
    begun: [] as number[][],
    /** By statements with ends. */
    along: [] as number[][],
  }
  const outlet = {
    slots: 9,
    kinds: [],
    free: () => 9 - at.started.length,
    start: (jobs: ClaimedJob[]) => void at.started.push(...jobs),
    abort() {},
  }
  const finisher = {
    backlog: 0,
    registerJobs() {},
    takeBeginning: (): Beginning | undefined => undefined,
    recordNow: () => waits-- > 0 && record(),
    end: async (_: unknown, outcome: { kind: string }) => at.ends.push(outcome.kind) > 0,
  }
  /** Records ends, and what begins. */
  const record = () => {
    const beginning = finisher.takeBeginning()
    if (beginning === undefined) return true
    at.along.push(beginning.jobs.map(({ seq }) => seq))
    if (at.along.length === 1) beginning.recorded(new Set(beginning.jobs.map(({ claim }) => claim)))
    else beginning.failed()
    return true
  }
  const stintRecorder = {
    async begun(jobs: ClaimedJob[]) {
      at.begun.push(jobs.map(({ seq }) => seq))
      return held ?? new Set(jobs.map(({ claim }) => claim))
    },
  }
  const options = { outlet: () => outlet, finisher, stintRecorder, clock: systemClock, claimer: () => '1' }
  return { at, record, hand: new InHand(options as never, () => {}) }
}

/** A job whose instant comes in so many ms, and which was claimed `agoMs` ago; default: so long that it must be recorded. */
function job(inMs: number, seq = 1, claim = 'claim', agoMs = 200): ClaimedJob {
  const nowMs = systemClock.monotonicMs()
  const grants = { grantedMs: nowMs + inMs, notBeforeMs: nowMs + inMs, grantUs: 60_000_000, decidedMs: nowMs - agoMs }
  return { ...grants, buckets: ['calls'], task: 'a', claim, seq } as unknown as ClaimedJob
}

it('a job of which no begin is recorded is one that the rescue of its worker takes for begun', () => {
  const numberIn = (file: string, pattern: RegExp) => Number(pattern.exec(readFileSync(`src/${file}`, 'utf8'))?.[1])
  const doubtMs = numberIn('claim/begins.ts', /const doubtMs = (\d+)/)
  expect(doubtMs).toBeGreaterThan(0)
  expect(numberIn('fleet/rescue_worker.sql', /s\.at > h\.at \+ (\d+)/)).toBeGreaterThanOrEqual(doubtMs * 1_000)
})

it('jobs begin when that is recorded, just before their instants and several at a time', async () => {
  const { at, hand } = stage()
  hand.take([200, 205, 210, 400].map((ms, i) => job(ms, i)))
  expect(at.begun).toEqual([])
  await until(() => at.started.length > 0, 'the first has begun')
  expect(at.begun).toEqual([[0, 1, 2]])
  await until(() => at.started.length === 4, 'all have begun')
  expect(at.begun).toEqual([[0, 1, 2], [3]])
})

it('ends that are recorded take along what begins within 100 ms, ends that wait what is about to begin', async () => {
  const { at, hand, record } = stage(undefined, 1)
  hand.take([300, 60, 40].map((ms, i) => job(ms, i)))
  record()
  expect([at.along, at.begun]).toEqual([[[1, 2]], []])
  await until(() => at.started.length === 3, 'all have begun')
  // The statement with the ends failed.
  expect([at.along, at.begun]).toEqual([[[1, 2], [0]], [[0]]])
})

it('a job begins no sooner than that is recorded, and not at all if its claim is gone', async () => {
  let reply: (held: ReadonlySet<string>) => void = () => {}
  const { at, hand } = stage(new Promise((resolve) => (reply = resolve)))
  const soon = job(1)
  hand.take([soon, job(1, 2, 'gone'), job(20, 3, 'claim', 70)])
  await until(() => at.started.length > 0, 'the one that counts as begun from its claim on has begun')
  expect([at.started.length, at.begun]).toEqual([1, [[1, 2]]])
  reply(new Set(['claim']))
  await until(() => at.started.length === 2, 'another has begun')
  expect([at.started[1], at.ends, hand.size]).toEqual([soon, ['unused'], 2])
})

it('a job goes back if it is not recorded while its grant lives that it begins, or when the worker ends', async () => {
  const { at, hand } = stage(new Promise(() => {}))
  hand.take([{ ...job(1), grantUs: 20_000 }, job(1, 2)])
  await until(() => at.ends.length === 1, 'the one whose grant has grown old has gone back')
  hand.abort(new Error('over'))
  await until(() => at.ends.length === 2, 'the other has gone back')
  expect([at.ends, at.started, hand.size]).toEqual([['unused', 'unused'], [], 0])
})

it('a job that was given up before is not recorded as begun', async () => {
  const { at, hand } = stage()
  const given = job(60)
  hand.take([given, job(100, 2)])
  hand.drop([given], new Error('over'))
  await until(() => at.started.length === 1, 'the other has begun')
  expect(at.begun).toEqual([[2]])
})
