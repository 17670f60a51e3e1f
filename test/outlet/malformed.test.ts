/** Messages that a dispatcher or a worker cannot use. */
import { expect, it } from 'vitest'
import { silent as log } from '../../src/core/log.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { Executor } from '../../src/outlet/executor.ts'
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
    const reports = {
      ended: nothing,
      begun: async () => {},
      refused() {},
      lost() {},
      left: nothing,
      inherited() {},
      changed() {},
    }
    const seam = outlet.for(reports, () => 'x')
    await outlet.open()
    const message = Object.fromEntries(Object.entries(whole).filter(([name]) => name !== field))
    await wire.send(outlet.id, JSON.stringify(message))
    await world.runUntil(10)
    expect(seam.free()).toBe(field === undefined ? 3 : 0)
    void outlet.close()
  },
)

it('a worker begins and holds nothing of a message of which a part cannot be read', async () => {
  const world = new World()
  const wire = new MemoryWire(world.clock(0, 1), () => [1])
  const begun: unknown[] = []
  const announced: { stint: string | null; holds: string[]; at: number }[] = []
  const outlet = {
    slots: 3,
    kinds: [],
    free: () => 3,
    abort() {},
    start: (jobs: readonly unknown[]) => void begun.push(...jobs),
  }
  const options = { wire, fleet: 'f', tasks: ['a'], kinds: [], onLate() {}, clock: world.clock(0, 1), log }
  const worker = new Executor({ ...options, outlet: () => outlet })
  const say = (message: object) => wire.send(worker.id, JSON.stringify({ from: 'd', ...message }))
  await wire.receive('d', (text) => {
    const message = JSON.parse(text) as (typeof announced)[number] & { type: string }
    if (message.type !== 'announce') return
    announced.push(message)
    const answer = { type: 'answer', echo: message.at, at: world.nowMs, recorded: [], strangers: [], inherited: [] }
    void say(answer)
  })
  await worker.open()
  await say({ type: 'offer' })
  await world.runUntil(1_500)
  const stint = announced.at(-1)?.stint
  const job = { claim: 'c', seq: 1, task: 'a', buckets: null, grantUs: null, grantedMs: world.nowMs, input: '1' }
  const grants = (jobs: unknown[]) => say({ type: 'grants', at: world.nowMs, claimer: 'x', stint, recorded: [], jobs })
  await grants([job, null])
  await world.runUntil(3_000)
  expect(begun).toEqual([])
  expect(announced.at(-1)?.holds).toEqual([])
  await grants([{ ...job, seq: 2, grantedMs: world.nowMs }])
  await world.runUntil(4_500)
  expect(begun).toHaveLength(1)
  expect(announced.at(-1)?.holds).toEqual(['c:2'])
  await worker.close()
})
