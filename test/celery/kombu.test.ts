import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { readRequest } from '../../src/celery/control.ts'
import {
  bindingsKey,
  boundQueues,
  channelOf,
  heldIndexKey,
  heldKey,
  listOf,
  listsOf,
  markRedelivered,
  readEnvelope,
  readHeld,
  writeBinding,
  writeEnvelope,
} from '../../src/celery/kombu.ts'
import { readTask } from '../../src/celery/task-message.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { goldenKeys } from './golden.ts'
import { forAll } from '../for-all.ts'

const refused = { code: 'SLUICE_CELERY_MESSAGE' }

interface Raw {
  headers: Record<string, unknown>
  properties: { delivery_info: { exchange: string; routing_key: string }; delivery_tag: string; priority: number }
}

/** The messages that were recorded under this name, with the keys of their lists. */
function recorded(name: string): { list: string; text: string; raw: Raw }[] {
  const lists = Object.entries(goldenKeys[name] ?? {}).filter(([key]) => !key.includes('_kombu'))
  return lists.flatMap(([list, texts]) => texts.map((text) => ({ list, text, raw: JSON.parse(text) as Raw })))
}

describe('a message of Celery in Redis', () => {
  it.each(['delay', 'priorities', 'expires', 'topic', 'direct', 'prefix'])(
    '"%s" is read, and written again as Celery wrote it',
    async (name) => {
      const all = recorded(name)
      expect(all.length).toBeGreaterThan(0)
      for (const { text, raw } of all) {
        const { message, isRedelivered } = readEnvelope(text)
        expect(isRedelivered).toBe(false)
        expect(await readTask(message)).toMatchObject({ task: 'add', id: raw.headers['id'] })
        const { delivery_info: info, delivery_tag: tag } = raw.properties
        const address = { exchange: info.exchange, routingKey: info.routing_key }
        expect(JSON.parse(writeEnvelope(message, address, tag))).toEqual(raw)
      }
    },
  )

  it('is in the list of its priority, and these are read from priority 0 on', () => {
    for (const { list, raw } of recorded('priorities')) expect(listOf('celery', raw.properties.priority)).toBe(list)
    expect(listsOf('celery')).toEqual(['celery', 'celery\u0006\u00163', 'celery\u0006\u00166', 'celery\u0006\u00169'])
  })

  it('goes where the bindings of its exchange take it', () => {
    const topic = goldenKeys['topic']?.[bindingsKey('jobs')] ?? []
    expect(boundQueues(topic, 'jobs.add')).toEqual(['topical'])
    expect(boundQueues(topic, 'other.add')).toEqual([])
    const direct = goldenKeys['direct']?.[bindingsKey('orders')] ?? []
    expect(direct).toEqual([writeBinding('new', 'exact')])
    expect(boundQueues(direct, 'new')).toEqual(['exact'])
    expect(boundQueues([...direct, ...direct, 'odd', '\u0006\u0016(\u0006\u0016broken'], 'new')).toEqual(['exact'])
  })

  it('to all workers is on the channel of their exchange', async () => {
    const [[channel, text] = ['', '']] = goldenKeys.published
    expect(channelOf('celery.pidbox', 0)).toBe(channel)
    expect(await readRequest(readEnvelope(text).message)).toMatchObject({ method: 'ping' })
  })

  it('that a worker holds is found by its tag, and can be marked as delivered before', () => {
    expect(Object.keys(goldenKeys.held)).toEqual(expect.arrayContaining([heldKey, heldIndexKey]))
    const [[tag, text] = ['', '']] = Object.entries(goldenKeys.held.unacked)
    expect(goldenKeys.held.unacked_index).toEqual([tag])
    const held = readHeld(text)
    expect(held.address).toEqual({ exchange: '', routingKey: 'celery' })
    const again = markRedelivered(held.text)
    expect(readEnvelope(again)).toMatchObject({ isRedelivered: true, message: { headers: { redelivered: true } } })
    const { headers, body, ...others } = readEnvelope(held.text).message
    expect(readEnvelope(again).message).toEqual({ ...others, body, headers: { ...headers, redelivered: true } })
  })

  it('is read again as it was written, whatever it carries', () => {
    const text = fc.string({ minLength: 1 })
    const some = fc.record({
      contentType: text,
      contentEncoding: text,
      correlationId: text,
      replyTo: text,
      deliveryMode: fc.constantFrom(1 as const, 2 as const),
      priority: fc.nat({ max: 255 }),
      expiration: text,
      headers: fc.dictionary(text, text),
      body: fc.uint8Array().map((bytes) => Buffer.from(bytes)),
    })
    forAll(some, text, text, (message: WireMessage, exchange, routingKey) => {
      const written = writeEnvelope(message, { exchange, routingKey }, 'tag')
      expect(readEnvelope(written)).toEqual({ message, isRedelivered: false })
      expect(readHeld(`[${written}, "", "celery"]`).address.routingKey).toBe('celery')
    })
  })

  it('that is none is refused', () => {
    const act = (text: string) => [() => readEnvelope(text), () => readHeld(text), () => markRedelivered(text)]
    for (const text of ['', '1', '"a"', '{"body": "", "properties": {}', '[1, 2, 3]'])
      for (const one of act(text)) expect(one).toThrow(expect.objectContaining(refused))
    expect(() => readEnvelope('{"body": 1}')).toThrow(expect.objectContaining(refused))
  })
})
