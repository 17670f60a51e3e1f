/** The CNCF's SDK of CloudEvents reads our events, and we read what it writes, in its strict structured mode. */
import { CloudEvent, HTTP } from 'cloudevents'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { event, on } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, stranger } from './stage.ts'

it('events are read by an SDK of CloudEvents, and its events by handlers', async () => {
  const { url } = await freshBroker()
  const got: unknown[] = []
  const all = on('orders.#', (data, { event: { id, source, type, subject, time } }) => {
    got.push({ data, id, source, type, subject, time })
  })
  const a = await program(url, { service: 'a' }, [all])
  const other = await stranger(url)
  await other.declare({
    queues: [{ name: 'sdk' }],
    bindings: [{ exchange: 'sluice.events', to: { queue: 'sdk' }, routingKey: 'orders.#' }],
  })
  const read: CloudEvent<unknown>[] = []
  await other.consume('sdk', { prefetch: 10 }, (incoming) => {
    const headers = { 'content-type': incoming.properties.contentType as string }
    read.push(HTTP.toEvent({ headers, body: incoming.body.toString() }) as CloudEvent<unknown>)
    incoming.ack()
  })

  const id = await a.events.emit(
    event('orders.paid', z.object({ total: z.number() }), { version: 2 }),
    { total: 7 },
    { subject: 'order-7' },
  )
  await until(() => read.length === 1 && got.length === 1, 'the SDK and the handler have our event')
  expect(read[0]?.validate()).toBe(true)
  expect(read[0]?.toJSON()).toEqual({
    specversion: '1.0',
    id,
    source: '/services/a',
    type: 'orders.paid',
    subject: 'order-7',
    time: expect.any(String) as string,
    datacontenttype: 'application/json',
    schemaversion: 2,
    data: { total: 7 },
  })

  const theirs = new CloudEvent({ type: 'orders.shipped', source: '/sdk', subject: 'order-7', data: { parcel: 1 } })
  const { headers, body } = HTTP.structured(theirs)
  const properties = { contentType: String(headers['content-type']) }
  await other.publish({
    exchange: 'sluice.events',
    routingKey: theirs.type,
    body: Buffer.from(String(body)),
    properties,
  })
  await until(() => got.length === 2, 'the handler has the event of the SDK')
  const { type, source, subject, time } = theirs
  expect(got[1]).toEqual({ data: { parcel: 1 }, id: theirs.id, source, type, subject, time })
})
