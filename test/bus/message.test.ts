/** What is read from messages, whatever strangers wrote, and the steps of delays. */
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { copyOf, eventOf, isOf, keyFor, keyOf, messageOf, namesIn, partsOf, progressOf } from '../../src/bus/message.ts'
import { isId, newId } from '../../src/core/hash.ts'
import { ServiceNames, timeMaxMs } from '../../src/bus/names.ts'
import { forAll } from '../for-all.ts'

const received = (body: Uint8Array, properties: object, routingKey = 'a.b') =>
  ({ body: Buffer.from(body), properties, routingKey }) as unknown as Parameters<typeof progressOf>[0]

it('a service reads every message as an event, or refuses it with a reason, and never fails in another way', () => {
  const types = ['application/cloudevents+json', 'application/json', 'text/plain', undefined]
  const properties = fc.record({
    contentType: fc.option(fc.oneof(fc.constantFrom(...types), fc.string()), { nil: undefined }),
    contentEncoding: fc.constantFrom(undefined, 'utf-8', 'gzip'),
    messageId: fc.option(fc.string(), { nil: undefined }),
    timestamp: fc.option(fc.integer(), { nil: undefined }),
    headers: fc.option(fc.dictionary(fc.constantFrom('sluice-history', 'sluice-again', 'x'), fc.anything()), {
      nil: undefined,
    }),
  })
  const body = fc.oneof(
    fc.uint8Array(),
    fc.json().map((text) => Buffer.from(text)),
  )
  forAll(body, properties, fc.boolean(), (bytes, given, takesPlain) => {
    const message = received(bytes, given)
    const progress = progressOf(message)
    expect(progress.attempt).toBeGreaterThanOrEqual(0)
    try {
      const event = eventOf(message, progress, { takesPlain, nowMs: 0 })
      expect(typeof event.id).toBe('string')
      const copy = copyOf(message, event, progress, { routingKey: 'q' })
      expect(eventOf(received(copy.body, copy.properties ?? {}), progress, { takesPlain: false, nowMs: 0 })).toEqual(
        JSON.parse(JSON.stringify(event)),
      )
    } catch (error) {
      if ((error as { code?: string }).code !== 'SLUICE_EVENT_REFUSED') throw error
    }
  })
})

it('a service keeps what is known of a message from copy to copy, and nothing of what servers add', () => {
  const text = JSON.stringify({ specversion: '1.0', id: 'i', source: '/s', type: 'a.b', data: 1 })
  const { body, properties } = messageOf({ id: 'i', type: 'a.b', text })
  const progress = {
    ...progressOf(received(body, properties ?? {})),
    handler: 'h',
    attempt: 3,
    failed: 2,
    isDoubtful: true,
  }
  const copy = copyOf(received(body, { ...properties, headers: { 'x-death': [{}] } }), undefined, progress, {
    routingKey: 'q',
  })
  expect(Object.keys(copy.properties?.headers ?? {})).toEqual(['sluice-history'])
  expect(progressOf(received(copy.body, copy.properties ?? {}, 'q'))).toEqual(progress)
})

it('a service counts what a worker in Python has tried since, whose Celery keeps the headers of others or does not', () => {
  const known = { ...progressOf(received(Buffer.from('1'), {})), attempt: 2, failed: 1 }
  const text = JSON.stringify(known)
  for (const [retries, attempt, failed] of [
    [1, 2, 1],
    [4, 5, 4],
  ]) {
    const headers = { task: 'a.b', id: 'i', retries, 'sluice-history': text }
    expect(progressOf(received(Buffer.from('1'), { headers }))).toMatchObject({ attempt, failed })
  }
})

it('a service gives a message without an id one of its own, by which two with the same content differ', () => {
  const progress = progressOf(received(Buffer.from('1'), {}))
  const copies = [1, 2].map(() => copyOf(received(Buffer.from('1'), {}), undefined, progress, { routingKey: 'q' }))
  const ids = copies.map(({ body, properties = {} }) => {
    const { id } = eventOf(received(body, properties), progress, { takesPlain: true, nowMs: 0 })
    expect(copyOf(received(body, properties), undefined, progress, { routingKey: 'q' }).properties?.messageId).toBe(id)
    return id
  })
  expect(ids.every(isId)).toBe(true)
  expect(new Set(ids).size).toBe(2)
})

it('a service refuses what is nested so deep that it could not be written again', () => {
  const nested = (levels: number) => Buffer.from(`${'['.repeat(levels)}1${']'.repeat(levels)}`)
  const read = (levels: number) => {
    const message = received(nested(levels), { contentType: 'application/json', messageId: '1' })
    return eventOf(message, progressOf(message), { takesPlain: true, nowMs: 0 })
  }
  expect(JSON.stringify(read(500).data)).toHaveLength(1_001)
  for (const levels of [501, 50_000])
    expect(() => read(levels)).toThrow(expect.objectContaining({ code: 'SLUICE_EVENT_REFUSED' }))
})

it('a service takes a history that no process of ours has written for none', () => {
  const ours = { type: 'a.b', attempt: 1, failed: 1, throttled: 0, crashes: 0, strays: 2, isDoubtful: false }
  const read = (more: object) =>
    progressOf(received(Buffer.from('1'), { headers: { 'sluice-history': JSON.stringify({ ...ours, ...more }) } }))
  expect(read({ handler: 'h' })).toEqual({ ...ours, handler: 'h' })
  const fresh = { ...ours, attempt: 0, failed: 0, strays: 0 }
  for (const odd of [{ strays: -1e9 }, { failed: -1 }, { attempt: 1e300 }, { handler: {} }, { replayOf: 7 }])
    expect(read(odd)).toEqual(fresh)
})

it('a service reads of a task how often a replica in Python has tried it, and takes no two of its attempts for one', () => {
  const read = (headers: object) => {
    const message = received(Buffer.from('[[], {}, {}]'), { headers: { task: 'a.b', id: 'i', ...headers } })
    const progress = progressOf(message)
    return { ...progress, key: keyOf('q', message as never, progress) }
  }
  const [first, third] = [read({ retries: 0 }), read({ retries: 2 })]
  expect(first).toMatchObject({ attempt: 0, failed: 0 })
  expect(third).toMatchObject({ attempt: 2, failed: 2 })
  // It may belong to any replay of its event, so it is not taken for one that was handled.
  expect([typeof first.key, third.key]).toEqual(['string', undefined])
  for (const retries of [undefined, '2', -1, 0.5, 1e300]) expect(read({ retries })).toEqual(first)
  // In another message it is a header of its publisher's.
  expect(progressOf(received(Buffer.from('1'), { headers: { retries: 2 } })).failed).toBe(0)
})

it('a service recognises copies of one message, and no two messages, whatever ids other programs give them', () => {
  const envelope = (id: string, data: unknown) =>
    Buffer.from(JSON.stringify({ specversion: '1.0', id, source: '/s', type: 'a.b', data }))
  const keyIn = (body: Buffer, contentType: string, messageId?: string) => {
    const message = received(body, { contentType, messageId })
    return keyOf('q', message as never, progressOf(message))
  }
  const enveloped = 'application/cloudevents+json'
  expect(keyIn(envelope('1', 1), enveloped, '1')).toBe(keyIn(envelope('1', 1), enveloped, '1'))
  const all = [
    keyIn(envelope('1', 1), enveloped, 'same'),
    keyIn(envelope('2', 2), enveloped, 'same'),
    keyIn(Buffer.from('1'), 'application/json', 'same'),
    keyIn(Buffer.from('2'), 'application/json', 'same'),
    // A counter that began anew.
    keyIn(envelope('1', 1), enveloped, '1'),
    keyIn(envelope('1', 2), enveloped, '1'),
  ]
  expect(new Set(all).size).toBe(all.length)
  expect(keyIn(envelope('1', 1), enveloped)).toBeUndefined()
  const id = newId()
  expect(keyIn(envelope(id, 1), enveloped, id)).toBe(keyIn(envelope(id, 2), enveloped, id))
})

it('the key of a message tells what it names, whatever characters that has, and which replay it belongs to', () => {
  const text = fc.string({ unit: fc.constantFrom(' ', '%', '2', '0', '5', 'a', '\ud800') })
  const message = received(Buffer.from('1'), {})
  const fresh = { ...progressOf(message), attempt: 1 }
  forAll(text, text, text, text, (id, type, handler, replayOf) => {
    const of = { ...message, properties: { messageId: id } } as never
    const key = keyOf('q', of, { ...fresh, type, handler, replayOf }) ?? ''
    expect(namesIn(key)).toEqual({ queue: 'q', handler, type, id })
    expect(keyFor(keyOf('q', of, { ...fresh, type, replayOf }) ?? '', handler)).toBe(key)
    expect([isOf(key, id), isOf(key, `${id} `)]).toEqual([true, false])
    const next = keyOf('q', of, { ...fresh, type, handler, replayOf, attempt: 2 }) ?? ''
    const other = keyOf('q', of, { ...fresh, type, handler, replayOf: `${replayOf}a` }) ?? ''
    expect(partsOf(next)).toEqual({ chain: partsOf(key).chain, place: 2 })
    expect(partsOf(other).chain).not.toBe(partsOf(key).chain)
  })
})

it('a service finds a step that is a tenth longer than a delay at most, and one of the backoff first', () => {
  const names = new ServiceNames('a', { isQuorum: false, isCelery: false, archive: undefined })
  const stepOf = (ms: number, ...steps: number[]) => names.stepFor(ms, new Set(steps))
  forAll(fc.integer({ min: 1, max: 2 ** 33 }), (ms) => {
    const step = stepOf(ms)
    const wanted = Math.min(ms, timeMaxMs)
    expect(step).toBeGreaterThanOrEqual(wanted)
    expect(step / wanted).toBeLessThanOrEqual(1.1)
    expect(stepOf(wanted, wanted)).toBe(wanted)
    expect(stepOf(Math.ceil(wanted * 0.9), 1, wanted, 2 * wanted)).toBe(wanted)
  })
  expect([stepOf(0), stepOf(-1), stepOf(0.2)]).toEqual([0, 0, 1])
})
