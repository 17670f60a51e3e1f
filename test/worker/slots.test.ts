import { describe, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import type { Finisher, Outcome } from '../../src/claim/finish/finish.ts'
import type { Handout } from '../../src/claim/claimed-job.ts'
import type { Attempt } from '../../src/worker/attempt.ts'
import { Slots } from '../../src/worker/slots.ts'
import { Stuck } from '../../src/worker/stuck.ts'
import { Throttle } from '../../src/worker/throttle.ts'
import { until } from '../until.ts'

const log = { debug() {}, info() {}, warn() {}, error() {} }

interface Given {
  rate?: number
  grantUs?: number | null
  isStoreApart?: boolean
}

describe('slots', () => {
  /** Slots whose attempts keep the process for `at.ms` each, after an `await` of what is there. */
  function slots({ rate, grantUs = null, isStoreApart = true }: Given = {}) {
    const at = { ms: 0, begun: 0, nowMs: 1_000 }
    const clock = { ...systemClock, monotonicMs: () => at.nowMs }
    const finisher = { backlog: 0, opened() {}, end: () => Promise.resolve(true) } as unknown as Finisher
    const run = async (): Promise<Outcome> => {
      at.begun++
      await Promise.resolve()
      at.nowMs += at.ms
      return { kind: 'done', result: null, tookMs: at.ms }
    }
    const attempt = (job: Handout) => ({ job, run }) as unknown as Attempt
    const stuck = new Stuck({ clock, log, most: 100, changed() {} })
    const throttle = rate === undefined ? undefined : new Throttle(`${rate}/s`, clock, log)
    const made = new Slots(100, finisher, attempt, () => {}, stuck, clock, isStoreApart, throttle)
    /** Starts ten; resolves, when they have ended, to how many had begun by the time that more could be asked for. */
    const start = async () => {
      const before = at.begun
      made.start(Array.from({ length: 10 }, () => ({ grantUs }) as Handout))
      await Promise.resolve()
      const begun = at.begun - before
      expect(made.running).toBe(10)
      await until(() => at.begun === before + 10 && made.running === 0, 'all have ended')
      return begun
    }
    return { at, start, made }
  }

  it('begin attempts after more was asked for, but not where its grants would grow old meanwhile', async () => {
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

  it('are not free while they are kept, and neither is what the rate lets begin', async () => {
    const { at, made } = slots({ rate: 30 })
    const most = made.free()
    const [first, second] = [made.keep(), made.keep()]
    expect(made.free()).toBe(most - 2)
    first([])
    expect(made.free()).toBe(most - 1)
    second([{} as Handout])
    expect([made.free(), made.running, made.kept]).toEqual([most - 1, 1, 0])
    await until(() => at.begun === 1 && made.running === 0, 'it has ended')
  })

  it('begin attempts after more was asked for only if short grants, too, stay young', async () => {
    const { at, start } = slots({ grantUs: 10_000 })
    at.ms = 0.5
    await start()
    expect(await start()).toBe(10)
  })

  it('begin attempts at once where they are counted from now on', async () => {
    expect(await slots({ rate: 100 }).start()).toBe(10)
  })

  it('begin attempts at once where the store would work before them', async () => {
    expect(await slots({ isStoreApart: false }).start()).toBe(10)
  })
})
