/** A dispatcher that comes back after its worker has turned to another one. */
import { hostname } from 'node:os'
import { expect, it } from 'vitest'
import { version } from '../../src/core/version.ts'
import { silent as log } from '../../src/core/log.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { JobKey, Reports } from '../../src/claim/outlet.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { Executor } from '../../src/outlet/executor.ts'
import type { Wire } from '../../src/outlet/wire.ts'
import { MemoryWire } from './memory-wire.ts'
import { World } from './simulated-world.ts'

const slots = 3

/** A worker with its first dispatcher, whose connection can be cut, and what each reports. */
async function stage(kinds: { tasks: string[]; slots: number }[] = []) {
  const world = new World()
  const wire = new MemoryWire(world.clock(0, 1), () => [1])
  const first = { isCut: false, isAway: false }
  const frail: Wire = {
    get isUp() {
      return !first.isAway
    },
    send: async (to, message) => (first.isCut ? undefined : wire.send(to, message)),
    call: async (fleet, message) => (first.isCut ? undefined : wire.call(fleet, message)),
    receive: (name, take, fleet) => wire.receive(name, (message) => void (first.isCut || take(message)), fleet),
    leave: (name) => wire.leave(name),
  }
  const [told, known]: string[][] = [[], []]
  const places: unknown[] = []
  const left: (readonly JobKey[])[] = []
  const store = { isAway: false }
  const dispatcher = async (name: string, on: Wire) => {
    const tell = async (what: string) => void told!.push(`${name} ${what}`)
    const outlet = new BrokerOutlet({ wire: on, fleet: 'f', tasks: ['a'], clock: world.clock(5_000, 1), log })
    outlet.for(
      {
        ended: (_, outcome) => {
          places.push('report' in outcome ? outcome.report?.by : undefined)
          return store.isAway ? new Promise(() => {}) : tell('ended')
        },
        refused: () => void tell('refused'),
        lost: (_, by) => {
          places.push(by)
          void tell('lost')
        },
        begun: async (jobs) => void known!.push(`${name} ${jobs.length}`),
        left: async (_, begun) => {
          if (store.isAway) throw new Error('away')
          left.push(begun)
        },
        inherited: () => void tell('inherited'),
        changed() {},
      },
      () => name,
    )
    await outlet.open()
    return outlet
  }
  let reports: Reports | undefined
  const [begun, aborted]: ClaimedJob[][] = [[], []]
  const worker = new Executor({
    wire,
    fleet: 'f',
    tasks: ['a'],
    kinds,
    onLate() {},
    clock: world.clock(77, 1),
    log,
    outlet: (to) => {
      reports = to
      const free = () => slots - begun!.length
      return {
        slots,
        kinds: [],
        free,
        abort: (job) => void aborted!.push(job),
        start: (jobs) => void begun!.push(...jobs),
      }
    },
  })
  const one = await dispatcher('first', frail)
  await worker.open()
  await world.runUntil(3_000)
  one.enlist()
  const job = {
    claim: '1',
    seq: 1,
    task: 'a',
    buckets: ['x'],
    grantUs: 1_000_000,
    grantedMs: 8_000,
  } as unknown as ClaimedJob
  const run = (ms: number) => world.runUntil(world.nowMs + ms)
  const end = () => reports!.ended(begun![0]!, { kind: 'done', result: null, tookMs: 1 })
  return {
    one,
    worker,
    wire,
    store,
    first,
    job,
    run,
    end,
    told: told!,
    places,
    known: known!,
    left,
    begun: begun!,
    aborted: aborted!,
    two: () => dispatcher('second', wire),
  }
}

it('a dispatcher gives no job back as uncalled that its worker has begun, and that another dispatcher has taken over', async () => {
  const { one, first, job, run, end, told, begun, two } = await stage()
  one.start([job])
  await run(2)
  expect(begun.length).toBe(1)
  first.isCut = true
  await two()
  await run(6_000)
  expect(told).toEqual(['second inherited'])
  first.isCut = false
  await run(3_000)
  expect(told).toEqual(['second inherited'])
  await end()
  await run(3_000)
  expect(told).toEqual(['second inherited', 'second ended'])
})

it('a dispatcher stops no attempt that another dispatcher has taken over, and keeps no place for it when it has ended', async () => {
  const { one, first, job, run, end, told, begun, aborted, two } = await stage()
  one.start([job])
  await run(2_000)
  first.isCut = true
  const second = await two()
  await run(6_000)
  first.isCut = false
  one.abort(job)
  await run(3_000)
  expect(aborted).toEqual([])
  await end()
  begun.length = 0
  await run(3_000)
  expect(told).toEqual(['second inherited', 'second ended'])
  await second.close()
  await run(3_000)
  expect(one.free()).toBe(slots)
})

it('a dispatcher ignores what an older announcement says that its worker can take', async () => {
  const { one, worker, wire, run } = await stage()
  const can = { stint: 's', slots: 1_000, tasks: ['a'], kinds: [], left: [] }
  const old = { type: 'announce', worker: worker.id, n: 1, at: 0, asOf: null, holds: [], orphans: [], ...can }
  await wire.send(one.id, JSON.stringify(old))
  await run(2)
  expect(one.free()).toBe(slots)
})

it('a dispatcher gives no job back as uncalled that has ended with another dispatcher, when the worker takes its leave', async () => {
  const { one, worker, first, job, run, end, told, two } = await stage()
  one.start([job])
  await run(2_000)
  first.isCut = true
  await two()
  await run(6_000)
  first.isCut = false
  await run(3_000)
  await end()
  const stopping = worker.stop(new AbortController().signal).then(() => worker.close())
  await run(3_000)
  await stopping
  expect(told).toEqual(['second inherited', 'second ended'])
})

it('a worker takes no job of a stint that is over, and the next dispatcher records what began in it', async () => {
  const { one, first, job, run, told, left, begun, two } = await stage()
  one.start([job])
  await run(2_000)
  first.isCut = true
  const second = await two()
  await run(6_000)
  expect(left).toEqual([[{ claim: '1', seq: 1 }]])
  expect(second.enlist().length).toBe(1)
  first.isCut = false
  // The first one still counts on the slots that it knows of.
  one.start([{ ...job, seq: 2, grantedMs: 11_000 + 5_000 - 20 }])
  await run(3_000)
  expect(begun.length).toBe(1)
  expect(told).toEqual(['second inherited', 'first refused'])
  expect(left.length).toBe(1)
})

it('a dispatcher gives a worker nothing that was claimed before it was enlisted', async () => {
  const { one, job, run, told, begun } = await stage()
  one.start([{ ...job, grantedMs: 7_999 }])
  await run(10)
  expect(begun).toEqual([])
  expect(told).toEqual(['first refused'])
})

it('a dispatcher learns within a few tenths of a second which jobs run, each once, and nothing of those that end sooner', async () => {
  const { one, job, run, end, begun, known } = await stage()
  one.start([job])
  await run(50)
  await end()
  expect(known).toEqual([])
  begun.length = 0
  // Between two announcements.
  await run(980)
  one.enlist()
  const next = (seq: number) => ({ ...job, seq, grantedMs: 8_000 + 1_030 })
  one.start([next(2), next(3)])
  await run(250)
  expect(known).toEqual(['first 2'])
  await run(3_000)
  expect(known).toEqual(['first 2'])
})

it('a dispatcher ends the stint of a worker that takes its leave, also when the store is away meanwhile', async () => {
  const { worker, store, run, left } = await stage()
  store.isAway = true
  const stopping = worker.stop(new AbortController().signal).then(() => worker.close())
  await run(3_000)
  await stopping
  store.isAway = false
  await run(1_000)
  expect(left).toEqual([[]])
})

it('a dispatcher gives no job back as uncalled whose end waits for the store, when its worker is lost meanwhile', async () => {
  const { one, store, first, job, run, end, left } = await stage()
  store.isAway = true
  one.start([job])
  await run(2)
  await end()
  await run(1_500)
  expect(one.free()).toBe(slots)
  first.isCut = true
  await run(12_000)
  store.isAway = false
  await run(1_000)
  expect(left).toMatchObject([[{ claim: '1', seq: 1 }]])
})

it.each([false, true])(
  'a worker has its slots used elsewhere once its dispatcher stops, which records what it has (first message lost: %s)',
  async (isLost) => {
    const { one, first, job, run, end, told, begun, two } = await stage()
    one.start([job])
    await run(2_000)
    const second = await two()
    first.isCut = isLost
    one.retire()
    await run(100)
    first.isCut = false
    await run(3_000)
    expect([one.free(), second.free()]).toEqual([0, slots - 1])
    expect(told).toEqual([])
    await end()
    begun.length = 0
    await run(3_000)
    expect(told).toEqual(['first ended'])
    expect(second.free()).toBe(slots)
  },
)

it('a dispatcher stops an attempt though the first message about that was lost', async () => {
  const { one, first, job, run, told, aborted } = await stage()
  one.start([job])
  await run(2_000)
  first.isCut = true
  one.abort(job)
  first.isCut = false
  await run(5_000)
  expect(aborted).toContainEqual(expect.objectContaining({ seq: 1 }))
  expect(told).toEqual([])
})

it('a dispatcher gives no job back as uncalled that it stops when the report of its end was lost', async () => {
  const { one, first, job, run, end, told } = await stage()
  one.start([job])
  await run(2)
  first.isCut = true
  await end()
  await run(1_200)
  first.isCut = false
  one.abort(job)
  await run(5_000)
  expect(told).toEqual(['first ended'])
})

it('a dispatcher waits for no end of an attempt that it stops while it cannot reach the worker', async () => {
  const { one, first, job, run, told, places } = await stage()
  one.start([job])
  await run(2_000)
  Object.assign(first, { isCut: true, isAway: true })
  one.abort(job)
  await run(4_000)
  expect(told).toEqual(['first lost'])
  expect(places).toEqual([expect.objectContaining({ host: hostname() })])
})

it('a dispatcher waits for no such end either if the worker was there for a moment', async () => {
  const { one, first, job, run, told } = await stage()
  one.start([job])
  await run(2_000)
  one.abort(job)
  await run(1_200)
  Object.assign(first, { isCut: true, isAway: true })
  await run(1_900)
  expect(told).toEqual([])
  await run(4_000)
  expect(told).toEqual(['first lost'])
})

it('a worker offers no place of a thread to the next dispatcher in which a job of the last one still runs', async () => {
  const { one, two, job, run } = await stage([{ tasks: ['a'], slots: 1 }])
  one.start([job])
  await run(2_000)
  const second = await two()
  one.retire()
  await run(3_000)
  second.enlist()
  await run(2_000)
  expect(second.kinds.map((kind) => kind.free())).toEqual([0])
})

it('a worker reports where the attempt ran, which is not where its job was claimed', async () => {
  const { one, worker, job, run, end, places } = await stage()
  one.start([job])
  await run(2)
  await end()
  await run(100)
  expect(places).toEqual([{ worker: worker.id.split('.').at(-1), host: hostname(), version }])
})
