import { readFileSync } from 'node:fs'
import type { WireMessage } from '../../src/celery/wire.ts'

/** A message as fixtures/record.py has written it down. */
interface Recorded {
  exchange: string
  routing_key: string
  content_type: string
  content_encoding: string
  properties: {
    correlation_id?: string
    reply_to?: string
    delivery_mode: 1 | 2
    priority: number
    expiration?: string
  }
  headers: Record<string, unknown>
  body: string
}

const all = JSON.parse(readFileSync(new URL('fixtures/golden.json', import.meta.url), 'utf8')) as Record<
  string,
  unknown
>

/** What Celery sent when it was recorded under this name. */
export function golden(name: string): { exchange: string; key: string; message: WireMessage }[] {
  return (all[name] as Recorded[]).map((one) => ({
    exchange: one.exchange,
    key: one.routing_key,
    message: {
      contentType: one.content_type,
      contentEncoding: one.content_encoding,
      correlationId: one.properties.correlation_id,
      replyTo: one.properties.reply_to,
      deliveryMode: one.properties.delivery_mode,
      priority: one.properties.priority,
      expiration: one.properties.expiration,
      headers: one.headers,
      body: Buffer.from(one.body, 'base64'),
    },
  }))
}

/** The first message of a name. */
export function firstGolden(name: string): WireMessage {
  const [first] = golden(name)
  if (first === undefined) throw new Error(`nothing was recorded as ${name}`)
  return first.message
}

/** What Celery has written into Redis, by key: the texts one after the other. */
export const goldenRedis = all['redis'] as Record<string, string[]>

/** What Celery keeps in a Redis that is its broker, by what it did and then by key (fixtures/record_redis.py). */
export const goldenKeys = JSON.parse(
  readFileSync(new URL('fixtures/golden-redis.json', import.meta.url), 'utf8'),
) as Record<string, Record<string, string[]>> & {
  published: [string, string][]
  held: { unacked: Record<string, string>; unacked_index: string[] }
}
