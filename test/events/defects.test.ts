/** The seven defects of Celery-AMQP-Events 0.4 with Celery 5.2, which the titles state after "there": none is ours, on any carrier. */
import { describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { event, on, retryIn, Sluice, type SluiceOptions, type Work } from '../../src/index.ts'
import { program as busProgram, queuesOf, stranger } from '../bus/stage.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

const payload = z.object({ n: z.number() })
const even = event('demo.even', payload)
const odd = event('demo.odd', payload)

interface Carrier {
  /** Opens a service, with a worker if it has work. */
  open(service: string, work?: readonly Work[], url?: string): Promise<Sluice>
  /** How many events have failed for good. */
  failed(sluice: Sluice): Promise<number>
  replay(sluice: Sluice): Promise<number>
  /** The attempts in the record of the event that failed: their numbers, or how many. */
  attempts(sluice: Sluice): Promise<number[]>
  host: Broker | undefined
}

async function overStore(): Promise<Carrier> {
  const { url: store } = await freshDatabase()
  return {
    async open(service, work) {
      const sluice = await Sluice.open({ store, service, logLevel: 'silent' })
      onTestFinished(() => sluice.close())
      if (work !== undefined) await sluice.work(work)
      return sluice
    },
    failed: async (sluice) => (await sluice.list({ state: 'failed' })).length,
    replay: (sluice) => sluice.jobs.retryMany({ input: { service: 'a' } }),
    attempts: async (sluice) => {
      const [line] = await sluice.list({ state: 'failed' })
      return (await sluice.jobs.get(line?.id ?? ''))?.attempts.map(({ attempt }) => attempt) ?? []
    },
    host: undefined,
  }
}

const overRabbit = (events: SluiceOptions['events']) => async (): Promise<Carrier> => {
  const host = await freshBroker()
  return {
    open: (service, work, url = host.url) =>
      busProgram(url, { service, ...(events === undefined ? {} : { events }) }, work),
    failed: (sluice) => sluice.events.archive().count(),
    replay: (sluice) => sluice.events.archive().replay({}),
    attempts: async (sluice) => (await sluice.events.archive().list()).map(({ attempt }) => attempt),
    host,
  }
}

const carriers = [
  { name: 'the store', start: overStore },
  { name: 'RabbitMQ', start: overRabbit('rabbitmq') },
  { name: "RabbitMQ, by Celery-AMQP-Events' names", start: overRabbit({ on: 'rabbitmq', celery: true }) },
]

describe.each(carriers)('over $name', ({ start }) => {
  it('1: a service emits what it handles, and what it does not (there: TypeError, or a queue of the wrong name)', async () => {
    const { open } = await start()
    const got: unknown[] = []
    const a: Sluice = await open('a', [
      even.on(async ({ n }) => {
        got.push(['a', n])
        if (n === 2) await a.events.emit(even, { n: 4 })
        await a.events.emit(odd, { n: n + 1 })
      }),
    ])
    await open('b', [on('demo.#', (data) => void got.push(['b', (data as { n: number }).n]))])
    await a.events.emit(even, { n: 2 })
    await until(() => got.length === 6, 'each service has its events')
    expect(new Set(got.map(String))).toEqual(new Set(['a,2', 'a,4', 'b,2', 'b,3', 'b,4', 'b,5']))
  })

  it('2: what only emits leaves no queue, and a service no more than its own (there: an orphan queue `events`)', async ({
    skip,
  }) => {
    const { open, host } = await start()
    if (host === undefined) return skip('the store has no queues of a broker')
    const emitter = await open('emitter')
    expect([...(await queuesOf(host)).keys()]).toEqual([])
    await emitter.events.emit(even, { n: 2 })
    expect([...(await queuesOf(host)).keys()].filter((name) => name !== 'sluice.unrouted')).toEqual([])
    const got: unknown[] = []
    await open('a', [even.on(({ n }) => void got.push(n))])
    await emitter.events.emit(even, { n: 4 })
    await until(() => got.length === 1, 'the service has it')
    const others = [...(await queuesOf(host)).keys()].filter((name) => !/(^|:)a([.:]|$)|^sluice\.unrouted$/.test(name))
    expect(others).toEqual([])
  })

  it('3: a delay beyond the longest step waits, once (there: a loop of one try each second without end)', async () => {
    const { open, failed } = await start()
    const tries: number[] = []
    const a = await open('a', [
      even.on((_, { attempt }) => {
        tries.push(attempt)
        throw retryIn('2h')
      }),
      odd.on(
        () => {
          throw retryIn('1s')
        },
        { name: 'sooner', retry: { attempts: 1 } },
      ),
    ])
    await a.events.emit(even, { n: 2 })
    await until(() => tries.length === 1, 'it was tried')
    await a.events.emit(odd, { n: 1 })
    // Over a second later.
    await until(async () => (await failed(a)) === 1, 'another event has failed for good')
    expect(tries).toEqual([1])
  })

  it('4: a message whose worker is lost twice has been tried (there: it goes round for ever)', async ({ skip }) => {
    const { open, failed, host } = await start()
    if (host === undefined) return skip('test/fleet/rescue has it for jobs, and deliveries are jobs')
    let begun = 0
    const handler = (wait?: Promise<void>) => even.on(() => (begun++, wait), { retry: { attempts: 1 }, group: 'main' })
    const queueOf = async (kind: RegExp) => [...(await queuesOf(host)).keys()].find((name) => kind.test(name)) ?? ''
    const a = await open('a', [handler()])
    await a.close()
    const emitter = await open('emitter')
    await emitter.events.emit(even, { n: 2 })
    const dying = await stranger(host.url)
    let isTaken = false
    const queue = await queueOf(/a[.:](demo\.even|main)$/)
    await dying.consume(queue, { prefetch: 1 }, () => void (isTaken = true))
    await until(() => isTaken, 'a worker has it')
    await dying.close()
    // Nobody knows whether that one had begun it. The next one has, when it is cut off.
    const proxy = await startProxy({ port: Number(new URL(host.url).port) })
    onTestFinished(() => proxy.close())
    let end = () => {}
    await open('a', [handler(new Promise<void>((resolve) => (end = resolve)))], proxy.url(host.url))
    await until(async () => begun === 1 && (await queuesOf(host)).get(queue) === 0, 'it is tried again')
    await proxy.refuse()
    proxy.reset()
    const again = await open('a', [handler()])
    await until(async () => (await failed(again)) === 1, 'its only attempt is over')
    expect(begun).toBe(1)
    end()
  })

  it('5: a retry waits for its step, on the broker or in the store (there: half of it on average, in the memory of workers)', async () => {
    const { open, host } = await start()
    const times: number[] = []
    let isTried = false
    const sooner = even.on(
      () => {
        times.push(performance.now())
        if (times.length === 1) throw new Error('once')
      },
      { retry: { attempts: 2, base: '1s' } },
    )
    const later = odd.on(
      () => {
        isTried = true
        throw new Error('always')
      },
      { retry: { attempts: 2, base: '8min' } },
    )
    const a = await open('a', [sooner, later])
    await a.events.emit(odd, { n: 1 })
    await until(() => isTried, 'it was tried')
    const isWaiting = async () => {
      if (host === undefined) return (await a.list({ state: 'scheduled' })).length === 1
      return [...(await queuesOf(host))].some(([name, n]) => /retry/.test(name) && n === 1)
    }
    await until(isWaiting, 'it waits')
    await a.events.emit(even, { n: 2 })
    await until(() => times.length === 2, 'the other one was tried again')
    // Over the store half of it is random, over RabbitMQ a tenth.
    expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThanOrEqual(host === undefined ? 475 : 880)
  })

  it('6: what is replayed has all its attempts again, counted anew (there: it is given up at once, and no tool replays)', async () => {
    const { open, failed, attempts, replay, host } = await start()
    const tries: unknown[] = []
    const handler = even.on(
      (_, { attempt, redelivered }) => {
        tries.push([attempt, redelivered])
        throw new Error('always')
      },
      { retry: { attempts: 2, base: 1 } },
    )
    const a = await open('a', [handler])
    await a.events.emit(even, { n: 2 })
    await until(async () => (await failed(a)) === 1, 'it has failed for good')
    // While a worker looks at how full the archive is, nobody else sees the event. The second round has the numbers of the first.
    for (const round of [2, 3]) {
      let replayed = 0
      await until(async () => (replayed += await replay(a)) > 0, 'it is replayed')
      expect(replayed).toBe(1)
      await until(async () => tries.length === 2 * round && (await failed(a)) === 1, 'it has failed again')
    }
    const first = [1, false]
    expect(tries).toEqual([first, ...[2, 1, 2, 1, 2].map((attempt) => [attempt, true])])
    let known: number[] = []
    await until(async () => (known = await attempts(a)).length > 0, 'the record has all attempts')
    expect(known).toEqual(host === undefined ? [1, 2, 1, 2, 1, 2] : [6])
  })

  it('7: retries and their times may be changed, and an event that nobody gets is noticed (there: 406, and it vanishes)', async () => {
    const { open, host } = await start()
    const got: unknown[] = []
    for (const [attempts, base] of [
      [2, 1],
      [5, 7],
      [3, 2_000],
    ] as const) {
      const handler = even.on(({ n }) => void got.push(n), { retry: { attempts, base } })
      const a = await open('a', [handler])
      await a.events.emit(even, { n: attempts })
      await until(() => got.includes(attempts), 'it is handled')
      await a.close()
    }
    const emitter = await open('emitter')
    const id = await emitter.events.emit(odd, { n: 1 })
    if (host === undefined) expect(await emitter.events.show(id)).toMatchObject({ deliveries: [] })
    else expect((await queuesOf(host)).get('sluice.unrouted') ?? lines(emitter)).toBe(1)
  })
})

/** How often a program has warned of events that nobody gets. */
function lines(sluice: Sluice): number {
  return (sluice as Sluice & { lines: string[] }).lines.filter((line) => line.includes('no service gets')).length
}
