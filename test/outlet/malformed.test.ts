/** Announcements that a dispatcher cannot use. */
import { expect, it } from 'vitest'
import { silent as log } from '../../src/core/log.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

const whole = {
  type: 'announce',
  worker: 'w',
  n: 1,
  at: 0,
  asOf: null,
  stint: 's',
  slots: 3,
  tasks: ['a'],
  kinds: [],
  holds: [],
  orphans: [],
  left: [],
}

it.each([[], ...['n', 'stint', 'slots', 'tasks', 'kinds', 'holds', 'orphans', 'left'].map((field) => [field])])(
  'a worker counts only if its announcement lacks nothing: without %s',
  async (field) => {
    const world = new World()
    const wire = new MemoryWire(world.clock(0, 1), () => [1])
    const outlet = new BrokerOutlet({ wire, fleet: 'f', tasks: ['a'], clock: world.clock(0, 1), log })
    const nothing = async () => {}
    const reports = { ended: nothing, begun() {}, refused() {}, lost() {}, left: nothing, inherited() {}, changed() {} }
    const seam = outlet.for(reports, () => 'x')
    await outlet.open()
    const message = Object.fromEntries(Object.entries(whole).filter(([name]) => name !== field))
    await wire.send(outlet.id, JSON.stringify(message))
    await world.runUntil(10)
    expect(seam.free()).toBe(field === undefined ? 3 : 0)
    void outlet.close()
  },
)
