/** Reports of a worker that would be too long for a broker in one message. */
import { expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Reports } from '../../src/claim/outlet.ts'
import { silent as log } from '../../src/core/log.ts'
import { Executor } from '../../src/outlet/executor.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

it('the ends of many attempts with large results go in messages of a bounded size, each end in one', async () => {
  const world = new World()
  const wire = new MemoryWire(world.clock(0, 1), () => [1])
  const count = 60
  const begun: ClaimedJob[] = []
  let reports: Reports | undefined
  const outlet = {
    slots: count,
    kinds: [],
    free: () => count,
    abort() {},
    start: (jobs: readonly ClaimedJob[]) => void begun.push(...jobs),
  }
  const worker = new Executor({
    wire,
    fleet: 'f',
    tasks: ['a'],
    kinds: [],
    onLate() {},
    clock: world.clock(0, 1),
    log,
    outlet: (to) => ((reports = to), outlet),
  })
  const say = (message: object) => wire.send(worker.id, JSON.stringify({ from: 'd', ...message }))
  let stint: string | null = null
  const lengths: number[] = []
  const ended = new Set<string>()
  await wire.receive('d', (text) => {
    lengths.push(text.length)
    const message = JSON.parse(text) as { type: string; stint: string | null; at: number; ends: [string, unknown][] }
    if (message.type === 'ended') for (const [key] of message.ends) ended.add(key)
    if (message.type !== 'announce') return
    stint = message.stint
    void say({ type: 'answer', echo: message.at, at: world.nowMs, recorded: [], strangers: [], inherited: [] })
  })
  await worker.open()
  await say({ type: 'offer' })
  await world.runUntil(1_500)
  const job = { claim: 'c', task: 'a', buckets: null, grantUs: null, grantedMs: world.nowMs, input: '1' }
  const jobs = Array.from({ length: count }, (_, seq) => ({ ...job, seq }))
  await say({ type: 'grants', at: world.nowMs, claimer: 'x', stint, recorded: [], jobs })
  await world.runUntil(1_600)
  expect(begun).toHaveLength(count)
  const result = JSON.stringify('x'.repeat(200_000))
  for (const one of begun) void reports?.ended(one, { kind: 'done', result, tookMs: 1 })
  await new Promise((resolve) => setImmediate(resolve))
  await world.runUntil(1_700)
  expect(ended.size).toBe(count)
  expect(Math.max(...lengths)).toBeLessThan(600_000)
  await worker.close()
})
