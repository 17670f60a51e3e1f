/** When the ends of attempts wait for others, by a clock that only the test moves, and a store that records when it is called. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { Finisher } from '../../src/claim/finish/finish.ts'
import type { Outcome } from '../../src/claim/finish/outcome.ts'
import type { Clock } from '../../src/core/clock.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { Store } from '../../src/db/store.ts'
import { attemptCalls } from './engine.ts'
import { forAllInTime } from '../for-all.ts'
import { until } from '../until.ts'

const success: Outcome = { kind: 'done', result: null, tookMs: 1 }
const failure: Outcome = { kind: 'retry', error: '{}', delayMs: 1, tookMs: 1 }

interface Given {
  slots?: number
  isPressing?: (job: ClaimedJob) => boolean
}

/** A finisher whose statements take `tookMs`. */
function stage({ slots = 100, isPressing = () => false }: Given = {}, tookMs = 1) {
  let nowMs = 0
  const timers = new Set<{ atMs: number; run: () => void }>()
  const after = (ms: number, run: () => void) => {
    const timer = { atMs: nowMs + ms, run }
    timers.add(timer)
    return () => void timers.delete(timer)
  }
  const clock: Clock = { ...systemClock, monotonicMs: () => nowMs, after }
  /** When each statement was sent, with the seqs of its jobs. */
  const statements: { atMs: number; seqs: number[] }[] = []
  const call = async (_: string, args: readonly unknown[]) => {
    statements.push({ atMs: nowMs, seqs: JSON.parse(`[${String(args[2]).slice(1, -1)}]`) as number[] })
    await new Promise<void>((resolve) => after(tookMs, resolve))
    return [{ [attemptCalls.finish]: [] }]
  }
  /** The jobs of which a statement also recorded that they begin. */
  const begun: string[] = []
  const state = { isAway: false }
  const run = async (file: string, args: readonly unknown[]) => {
    if (state.isAway) throw new Error('the connection was lost')
    begun.push(`${String(args[13])} ${String(args[14])}`)
    return [{ ...(await call(file, args))[0], held: args[13] }]
  }
  const finisher = new Finisher({ clock, call, run } as unknown as Store, undefined, { slots: () => slots, isPressing })
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve))
  return {
    finisher,
    statements,
    begun,
    state,
    /** Moves the clock from timer to timer. */
    async to(ms: number) {
      for (;;) {
        await turn()
        const [next] = [...timers].toSorted((a, b) => a.atMs - b.atMs)
        if (next === undefined || next.atMs > ms) break
        timers.delete(next)
        nowMs = Math.max(nowMs, next.atMs)
        next.run()
      }
      nowMs = ms
      await turn()
    },
  }
}

/** A job that was granted ahead, or was not. */
const job = (seq: number, isAhead = true) =>
  ({
    claim: 'c',
    seq,
    id: `${seq}`,
    task: 'a',
    buckets: ['calls'],
    chargedBuckets: null,
    grantedMs: 0,
    ...(isAhead ? { notBeforeMs: 0, decidedMs: 0 } : {}),
  }) as ClaimedJob

const times = (statements: readonly { atMs: number; seqs: number[] }[]) =>
  statements.map(({ atMs, seqs }) => [atMs, seqs])

describe('the ends of attempts under a limit', () => {
  it('are recorded together with what begins soon, and at once when that must not wait', async () => {
    const { finisher, statements, begun, state, to } = stage()
    finisher.registerJobs([1, 2, 3, 4].map((seq) => job(seq)))
    const [recorded, failed] = [[] as string[], [] as string[]]
    let next: ClaimedJob[] = []
    finisher.takeBeginning = () =>
      next.length === 0
        ? undefined
        : {
            jobs: next.splice(0),
            recorded: (held) => void recorded.push(...held),
            failed: () => void failed.push('failed'),
          }
    expect(finisher.recordNow()).toBe(false)
    void finisher.end(job(1), success)
    await to(10)
    next = [job(3)]
    expect(finisher.recordNow()).toBe(true)
    await to(10.5)
    // The statement is under way.
    void finisher.end(job(2), success)
    expect(finisher.recordNow()).toBe(false)
    await to(11)
    expect([times(statements), begun, recorded]).toEqual([[[10, [1]]], ['c 3'], ['c']])
    state.isAway = true
    next = [job(4)]
    await to(10_000)
    await until(() => statements.length === 2, 'the end is recorded all the same')
    expect([statements.at(-1)?.seqs, begun, recorded, failed]).toEqual([[2], ['c 3'], ['c'], ['failed']])
  })

  it('are recorded together within 50 ms of the first, and at once with the last in hand', async () => {
    const { finisher, statements, to } = stage()
    finisher.registerJobs([1, 2, 3, 4, 5].map((seq) => job(seq)))
    for (const [seq, atMs] of [
      [1, 0],
      [2, 20],
      [3, 49],
      [4, 60],
      [5, 80],
    ] as const) {
      await to(atMs)
      void finisher.end(job(seq), success)
    }
    await to(100)
    expect(times(statements)).toEqual([
      [50, [1, 2, 3]],
      [80, [4, 5]],
    ])
  })

  it('are recorded by several statements if their results are large', async () => {
    const { finisher, statements, to } = stage()
    const jobs = Array.from({ length: 40 }, (_, seq) => job(seq, false))
    finisher.registerJobs(jobs)
    for (const each of jobs) void finisher.end(each, { kind: 'done', result: 'x'.repeat(250_000), tookMs: 1 })
    await to(100)
    expect(statements.map(({ seqs }) => seqs.length)).toEqual([34, 6])
  })

  it('do not wait if the job was not granted ahead, holds a place, failed, or is the only one in hand', async () => {
    const { finisher, statements, to } = stage({ isPressing: ({ seq }) => seq === 2 })
    finisher.registerJobs([1, 2, 3, 4].map((seq) => job(seq)))
    void finisher.end(job(1, false), success)
    await to(10)
    void finisher.end(job(2), success)
    await to(20)
    void finisher.end(job(3), failure)
    await to(30)
    void finisher.end(job(4), success)
    await to(40)
    expect(times(statements)).toEqual([
      [0, [1]],
      [10, [2]],
      [20, [3]],
      [30, [4]],
    ])
  })

  it('are recorded at once with one that must not wait, when more wait than attempts run at once, and for who waits for all', async () => {
    const { finisher, statements, to } = stage({ slots: 2 })
    finisher.registerJobs([1, 2, 3, 4, 5, 6, 7, 8, 9].map((seq) => job(seq)))
    void finisher.end(job(1), success)
    await to(5)
    void finisher.end(job(2), failure)
    await to(10)
    for (const seq of [3, 4, 5]) void finisher.end(job(seq), success)
    await to(15)
    void finisher.end(job(6), success)
    await to(20)
    const settled = finisher.waitUntilRecorded()
    await to(30)
    await settled
    void finisher.end(job(7), success)
    await to(40)
    expect(times(statements)).toEqual([
      [5, [1, 2]],
      [10, [3, 4, 5]],
      [20, [6]],
    ])
    expect(finisher.backlog).toBe(1)
  })

  it('each of them once, in a statement that is sent 50 ms after it at most, or as soon as the one before is answered', async () => {
    const end = fc.record({ gapMs: fc.integer({ min: 0, max: 40 }), kind: fc.integer({ min: 0, max: 9 }) })
    await forAllInTime(
      200,
      fc.array(end, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 20 }),
      async (ends, tookMs, slots) => {
        const { finisher, statements, to } = stage({ slots, isPressing: ({ seq }) => ends[seq]?.kind === 0 }, tookMs)
        finisher.registerJobs(ends.map((_, seq) => job(seq)))
        const ended: number[] = []
        let atMs = 0
        for (const [seq, { gapMs, kind }] of ends.entries()) {
          atMs += gapMs
          await to(atMs)
          ended.push(atMs)
          void finisher.end(job(seq, kind !== 1), kind === 2 ? failure : success)
        }
        await to(atMs + 10_000)
        expect(statements.flatMap(({ seqs }) => seqs).toSorted((a, b) => a - b)).toEqual(ends.map((_, seq) => seq))
        for (const [i, { atMs: sentMs, seqs }] of statements.entries()) {
          const freeMs = i === 0 ? 0 : (statements[i - 1]?.atMs ?? 0) + tookMs
          const firstMs = Math.min(...seqs.map((seq) => ended[seq] ?? 0))
          expect(sentMs).toBeLessThanOrEqual(Math.max(freeMs, firstMs + 50))
          const isUrgent = seqs.some((seq) => (ends[seq]?.kind ?? 9) <= 2)
          const lastMs = Math.max(...seqs.map((seq) => ended[seq] ?? 0))
          if (isUrgent) expect(sentMs).toBeLessThanOrEqual(Math.max(freeMs, lastMs))
        }
      },
    )
  })
})

it('an end that is reported as soon as another one is recorded is recorded, too', async () => {
  const { finisher, statements, to } = stage()
  finisher.registerJobs([job(1), job(2)])
  void finisher.end(job(1), failure).then(() => finisher.end(job(2), failure))
  await to(100)
  expect(statements.flatMap(({ seqs }) => seqs)).toEqual([1, 2])
})
