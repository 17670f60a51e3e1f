/** What a fleet that has nothing to do costs its broker. */
import { expect, it } from 'vitest'
import { silent as log } from '../../src/core/log.ts'
import type { Outlet } from '../../src/claim/outlet.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { Executor } from '../../src/outlet/executor.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

const none = {
  ended: async () => {},
  refused() {},
  lost() {},
  begun: async () => {},
  left: async () => {},
  inherited() {},
  changed() {},
}

/** Returns how many messages go each second while so many dispatchers and workers are idle. */
async function count(dispatchers: number, workers: number): Promise<number> {
  const world = new World()
  let sent = 0
  const wire = new MemoryWire(world.clock(0, 1), () => (sent++, [1]))
  const own = { wire, fleet: 'f', tasks: ['a'], log }
  for (let n = 0; n < dispatchers; n++) {
    const dispatcher = new BrokerOutlet({ ...own, clock: world.clock(5_000 * n, 1) })
    dispatcher.for(none, () => String(n))
    await dispatcher.open()
  }
  const outlet = (): Outlet => ({ slots: 3, kinds: [], free: () => 3, abort() {}, start() {} })
  for (let n = 0; n < workers; n++)
    await new Executor({ ...own, kinds: [], onLate() {}, outlet, clock: world.clock(77 * n, 1) }).open()
  await world.runUntil(10_000)
  sent = 0
  await world.runUntil(40_000)
  return sent / 30
}

it('an idle fleet sends a number of messages that grows with its workers, and no faster', async () => {
  const [few, many, two] = [await count(1, 2), await count(1, 20), await count(2, 20)]
  // An announcement and its answer, for each dispatcher of which a worker knows.
  expect(few).toBeGreaterThan(0)
  expect(few).toBeLessThanOrEqual(2 * 2.1)
  expect(many).toBeLessThanOrEqual(20 * 2.1)
  expect(two).toBeLessThanOrEqual(20 * 4.2)
})
