/** Events through the store: who gets them, when, how often, and what becomes of those that fail. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { event, type EventHandler, fail, limit, newId, on, retryIn, Sluice, type Work } from '../../src/index.ts'
import { mainEngines } from '../claim/engine.ts'

const even = event('demo.number.even', z.object({ number: z.number() }), { version: 2 })
const noted = event('demo.note', z.object({ text: z.string() }))

describe.each(mainEngines)('on $name', (engine) => {
  let billing: Sluice
  let got: unknown[]
  const number = (name: string): EventHandler => even.on((payload) => void got.push([name, payload.number]), { name })
  /** Runs what may run, also retries that are due. */
  const run = async (work: readonly Work[], sluice = billing) => sluice.dispatchOnce(work)

  beforeEach(async () => {
    got = []
    billing = await Sluice.open({ store: await engine.store(), service: 'billing' })
  })
  afterEach(() => billing.close())

  it('delivers an event to each handler once, with its envelope', async () => {
    const work = [
      even.on((payload, { event: { id, type, schemaversion, source }, redelivered }) => {
        got.push([payload, { id, type, schemaversion, source, redelivered }])
      }),
      on('demo.#', (payload, context) => void got.push([payload, context.event.subject]), { name: 'audit' }),
    ]
    await run(work)
    const id = await billing.events.emit(even, { number: 4 }, { subject: 'four' })
    expect(await run(work)).toBe(2)
    expect(got).toEqual([
      [
        { number: 4 },
        { id, type: 'demo.number.even', schemaversion: 2, source: '/services/billing', redelivered: false },
      ],
      [{ number: 4 }, 'four'],
    ])
    expect(await billing.events.show(id)).toMatchObject({
      event: { specversion: '1.0', datacontenttype: 'application/json', data: { number: 4 } },
      routed: 2,
      deliveries: [
        { service: 'billing', handler: 'audit', state: 'done', attempt: 1 },
        { service: 'billing', handler: 'demo.number.even', state: 'done', attempt: 1 },
      ],
    })
  })

  it('emits an id that was emitted before no second time, neither alone nor among others', async () => {
    const work = [number('a')]
    await run(work)
    const id = newId()
    await Promise.all([1, 2, 3].map((n) => billing.events.emit(even, { number: n }, { id })))
    await run(work)
    await billing.events.emit(even, { number: 4 }, { id })
    expect(await run(work)).toBe(0)
    expect(got).toHaveLength(1)
  })

  it('emits once for each key and type, alone, at the same time, in a transaction and from SQL', async () => {
    const work = [number('a'), noted.on(({ text }) => void got.push(text))]
    await run(work)
    const once = (n: number, more: object = {}) =>
      billing.events.emit(even, { number: n }, { idempotencyKey: 'order 7', ...more })
    const undone = billing.transaction(async (tx) => {
      await once(1, { tx })
      throw new Error('rolled back')
    })
    await expect(undone).rejects.toThrow('rolled back')
    const [first, second] = await Promise.all([once(2), once(3)])
    expect(second).toBe(first)
    expect(await billing.transaction((tx) => once(4, { tx }))).toBe(first)
    const options = '{"idempotency_key": "order 7"}'
    const [row] = await billing.db.query(`select sluice.emit('${even.name}', '{"number": 5}', '${options}') as id`)
    expect(row).toEqual({ id: first })
    await billing.events.emit(noted, { text: 'another type' }, { idempotencyKey: 'order 7' })
    await billing.events.emit(even, { number: 6 }, { idempotencyKey: 'order 8' })
    await run(work)
    expect(got).toHaveLength(3)
    expect(got).toEqual(expect.arrayContaining(['another type', ['a', 6]]))
    for (const idempotencyKey of ['', 'x'.repeat(401), 7 as never])
      await expect(once(1, { idempotencyKey })).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  })

  it('names the handler and its order if a payload lacks the key', async () => {
    const sorted = noted.on(() => undefined, { name: 'sorted', order: 'account.id' })
    await run([sorted])
    const id = await billing.events.emit(noted, { text: 'x' })
    await run([sorted])
    const [delivery] = (await billing.events.show(id))?.deliveries ?? []
    expect(delivery).toMatchObject({ state: 'failed', error: { code: 'SLUICE_MISSING_KEY' } })
    expect(delivery?.error?.message).toContain('handler "sorted" has the order "account.id"')
  })

  it('refuses the id of an event of another type, for whoever gave it alone', async () => {
    const work = [number('a'), noted.on(() => void got.push(['noted']))]
    await run(work)
    const [id, own] = [newId(), newId()]
    await billing.events.emit(even, { number: 1 }, { id })
    const refused = { code: 'SLUICE_BAD_ID', message: expect.stringContaining(even.name) }
    await expect(billing.events.emit(noted, { text: 'x' }, { id })).rejects.toMatchObject(refused)
    const together = [
      billing.events.emit(noted, { text: 'x' }, { id: own }),
      billing.events.emit(noted, { text: 'x' }, { id }),
      billing.events.emit(even, { number: 2 }),
    ]
    const ends = (await Promise.allSettled(together)).map(({ status }) => status)
    expect(ends).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    await expect(
      billing.transaction((tx) => billing.events.emit(noted, { text: 'x' }, { id, tx })),
    ).rejects.toMatchObject(refused)
    await run(work)
    expect(new Set(got)).toEqual(new Set([['a', 1], ['a', 2], ['noted']]))
  })

  it('emits in the caller’s transaction, at its commit', async () => {
    const work = [number('a')]
    await run(work)
    await billing.transaction(async (tx) => {
      await billing.events.emit(even, { number: 1 }, { tx })
      await billing.events.emitMany(even, [{ number: 2 }, { number: 3 }], { tx })
    })
    const undone = billing.transaction(async (tx) => {
      await billing.events.emit(even, { number: 4 }, { tx })
      throw new Error('rolled back')
    })
    await expect(undone).rejects.toThrow('rolled back')
    await run(work)
    expect(got).toEqual([1, 2, 3].map((n) => ['a', n]))
  })

  it('emits from SQL, and checks at that door, too', async () => {
    const work = [
      on('demo.#', (payload, context) => void got.push([payload, context.event.source, context.event.type])),
    ]
    await run(work)
    const emit = (type: string, data: string, options = '{}') =>
      billing.db.query(`select sluice.emit($1, $2::jsonb, $3::jsonb) as id`, [type, data, options])
    await emit('demo.from.sql', '{"a": 1}', '{"source": "/orders", "subject": "7", "version": 3}')
    await run(work)
    expect(got).toEqual([[{ a: 1 }, '/orders', 'demo.from.sql']])
    await expect(emit("demo.'x", '1')).rejects.toThrow('SLUICE_BAD_EVENT')
    await expect(emit('demo..x', '1')).rejects.toThrow('SLUICE_BAD_EVENT')
    await expect(emit('demo.x', '1', '{"subjects": "a"}')).rejects.toThrow('SLUICE_BAD_OPTION')
    for (const odd of ['{"subject": {"a": 1}}', '{"source": ["/a"]}', '{"subject": true}', '{"version": "1"}'])
      await expect(emit('demo.x', '1', odd)).rejects.toThrow('SLUICE_BAD_OPTION')
    await expect(emit('demo.x', '1', '{"version": 1.5}')).rejects.toThrow('SLUICE_BAD_OPTION')
    await expect(emit('demo.x', '1', '[]')).rejects.toThrow('SLUICE_BAD_OPTION')
    await expect(emit('demo.x', '1', '{"id": "7"}')).rejects.toThrow('SLUICE_BAD_ID')
    await expect(emit('demo.x', JSON.stringify('x'.repeat(262_144)))).rejects.toThrow('SLUICE_PAYLOAD_TOO_LARGE')
    await expect(emit('demo.x', '"\\u0000"')).rejects.toThrow()
  })

  it('archives an event that the handler’s schema refuses, at once, with the reason', async () => {
    const strict = event('demo.number.even', z.object({ number: z.string() })).on(() => undefined, { name: 'strict' })
    await run([strict, number('lax')])
    const id = await billing.events.emit(even, { number: 4 })
    await run([strict, number('lax')])
    expect(got).toEqual([['lax', 4]])
    const deliveries = (await billing.events.show(id))?.deliveries
    expect(deliveries?.[1]).toMatchObject({
      handler: 'strict',
      state: 'failed',
      reason: 'refused',
      attempt: 1,
      error: { code: 'SLUICE_EVENT_REFUSED' },
    })
    expect(deliveries?.[1]?.error?.message).toMatch(
      /handler "strict" refused the event \(version 2\): payload .*number/,
    )
  })

  it('retries what throws, archives what fails, and flags each repetition', async () => {
    const seen: unknown[] = []
    const work = [
      even.on(
        ({ number: n }, { attempt, redelivered }) => {
          seen.push([n, attempt, redelivered])
          if (n === 1 && attempt === 1) throw retryIn(0)
          if (n === 2) throw fail('never')
          if (n === 3) throw new Error('always')
        },
        { retry: { attempts: 2, base: 0 } },
      ),
    ]
    await run(work)
    await billing.events.emitMany(
      even,
      [1, 2, 3].map((n) => ({ number: n })),
    )
    while ((await run(work)) > 0);
    expect(seen).toHaveLength(5)
    expect(seen).toEqual(
      expect.arrayContaining([
        [1, 1, false],
        [1, 2, true],
        [2, 1, false],
        [3, 1, false],
        [3, 2, true],
      ]),
    )
    expect((await billing.events.handlers())[0]).toMatchObject({ archived: 2, isCaughtUp: true })
    // A replay has all attempts again, counted anew, and is flagged.
    const { input } = { input: { service: 'billing', 'event.type': even.name } }
    expect(await billing.jobs.retryMany({ input, error: 'always' }, { rate: '1000/s' })).toBe(1)
    while ((await run(work)) > 0);
    expect(seen.slice(5)).toEqual([
      [3, 1, true],
      [3, 2, true],
    ])
    expect(await billing.jobs.discardMany({ input })).toBe(2)
  })

  it('keeps a late subscriber’s events, from a stated time on', async () => {
    await billing.events.emitMany(
      even,
      Array.from({ length: 1_100 }, (_, n) => ({ number: n })),
    )
    await billing.events.emit(noted, { text: 'not for it' })
    const numbers: number[] = []
    const early = even.on((payload) => void numbers.push(payload.number), { name: 'early', since: '1h' })
    const work = [early, number('late')]
    await run(work)
    expect(numbers).toEqual(Array.from({ length: 1_100 }, (_, n) => n))
    // Neither a further look nor a restart delivers anything again.
    await billing.events.renew()
    expect(await run(work)).toBe(0)
    expect(got).toEqual([])
    await billing.events.emit(even, { number: -1 })
    expect(await run(work)).toBe(2)
  })

  it('matches patterns by words', async () => {
    const of = (pattern: string) => on(pattern, (_, context) => void got.push(`${pattern} ${context.event.type}`))
    const work = ['a.*', 'a.#', '*.b', '#', 'a.*.c'].map(of)
    await run(work)
    for (const type of ['a', 'a.b', 'a.b.c', 'axb', 'b']) await billing.events.emit(event(type), null)
    await run(work)
    const wanted = ['a.* a.b', 'a.# a', 'a.# a.b', 'a.# a.b.c', '*.b a.b', 'a.*.c a.b.c']
    const all = ['a', 'a.b', 'a.b.c', 'axb', 'b'].map((type) => `# ${type}`)
    expect(new Set(got)).toEqual(new Set([...wanted, ...all]))
    expect(got).toHaveLength(wanted.length + all.length)
  })

  it('runs events of one key one at a time, in order, and others beside', async () => {
    const running = new Map<string, number>()
    const order: string[] = []
    const keyed = event('demo.keyed', z.object({ key: z.string(), n: z.number() }))
    const work = [
      keyed.on(
        async ({ key, n }) => {
          running.set(key, (running.get(key) ?? 0) + 1)
          expect(running.get(key)).toBe(1)
          await new Promise((resolve) => setImmediate(resolve))
          order.push(`${key}${n}`)
          running.set(key, 0)
        },
        { order: 'key' },
      ),
    ]
    await run(work)
    await billing.events.emitMany(
      keyed,
      Array.from({ length: 20 }, (_, n) => ({ key: n % 2 ? 'a' : 'b', n })),
    )
    await run(work)
    expect(order.filter((each) => each.startsWith('a'))).toEqual(
      [1, 3, 5, 7, 9, 11, 13, 15, 17, 19].map((n) => `a${n}`),
    )
    expect(order.filter((each) => each.startsWith('b'))).toHaveLength(10)
  })

  it('reads the keys of limits from the payload', async () => {
    const crm = limit('crm', { concurrency: 1, by: 'account' })
    const byFunction = limit('by-function', { concurrency: 1, by: (input: { account: string }) => input.account })
    const account = event('demo.account', z.object({ account: z.string() }))
    const work = [
      account.on(() => void got.push('path'), { name: 'path', limits: [crm], concurrency: 3 }),
      account.on(() => void got.push('function'), { name: 'function', limits: [byFunction] }),
      on('demo.account', () => void got.push('other'), {
        name: 'missing',
        limits: [limit('m', { concurrency: 1, by: 'x' as never })],
      }),
    ]
    await run(work)
    const id = await billing.events.emit(account, { account: 'a1' })
    const buckets = await billing.db.query<{ buckets: string[] | null }>(
      'select buckets from sluice.job where buckets is not null',
    )
    expect(buckets).toEqual([{ buckets: ['crm:a1', 'events.billing.path.places'] }])
    await run(work)
    expect(got).toEqual(expect.arrayContaining(['function', 'path']))
    expect(got).toHaveLength(2)
    expect((await billing.events.show(id))?.deliveries.find(({ handler }) => handler === 'missing')).toMatchObject({
      state: 'failed',
      error: { code: 'SLUICE_MISSING_KEY' },
    })
  })

  it('shows types that nobody gets, and that nobody defined', async () => {
    await run([number('a')])
    await billing.events.emit(noted, { text: 'x' })
    await billing.db.query(`select sluice.emit('demo.unknown', '1')`)
    const lines = await billing.events.list()
    expect(
      lines.map(({ type, isUnrouted, publishers, subscribers }) => [
        type,
        isUnrouted,
        publishers.length,
        subscribers.length,
      ]),
    ).toEqual([
      ['demo.note', true, 1, 0],
      ['demo.number.even', false, 0, 1],
      ['demo.unknown', true, 0, 0],
    ])
    expect(lines[0]?.publishers[0]).toMatchObject({
      service: 'billing',
      schema: { properties: { text: { type: 'string' } } },
    })
  })
})
