/** How well a worker of a fleet must know its dispatcher's clock, by which it computes the ages of grants. */
import { expect, it } from 'vitest'
import { silent } from '../../src/core/log.ts'
import type { Outlet, Reports } from '../../src/claim/outlet.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { Executor } from '../../src/outlet/executor.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

/** A dispatcher and a worker whose clocks show other times. Each message between them takes `wayMs`. */
async function meet(wayMs: number) {
  const world = new World()
  const way = { ms: wayMs }
  const wire = new MemoryWire(world.clock(0, 1), () => [way.ms])
  const warnings: unknown[] = []
  const log = { ...silent, warn: (text: string, about?: object) => void warnings.push({ text, ...about }) }
  const own = { wire, fleet: 'f', tasks: ['a'], log }
  const dispatcher = new BrokerOutlet({ ...own, clock: world.clock(5_000_000, 1) })
  dispatcher.for({ left: async () => {}, changed() {} } as unknown as Reports, () => '1')
  await dispatcher.open()
  const outlet = (): Outlet => ({ slots: 3, kinds: [], free: () => 3, abort() {}, start() {} })
  const worker = new Executor({ ...own, kinds: [], onLate() {}, outlet, clock: world.clock(77, 1) })
  await worker.open()
  await world.runUntil(20_000)
  return { dispatcher, world, way, warnings }
}

it.each([
  [1, 3],
  [120, 3],
  [126, 0],
  [400, 0],
])(
  'a worker from which a message takes %i ms offers %i slots, because its error is the way there and back',
  async (wayMs, slots) => {
    const { dispatcher, warnings } = await meet(wayMs)
    expect(dispatcher.slots).toBe(slots)
    expect(dispatcher.enlist().length).toBe(slots > 0 ? 1 : 0)
    const warning = {
      text: expect.stringContaining('the worker gets no jobs'),
      tookMs: expect.closeTo(2 * wayMs, -1),
      most: 250,
    }
    expect(warnings).toEqual(slots > 0 ? [] : [expect.objectContaining(warning)])
  },
)

it('a worker offers its slots as soon as its messages are fast enough', async () => {
  const { dispatcher, world, way } = await meet(400)
  way.ms = 20
  await world.runUntil(world.nowMs + 5_000)
  expect(dispatcher.slots).toBe(3)
})
