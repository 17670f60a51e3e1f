/** A store whose limit is granted ahead of time, workers that claim there at their times, and a clock that only they move. */
import { beforeEach, expect } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import { limit } from '../../src/limits/limit.ts'
import { type Answer, claim, done, emptied, type Engine, enter, ownClock, quietTask } from './engine.ts'
import { copies } from '../rows.ts'

const startMs = Date.UTC(2026, 10, 26)

/** Inputs of so many jobs. */

/** The limit that is saturated. */
export const fast = limit('fast', { rate: '100/s' })

/** When each job of an answer may begin, in microseconds. */
export const used = (answer: Answer) => answer.laterUs.map((us) => answer.nowUs + us)

/** For the tests of a block. @param limits those of the task `a` */
export function aheadOn(engine: Engine, limits: Parameters<typeof quietTask>[1]) {
  const at = emptied(engine)
  const now = {} as { clock: Awaited<ReturnType<typeof ownClock>>; ms: number }
  beforeEach(async () => {
    await at.db.query('drop table if exists sluice.test_clock')
    now.clock = await ownClock(at.db, startMs)
    now.ms = startMs
  })

  const pass = async (ms: number) => now.clock.set((now.ms += ms))
  const ahead = (worker: string, tasks: string[], want = 10) =>
    claim(at.db, worker, tasks, want, newId(), { idle: true, ahead: want })

  /** Takes what is free at once, so that the limit is saturated from now on. Resolves to whether it is then granted ahead. */
  async function saturate(tasks: string[]): Promise<boolean> {
    for (let i = 0; i < 100; i++) {
      const { jobs, laterUs, again } = await ahead(at.worker, tasks)
      await done(at.db, jobs)
      const isAhead = laterUs.some((us) => us > 0)
      if (isAhead || (jobs.length === 0 && !again)) return isAhead
    }
    throw new Error('the limit is never saturated')
  }

  /** Lets workers claim at their times for some seconds of the store's clock. Resolves to the jobs that each one got. */
  async function live(workers: { id: string; tasks: string[]; isAhead?: boolean; want?: number }[], seconds: number) {
    const all = workers.map((one) => ({ ...one, got: 0, claims: 0, atMs: now.ms }))
    const endMs = now.ms + seconds * 1000
    for (;;) {
      const next = all.reduce((a, b) => (b.atMs < a.atMs ? b : a))
      if (next.atMs > endMs) return all
      await now.clock.set((now.ms = Math.max(now.ms, next.atMs)))
      const want = next.want ?? 10
      const mode = { idle: true, ahead: (next.isAhead ?? true) ? 50 : 0 }
      const { jobs, again, wakeUs } = await claim(at.db, next.id, next.tasks, want, newId(), mode)
      await done(at.db, jobs)
      next.got += jobs.length
      next.claims += 1
      const isFull = jobs.length === want && wakeUs === undefined
      next.atMs = now.ms + (again || isFull ? 1 : Math.max(1, Math.ceil((wakeUs ?? 1e6) / 1000)))
    }
  }

  /** The limit is granted ahead, and one job of the task `o` waits for another. */
  async function besideAnother(): Promise<void> {
    await at.sluice.sendMany(quietTask('a', limits), copies(300))
    await at.sluice.sendMany(quietTask('o', [limit('other', { rate: '50/10s' })]), copies(1))
    await saturate(['a'])
    await pass(100)
    await ahead(at.worker, ['a'], 50)
  }

  const worker = (tasks: string[]) => enter(at.db, tasks, {}, 10)
  const isProved = async () => expect(await at.sluice.verify()).toMatchObject({ isProved: true, exceeded: [] })
  return { at, now, pass, ahead, saturate, live, besideAnother, worker, isProved }
}
