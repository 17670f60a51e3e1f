/** What holds of events whatever carries them. Late subscribers (`since`) and `order` over retries are the store's alone. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { event, fail, limit, on, retryIn, Sluice, type SluiceOptions, snooze, type Work } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

const number = event('demo.number', z.object({ n: z.number() }), { version: 2 })
const carriers = [
  { name: 'the store', options: async (): Promise<SluiceOptions> => ({}) },
  {
    name: 'RabbitMQ',
    options: async (): Promise<SluiceOptions> => ({ events: 'rabbitmq', amqp: (await freshBroker()).url }),
  },
]

describe.each(carriers)('events over $name', ({ options }) => {
  let opened: Sluice[]
  let common: SluiceOptions
  // oxlint-disable-next-line typescript/no-explicit-any -- each test gets what it expects
  let got: any[]

  beforeEach(async () => {
    ;[opened, got] = [[], []]
    common = { store: (await freshDatabase()).url, logLevel: 'silent', ...(await options()) }
  })
  afterEach(async () => {
    for (const sluice of opened) await sluice.close()
  })
  const open = async (service?: string) => {
    const sluice = await Sluice.open({ ...common, ...(service === undefined ? {} : { service }) })
    opened.push(sluice)
    return sluice
  }
  const started = async (service: string, work: readonly Work[]) => {
    const sluice = await open(service)
    await sluice.work(work)
    return sluice
  }
  const arrived = (count: number) => until(() => got.length >= count, `${count} deliveries`)

  it('brings an event with its envelope to each handler of each service once, whichever replica has it', async () => {
    const work = [
      number.on((payload, { event: { type, schemaversion, source, subject }, redelivered, attempt }) => {
        got.push([payload, { type, schemaversion, source, subject, redelivered, attempt }])
      }),
      on('demo.#', (_, { event: { id } }) => void got.push(id), { name: 'audit' }),
    ]
    const replicas = [await started('a', work), await started('a', work), await started('b', work)]
    const emitter = await open()
    const id = await emitter.events.emit(number, { n: 4 }, { subject: 'four' })
    await arrived(4)
    const facts = { type: 'demo.number', schemaversion: 2, source: '/sluice', subject: 'four' }
    const whole = [{ n: 4 }, { ...facts, redelivered: false, attempt: 1 }]
    expect(got).toHaveLength(4)
    expect(got).toEqual(expect.arrayContaining([whole, id]))
    expect(
      await replicas[0]?.events.emitMany(
        number,
        [1, 2, 3].map((n) => ({ n })),
      ),
    ).toBe(3)
    await arrived(16)
    expect(got).toHaveLength(16)
  })

  it('refuses a payload that its schema refuses, before anything is emitted', async () => {
    const a = await started('a', [on('demo.#', (payload) => void got.push(payload))])
    const refused = { code: 'SLUICE_INVALID_INPUT', message: expect.stringContaining('"demo.number"') as string }
    await expect(a.events.emit(number, { n: 'four' })).rejects.toMatchObject(refused)
    await expect(a.transaction((tx) => a.events.emit(number, { n: 'four' }, { tx }))).rejects.toMatchObject(refused)
    await expect(a.events.emitMany(number, [{ n: 1 }, { n: 'two' }, { n: 3 }])).rejects.toMatchObject(refused)
    await a.events.emit(number, { n: 4 })
    await arrived(2)
    expect(got.toSorted((one, other) => one.n - other.n)).toEqual([{ n: 1 }, { n: 4 }])
  })

  it('gives an event up at once whose payload a handler refuses, with the reason, and brings it to the others', async () => {
    const strict = event('demo.number', z.object({ n: z.string() }))
    const a = await started('a', [
      strict.on(() => void got.push('strict'), { name: 'strict' }),
      number.on(() => void got.push('lax'), { name: 'lax' }),
    ])
    const id = await a.events.emit(number, { n: 4 })
    let refused: unknown[] = []
    await until(async () => {
      const deliveries = (await a.events.show(id))?.deliveries ?? []
      refused = deliveries.filter(({ state }) => state === 'failed')
      return got.length === 1 && refused.length === 1
    }, 'it has failed')
    const text = /handler "strict" refused the event \(version 2\): payload .*\bn\b/
    expect(refused).toMatchObject([
      {
        service: 'a',
        handler: 'strict',
        reason: 'refused',
        attempt: 1,
        error: { code: 'SLUICE_EVENT_REFUSED', message: expect.stringMatching(text) as string },
      },
    ])
    expect(got).toEqual(['lax'])
  })

  it('warns of handlers of its service that only another process has', async () => {
    const lines: string[] = []
    const warn = (text: string) => void (text.includes('that this process has not') && lines.push(text))
    const log = { debug() {}, info() {}, error() {}, warn }
    const [one, two] = ['one', 'two'].map((name) => number.on(() => undefined, { name }))
    const renamed = number.on(() => undefined, { name: 'three', formerly: ['two'] })
    const { logLevel: _, ...rest } = common
    common = { ...rest, log }
    await started('a', [one, two] as Work[])
    expect(lines).toEqual([])
    await started('a', [one, renamed] as Work[])
    expect(lines).toEqual([])
    await started('a', [one] as Work[])
    expect(lines).toEqual([expect.stringContaining('service "a" has handlers that this process has not: three;')])
  })

  it('matches patterns by words', async () => {
    const of = (pattern: string) => on(pattern, (_, context) => void got.push(`${pattern} ${context.event.type}`))
    await started('a', ['x.*', 'x.#', '*.b', 'x.*.c'].map(of))
    const emitter = await open()
    for (const type of ['x', 'x.b', 'x.b.c', 'xxb', 'b', 'y.b']) await emitter.events.emit(event(type), null)
    await arrived(7)
    expect(sorted(got)).toEqual(['*.b x.b', '*.b y.b', 'x.# x', 'x.# x.b', 'x.# x.b.c', 'x.* x.b', 'x.*.c x.b.c'])
  })

  it('retries what throws, as often and as late as asked, and flags each repetition', async () => {
    const work = [
      number.on(
        ({ n }, { attempt, redelivered }) => {
          got.push([n, attempt, redelivered])
          if (n === 1 && attempt === 1) throw retryIn(0)
          if (n === 2) throw fail('never')
          if (n === 3) throw new Error('always')
          if (n === 4 && attempt === 1 && got.filter((one) => one[0] === 4).length === 1) throw snooze(0)
        },
        { retry: { attempts: 3, base: 20 } },
      ),
    ]
    const a = await started('a', work)
    await a.events.emitMany(
      number,
      [1, 2, 3, 4].map((n) => ({ n })),
    )
    await arrived(8)
    const of = (n: number) => got.filter((one) => one[0] === n)
    expect(of(1)).toEqual([
      [1, 1, false],
      [1, 2, true],
    ])
    expect(of(2)).toEqual([[2, 1, false]])
    expect(of(3)).toEqual([
      [3, 1, false],
      [3, 2, true],
      [3, 3, true],
    ])
    expect(of(4)).toEqual([
      [4, 1, false],
      [4, 1, false],
    ])
  })

  it('retries one handler without the others of the same event', async () => {
    const work = [
      number.on(() => void got.push('good'), { name: 'good' }),
      number.on(
        (_, { attempt }) => {
          got.push('bad')
          if (attempt < 3) throw retryIn(10)
        },
        { name: 'bad' },
      ),
    ]
    const a = await started('a', work)
    await a.events.emit(number, { n: 1 })
    await arrived(4)
    expect(sorted(got)).toEqual(['bad', 'bad', 'bad', 'good'])
  })

  it('emits in the caller’s transaction, at its commit', async () => {
    const a = await started('a', [number.on(({ n }) => void got.push(n))])
    await a.transaction(async (tx) => {
      await a.events.emit(number, { n: 1 }, { tx })
      await a.events.emitMany(number, [{ n: 2 }, { n: 3 }], { tx })
    })
    const undone = a.transaction(async (tx) => {
      await a.events.emit(number, { n: 4 }, { tx })
      throw new Error('rolled back')
    })
    await expect(undone).rejects.toThrow('rolled back')
    await a.events.emit(number, { n: 5 })
    await arrived(4)
    expect(new Set(got)).toEqual(new Set([1, 2, 3, 5]))
  })

  it('keeps limits, with keys from the payload, and the order of a key', async () => {
    const places = limit('places', { concurrency: 1, by: 'key' })
    const keyed = event('demo.keyed', z.object({ key: z.string(), n: z.number() }))
    const running = new Map<string, number>()
    const order: string[] = []
    let most = 0
    const run = async ({ key, n }: { key: string; n: number }) => {
      running.set(key, (running.get(key) ?? 0) + 1)
      most = Math.max(most, running.get(key) ?? 0)
      await new Promise((resolve) => setImmediate(resolve))
      running.set(key, (running.get(key) ?? 0) - 1)
      got.push(`${key}${n}`)
    }
    const work = [
      keyed.on(run, { name: 'limited', limits: [places] }),
      keyed.on(({ key, n }) => void order.push(`${key}${n}`), { name: 'ordered', order: 'key' }),
    ]
    const a = await started('a', work)
    const rows = Array.from({ length: 12 }, (_, n) => ({ key: n % 2 === 0 ? 'x' : 'y', n }))
    await a.events.emitMany(keyed, rows)
    await arrived(12)
    await until(() => order.length >= 12)
    expect(most).toBe(1)
    expect(order.filter((each) => each.startsWith('x'))).toEqual(['x0', 'x2', 'x4', 'x6', 'x8', 'x10'])
  })

  it('ends an attempt that takes too long, and hands over what a worker gives back at once', async () => {
    const work = [
      number.on(
        async ({ n }, { attempt, ambiguous, signal }) => {
          got.push([n, attempt, ambiguous])
          if (attempt === 1) await new Promise((resolve) => signal.addEventListener('abort', resolve))
        },
        { timeout: 50, retry: { base: 10 } },
      ),
    ]
    const a = await started('a', work)
    await a.events.emit(number, { n: 1 })
    await arrived(2)
    expect(got).toEqual([
      [1, 1, false],
      [1, 2, false],
    ])
  })
})

const sorted = (texts: string[]) => texts.toSorted((one, other) => (one < other ? -1 : 1))
