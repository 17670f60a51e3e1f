/** A dispatcher and its workers in simulated time, with clocks of their own, over a wire that loses, repeats and delays. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Outlet } from '../../src/claim/outlet.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { Executor } from '../../src/outlet/executor.ts'
import { keyOf } from '../../src/outlet/messages.ts'
import { silent as log } from '../../src/core/log.ts'
import { forAllInTime } from '../for-all.ts'
import { isLong } from '../long.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

const slots = 3
const lifeMs = 1_000
const faultsMs = 15_000
const endMs = 40_000

it('a fleet begins each job once and in time, or reports that it did not begin, whatever becomes of messages', async () => {
  const faults = fc.record({ seed: fc.integer(), lost: fc.nat(40), twice: fc.nat(20), mostMs: fc.nat(1_200) })
  const run = async ({ seed, lost, twice, mostMs }: { seed: number; lost: number; twice: number; mostMs: number }) => {
    let state = seed
    const random = () => ((state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0) >>> 8) / 2 ** 24
    const world = new World()
    const copy = () => 1 + random() * random() * mostMs
    const wire = new MemoryWire(world.clock(0, 1), () => {
      if (random() * 100 < lost) return []
      return random() * 100 < twice ? [copy(), copy()] : [copy()]
    })
    const clock = world.clock(5_000_000, 1.0003)
    const [begun, became] = [new Map<string, number>(), new Map<string, string[]>()]
    const became_ = (job: ClaimedJob, what: string) => {
      const key = keyOf(job)
      became.set(key, [...(became.get(key) ?? []), what])
    }
    const dispatcher = new BrokerOutlet({ wire, fleet: 'f', tasks: ['a'], clock, log })
    dispatcher.for(
      {
        ended: async (job) => became_(job, 'ended'),
        refused: (job) => became_(job, 'refused'),
        lost: (job) => became_(job, 'lost'),
        begun: async () => {},
        left: async () => {},
        inherited() {},
        changed() {},
      },
      () => '1',
    )
    await dispatcher.open()
    for (const [offsetMs, rate] of [
      [77, 0.9996],
      [9_000_000, 1.0004],
    ] as const) {
      const own = world.clock(offsetMs, rate)
      let busy = 0
      const worker = new Executor({
        wire,
        fleet: 'f',
        tasks: ['a'],
        kinds: [],
        onLate() {},
        clock: own,
        log,
        outlet: (reports): Outlet => ({
          slots,
          kinds: [],
          free: () => slots - busy,
          abort() {},
          start(jobs) {
            for (const job of jobs) {
              busy++
              expect(begun.has(keyOf(job))).toBe(false)
              begun.set(keyOf(job), clock.monotonicMs())
              own.after(random() * 400, () => {
                busy--
                void reports.ended(job, { kind: 'done', result: null, tookMs: 1 })
              })
            }
          },
        }),
      })
      await worker.open()
    }
    const granted = new Map<string, number>()
    const feed = () => {
      if (world.nowMs > faultsMs) return
      if (dispatcher.free() > 0) {
        dispatcher.enlist()
        const job = { claim: String(granted.size), seq: 1, task: 'a', buckets: ['x'], grantUs: lifeMs * 1_000 }
        const all = { ...job, grantedMs: clock.monotonicMs() } as ClaimedJob
        granted.set(keyOf(all), all.grantedMs)
        dispatcher.start([all])
      }
      clock.after(60, feed)
    }
    feed()
    await world.runUntil(faultsMs)
    wire.fate = () => [1]
    await world.runUntil(endMs)
    for (const [key, atMs] of granted) {
      const what = became.get(key) ?? []
      expect(what.length).toBe(1)
      expect(what[0] === 'refused' && begun.has(key)).toBe(false)
      expect(what[0] === 'ended' && !begun.has(key)).toBe(false)
      expect((begun.get(key) ?? atMs) - atMs).toBeLessThanOrEqual(lifeMs * 0.75)
    }
    // Some ran, if messages arrive in time at all, and every slot is free again.
    expect(begun.size > 0 || lost + mostMs > 50).toBe(true)
    expect(dispatcher.free()).toBe(2 * slots)
    await dispatcher.close()
  }
  await forAllInTime(isLong ? 1_000 : 100, faults, run)
})
