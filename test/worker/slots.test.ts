import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Outcome } from '../../src/claim/finish/outcome.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Attempt } from '../../src/worker/attempt.ts'
import { Slots } from '../../src/worker/slots.ts'
import { StuckHandlers } from '../../src/worker/stuck.ts'
import { until } from '../until.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }

interface Given {
  grantUs?: number | null
  isPrompt?: boolean
  /** Granted ahead of time. */
  notBeforeMs?: number
}

describe('slots', () => {
  /** Slots whose attempts keep the process busy for `at.ms` each, after an `await`. */
  function slots({ grantUs = null, isPrompt = false, notBeforeMs }: Given = {}) {
    const at = { ms: 0, begun: 0, nowMs: 1_000 }
    const clock = { ...systemClock, monotonicMs: () => at.nowMs }
    const run = async (): Promise<Outcome> => {
      at.begun++
      await Promise.resolve()
      at.nowMs += at.ms
      return { kind: 'done', result: null, tookMs: at.ms }
    }
    const attempt = (job: ClaimedJob) => ({ job, run }) as unknown as Attempt
    const stuck = new StuckHandlers({ clock, log, most: 100, changed() {} })
    const threaded = { tasks: new Set<string>(), threads: 0 }
    const nothing = () => {}
    const reports = {
      ended: async () => {},
      refused: nothing,
      lost: nothing,
      begun: async () => {},
      left: async () => {},
      inherited: nothing,
      changed: nothing,
    }
    const made = new Slots({ slots: 100, attempt, stuck, clock, isPrompt, threaded }, reports)
    /** Starts ten; resolves, when they have ended, to how many had begun when the next claim could be sent. */
    const start = async () => {
      const before = at.begun
      made.start(Array.from({ length: 10 }, () => ({ grantUs, notBeforeMs }) as ClaimedJob))
      await Promise.resolve()
      const begun = at.begun - before
      expect(made.free()).toBe(90)
      await until(() => at.begun === before + 10 && made.free() === 100, 'all have ended')
      return begun
    }
    return { at, start }
  }

  it('begin attempts after the next claim was sent, unless grants would grow old meanwhile', async () => {
    const { at, start } = slots()
    expect(await start()).toBe(0)
    expect(await start()).toBe(0)
    at.ms = 5
    expect(await start()).toBe(0)
    expect(await start()).toBe(10)
    at.ms = 0
    expect(await start()).toBe(10)
    expect(await start()).toBe(0)
  })

  it('with short grants begin attempts after the next claim was sent only if these stay young, too', async () => {
    const { at, start } = slots({ grantUs: 10_000 })
    at.ms = 0.5
    await start()
    expect(await start()).toBe(10)
  })

  it('begin attempts at once at the instant to which they were granted', async () => {
    expect(await slots({ notBeforeMs: 1_000 }).start()).toBe(10)
  })

  it('begin attempts at once when they are set to be prompt', async () => {
    expect(await slots({ isPrompt: true }).start()).toBe(10)
  })
})
