/** Events over RabbitMQ: its queues, what strangers send, retries by the broker, and the archive. */
import { beforeEach, expect, it } from 'vitest'
import { event, fail, newId, on, retryIn } from '../../src/index.ts'
import { systemClock } from '../../src/core/clock.ts'
import { isLong } from '../long.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
let url: string
beforeEach(async () => {
  host = await freshBroker()
  ;({ url } = host)
})
const total = async () => [...(await queuesOf(host)).values()].reduce((sum, count) => sum + count, 0)

it('the bus needs two queues for a service with grouped events, one retry and no archive', async () => {
  const got: unknown[] = []
  const work = [
    paid.on(
      (_, { attempt }) => {
        got.push(attempt)
        if (attempt === 1) throw new Error('once')
      },
      { group: 'all', retry: { attempts: 2, base: 20 } },
    ),
    on('orders.#', () => undefined, { name: 'audit', group: 'all' }),
  ]
  const a = await program(url, { service: 'a', events: { on: 'rabbitmq', archive: false } }, work)
  await a.events.emit(paid, 1)
  await until(() => got.length === 2)
  expect([...(await queuesOf(host)).keys()].sort()).toEqual(['sluice.events:a:all', 'sluice.retry:a:20'])
  // Nobody gets this, which its emitter logs once.
  for (const n of [1, 2]) await a.events.emit(event('nobody.gets.it'), n)
  expect(a.lines.filter((line) => line.includes('nobody.gets.it'))).toHaveLength(1)
  expect(() => a.events.archive()).toThrow(expect.objectContaining({ code: 'SLUICE_NO_ARCHIVE' }))
})

it('the bus names a handler that asks for events of before its first start', async () => {
  const late = [paid.on(() => undefined, { name: 'late', since: '1h' }), paid.on(() => undefined, { name: 'usual' })]
  const { lines } = await program(url, { service: 'a' }, late)
  const told = lines.filter((line) => line.includes('`since`'))
  expect(told).toEqual([expect.stringContaining('handler "late"')])
})

it('the bus keeps what no queue takes, and never meets a queue with other arguments when settings change', async () => {
  const b = await program(url, { service: 'b' })
  await b.events.emit(event('nobody.gets.it'), 1)
  expect((await queuesOf(host)).get('sluice.unrouted')).toBe(1)
  const failing = [
    paid.on(() => {
      throw fail('never')
    }),
  ]
  const first = await program(url, { service: 'a' }, failing)
  await first.events.emit(paid, 1)
  await until(async () => (await first.events.archive().count()) === 1)
  const smaller = { on: 'rabbitmq', archive: { keep: '1h', most: 10 } } as const
  for (const events of [
    smaller,
    { on: 'rabbitmq', quorum: true },
    { on: 'rabbitmq', archive: false },
    { on: 'rabbitmq', quorum: true, archive: false },
  ] as const) {
    const changed = await program(url, { service: 'a', events }, failing)
    expect(changed.lines.filter((line) => line.includes('refuses'))).toEqual([])
    expect(changed.lines.some((line) => line.includes('keeps its earlier bounds'))).toBe(events === smaller)
    await changed.close()
  }
  await first.events.archive().discard({})
  const again = await program(url, { service: 'a', events: smaller }, failing)
  expect(again.lines).toEqual([])
})

it('the bus handles what waits in the queue of earlier settings, and sends nothing new there', async () => {
  const got: unknown[] = []
  const handler = paid.on((n) => void got.push(n))
  const before = await program(url, { service: 'a' }, [handler])
  await before.worker?.stop()
  await before.events.emit(paid, 'early')
  const after = await program(url, { service: 'a', events: { on: 'rabbitmq', quorum: true } }, [handler])
  await until(() => got.length === 1)
  await after.events.emit(paid, 'late')
  await until(() => got.length === 2)
  expect(got).toEqual(['early', 'late'])
  expect((await queuesOf(host)).get('sluice.events:a:main')).toBe(0)
})

it('the bus understands plain JSON by its routing key, and archives what is no event without harm', async () => {
  const got: unknown[] = []
  const work = [
    on('orders.#', (payload, { event: { id, type, source, time }, attempt }) => {
      got.push([type, payload, source, attempt])
      expect(id).toMatch(/.{3}/)
      expect(Number.isNaN(Date.parse(time))).toBe(false)
      if (type === 'orders.twice' && attempt === 1) throw retryIn(10)
    }),
  ]
  const a = await program(url, { service: 'a' }, work)
  const other = await stranger(url)
  const send = (routingKey: string, body: string | Buffer, properties = {}) =>
    other.publish({ exchange: 'sluice.events', routingKey, body: Buffer.from(body as string), properties })
  await send('orders.plain', '{"a":1}', { messageId: 'x-1' })
  await send('orders.twice', '2')
  const envelope = {
    specversion: '1.0',
    id: 'sdk',
    source: '/sdk',
    type: 'orders.sdk',
    time: '2030-01-31T12:00:00Z',
    data: [1],
  }
  await send('orders.sdk', JSON.stringify(envelope), { contentType: 'application/cloudevents+json; charset=utf-8' })
  const cloud = { contentType: 'application/cloudevents+json' }
  const bad: [string | Buffer, object][] = [
    ['{"a":', {}],
    [Buffer.from([0xff, 0xfe]), {}],
    ['', {}],
    ['\x80\x02K\x03.', { contentType: 'application/x-python-serialize' }],
    ['{}', { contentEncoding: 'gzip' }],
    ['null', cloud],
    ['{"specversion":"0.3","id":"1","source":"/","type":"orders.old"}', cloud],
    ['{"specversion":"1.0","id":7,"source":"/","type":"orders.old"}', cloud],
    [JSON.stringify({ ...envelope, data: undefined, data_base64: 'AA==' }), cloud],
  ]
  for (const [body, properties] of bad) await send('orders.bad', body, properties)
  // What is known of a message is not believed in another form.
  await send('orders.odd', '1', { headers: { 'sluice-history': '{"attempt":"many"}' } })
  await until(() => got.length === 5)
  await until(async () => (await a.events.archive().count()) === bad.length)
  expect(got).toEqual(
    expect.arrayContaining([
      ['orders.plain', { a: 1 }, '/plain', 1],
      ['orders.twice', 2, '/plain', 1],
      ['orders.twice', 2, '/plain', 2],
      ['orders.sdk', [1], '/sdk', 1],
      ['orders.odd', 1, '/plain', 1],
    ]),
  )
  const [archived] = await a.events.archive().list()
  expect(archived).toMatchObject({ type: 'orders.bad', handler: null, reason: 'refused', event: null, text: '{"a":' })
  expect(archived?.error.code).toBe('SLUICE_EVENT_REFUSED')
  // Nor does what a stranger puts there hide the others.
  for (const text of ['none of ours', 'null', '{"error":1}']) {
    const properties = { headers: { 'sluice-failure': text } }
    await other.publish({ exchange: '', routingKey: 'sluice.archive:a', body: Buffer.from('x'), properties })
  }
  await until(async () => (await a.events.archive().count()) === bad.length + 3)
  expect(await a.events.archive().list({ error: 'not ours' })).toMatchObject(
    Array<object>(3).fill({ reason: 'refused', text: 'x' }),
  )
  expect(await a.events.archive().list()).toHaveLength(bad.length + 3)
  expect(await a.events.archive().discard({ error: 'not ours' })).toBe(3)
  await a.close()

  const strict = await program(url, { service: 'a', events: { on: 'rabbitmq', plain: false } }, work)
  await send('orders.plain', '{"a":1}')
  await until(async () => (await strict.events.archive().count()) === bad.length + 1)
  expect(got).toHaveLength(5)
})

it('the bus retries after the steps of the backoff and after stated delays, within 10 %', async () => {
  const steps = isLong
    ? [150, 200, 300, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600]
    : [300, 400, 500, 600, 700, 800, 900, 1_000, 1_100, 1_200]
  const times = new Map<number, number[]>()
  const waited = new Map<number, number[]>()
  const began = new Map<string, number>()
  const delayed = event('timing.stated')
  const backoff = event('timing.backoff')
  const run = (stated: boolean) => (step: unknown, context: { attempt: number; event: { id: string } }) => {
    const nowMs = systemClock.monotonicMs()
    const key = context.event.id
    if (context.attempt === 2) {
      const waits = stated ? waited : times
      waits.set(step as number, [...(waits.get(step as number) ?? []), nowMs - (began.get(key) ?? 0)])
      return
    }
    began.set(key, nowMs)
    throw stated ? retryIn(step as number) : new Error('again')
  }
  const work = [
    delayed.on(run(true), { name: 'stated' }),
    backoff.on(run(false), { name: 'backoff', retry: { attempts: 2, base: 400 } }),
  ]
  const a = await program(url, { service: 'a' }, work, 100)
  // The first use of a step declares its queue.
  await a.events.emitMany(delayed, steps)
  await a.events.emit(backoff, 400)
  const count = () => [...waited.values(), ...times.values()].reduce((sum, waits) => sum + waits.length, 0)
  await until(() => count() === steps.length + 1)
  for (const waits of [waited, times]) waits.clear()
  const all = [
    ...steps.map((step) => ({ step, waits: waited, least: 0.95 })),
    // A tenth of a retry's wait is random.
    { step: 400, waits: times, least: 0.9 },
  ]
  // The least of each counts: the others show how busy this machine is, which may last for a moment.
  const ratio = ({ step, waits }: (typeof all)[number]) => Math.min(...(waits.get(step) ?? [])) / step
  for (let round = 1; round <= 20; round++) {
    for (const step of steps) await a.events.emitMany(delayed, Array<number>(3).fill(step))
    await a.events.emitMany(backoff, Array<number>(3).fill(400))
    await until(() => count() === 3 * round * (steps.length + 1))
    if (all.every((one) => ratio(one) < 1.1)) break
  }
  for (const one of all) {
    expect(ratio(one), `the wait of a step of ${one.step} ms, beside it`).toBeGreaterThan(one.least)
    expect(ratio(one), `the wait of a step of ${one.step} ms, beside it`).toBeLessThan(1.1)
  }
})

it('the bus keeps the order of fresh events while others are retried', async () => {
  const fresh: unknown[] = []
  const again: unknown[] = []
  const work = [
    paid.on((n, { attempt }) => {
      ;(attempt === 1 ? fresh : again).push(n)
      if (attempt === 1 && (n as number) % 5 === 0) throw retryIn(30)
    }),
  ]
  const a = await program(url, { service: 'a' }, work, 1)
  const numbers = Array.from({ length: 100 }, (_, n) => n)
  await a.events.emitMany(paid, numbers)
  await until(() => fresh.length === 100 && again.length === 20)
  expect(fresh).toEqual(numbers)
})

it('the bus multiplies no message while two services fail, and archives one for each', async () => {
  const attempts = { a: 0, b: 0 }
  const events = 20
  const failing = (service: 'a' | 'b') => [
    paid.on(
      () => {
        attempts[service]++
        throw new Error('always')
      },
      { retry: { attempts: 4, base: 20 } },
    ),
  ]
  const services = await Promise.all(
    (['a', 'b'] as const).map((name) => program(url, { service: name }, failing(name))),
  )
  await services[0]?.events.emitMany(paid, Array<number>(events).fill(1))
  const seen: number[] = []
  const begun = () => attempts.a + attempts.b
  await until(async () => {
    // The queues are not read at one moment: a message that an attempt moves meanwhile may be counted in two of them.
    const before = begun()
    const count = await total()
    seen.push(count - (begun() - before))
    const archived = await Promise.all(
      services.map(({ events: { archive } }, at) => archive.call(services[at]?.events, ['a', 'b'][at]).count()),
    )
    return archived.every((count) => count === events)
  })
  expect(attempts).toEqual({ a: 4 * events, b: 4 * events })
  // Beside the two for each event there are those whose copy is confirmed and that are not acknowledged yet.
  expect(Math.max(...seen)).toBeLessThanOrEqual(2 * events + 20)
  await until(async () => (await total()) === 2 * events)
})

it('the bus lists, replays, discards and counts archived events by filter', async () => {
  let isMended = false
  const got: unknown[] = []
  const work = [
    on(
      'orders.*',
      (payload, { event: { type }, redelivered, attempt }) => {
        if (!isMended) throw fail(`no ${type}`)
        got.push([payload, redelivered, attempt])
      },
      { name: 'book' },
    ),
  ]
  const a = await program(url, { service: 'a' }, work)
  const archive = a.events.archive()
  for (let n = 0; n < 6; n++) await a.events.emit(event(n % 2 ? 'orders.odd' : 'orders.even'), n)
  const id = await a.events.emit(paid, 'last', { id: newId() })
  await until(async () => (await archive.count()) === 7)
  const even = await archive.list({ event: 'orders.even' })
  expect(even.map((one) => one.event?.data)).toEqual([0, 2, 4])
  expect(even[0]).toMatchObject({
    handler: 'book',
    reason: 'refused',
    attempt: 1,
    error: { message: 'no orders.even' },
  })
  expect(await archive.list({ id })).toHaveLength(1)
  expect(await archive.list({ since: '1h', until: new Date(0) })).toEqual([])
  expect(await archive.list({ error: 'NO ORDERS.ODD' }, 2)).toHaveLength(2)
  await expect(archive.list({ typ: 'x' } as never)).rejects.toMatchObject({ code: 'SLUICE_BAD_FILTER' })
  await expect(archive.replay({ rate: '1/s' } as never)).rejects.toThrow('in the second argument')
  expect(await archive.discard({ event: 'orders.odd' })).toBe(3)
  isMended = true
  const stop = new AbortController()
  const first = await archive.replay({ event: 'orders.*' }, { signal: stop.signal, onProgress: () => stop.abort() })
  expect(first).toBe(1)
  const seen: number[] = []
  expect(await archive.replay({}, { rate: '1000/s', onProgress: ({ done }) => void seen.push(done) })).toBe(3)
  expect(seen).toEqual([1, 2, 3])
  await until(() => got.length === 4)
  expect(got).toEqual(
    expect.arrayContaining([
      ['last', true, 1],
      [0, true, 1],
      [2, true, 1],
      [4, true, 1],
    ]),
  )
  expect(await archive.count()).toBe(0)
})

it('the bus raises an alarm before the archive is full, and when nobody gets events', async () => {
  const raised: unknown[] = []
  const failing = paid.on(() => {
    throw fail('never')
  })
  const events = { on: 'rabbitmq', archive: { most: 5 } } as const
  const a = await program(url, { service: 'a', events }, [failing])
  await a.events.emitMany(paid, [1, 2, 3, 4])
  for (const n of [1, 2, 3]) await a.events.emit(event('nobody.gets.it'), n)
  await until(async () => (await a.events.archive().count()) === 4)
  const alarms = { archive: 80, unrouted: 3 }
  const b = await program(url, { service: 'a', events, alarms })
  b.on('alarm', ({ alarm, subject, isRaised, value }) => void raised.push([alarm, subject, isRaised, value]))
  await b.work([failing])
  await until(() => raised.length === 2)
  expect(raised).toEqual([
    ['unrouted', '', true, 3],
    ['archive', 'a', true, 80],
  ])
  await a.events.emitMany(paid, [5, 6, 7])
  await until(async () => (await a.events.archive().list())[0]?.event?.data !== 1)
  expect(await a.events.archive().count()).toBeLessThanOrEqual(5)
})

it('the bus runs on quorum queues, with retries and an archive', async () => {
  const got: unknown[] = []
  const work = [
    paid.on((n, { attempt }) => {
      got.push([n, attempt])
      if (n === 'bad') throw fail('never')
      if (attempt === 1) throw retryIn(20)
    }),
  ]
  const a = await program(url, { service: 'a', events: { on: 'rabbitmq', quorum: true } }, work)
  await a.events.emit(paid, 'good')
  await a.events.emit(paid, 'bad')
  await until(() => got.length === 3)
  await until(async () => (await a.events.archive().count()) === 1)
  expect(await a.events.archive().replay({})).toBe(1)
  await until(() => got.length === 4)
})

it('the bus says what is missing, and what it does not know', async () => {
  const code = (given: object) =>
    program(url, given)
      .then((sluice) => sluice.events.emit(paid, 1))
      .catch((error: { code: string }) => error.code)
  expect(await code({ amqp: undefined, events: 'rabbitmq' })).toBe('SLUICE_NO_BROKER')
  for (const events of [
    'kafka',
    { on: 'rabbitmq', archived: true },
    { on: 'rabbitmq', archive: { keep: 0 } },
    { on: 'rabbitmq', archive: { most: 0 } },
  ])
    expect(await code({ events })).toBe('SLUICE_BAD_OPTION')
  const a = await program(url)
  expect(() => a.events.archive()).toThrow(expect.objectContaining({ code: 'SLUICE_NO_SERVICE' }))
})
