/** Messages that would end a worker without a store. */
import { expect, it } from 'vitest'
import { z } from 'zod'
import { type Incoming, openBroker } from '../../src/amqp/broker.ts'
import { silent } from '../../src/core/log.ts'
import { progressHeader } from '../../src/direct/message.ts'
import { task } from '../../src/index.ts'
import { nested, openWire } from '../absorb/stage.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { direct } from './stage.ts'

it('arguments nested thousands of levels deep, and endless retries, harm no worker that shows them in events', async (context) => {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const seen: unknown[] = []
  const note = task('note', { input: z.unknown(), run: (given) => void seen.push(given) })
  const worker = await direct(context, [note], { celeryBroker: url, events: true })
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
  const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
  await wire.raw({ ...json, headers: { task: 'note', id: 'deep' }, body: Buffer.from(`[[${deep}],{},{}]`) })
  const endless = '{"task": "note", "id": "endless", "args": [2], "kwargs": {}, "retries": Infinity}'
  await wire.raw({ ...json, headers: {}, body: Buffer.from(endless) })
  await wire.send('note', [1])
  await until(() => seen.length === 3)
  expect(seen.some((one) => Array.isArray(one) && one[0] === 1)).toBe(true)
  await until(() => worker.running === 0)
})

it('a message whose ids are no text is parked, and holds up no other', async (context) => {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const worker = await direct(context, [task('note', { run: () => undefined })], { celeryBroker: url })
  const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
  await wire.raw({ ...json, headers: { task: 'note', id: { toString: 'no' } }, body: Buffer.from('[[],{},{}]') })
  expect(await wire.result(await wire.send('note'))).toMatchObject({ state: 'SUCCESS' })
  await wire.park()
  await until(() => wire.reasons.length === 1 && worker.running === 0, 'it is parked')
})

it('a message that its sender has also sent to other queues waits, and goes to none of these again', async (context) => {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  await wire.broker.declare({ queues: [{ name: 'other' }] })
  const note = task('note', { run: () => Promise.reject(new Error('no')), retry: { attempts: 2, base: 1, max: 1 } })
  await direct(context, [note], { celeryBroker: url })
  const id = await wire.send('note', [], { headers: { CC: ['other'] } })
  expect(await wire.result(id)).toMatchObject({ state: 'FAILURE' })
  const { messageCount } = await wire.broker.use((channel) => channel.checkQueue('other'))
  expect(messageCount).toBe(1)
})

it('all who wait for a message that cannot be carried out learn that', async (context) => {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const worker = await direct(context, [task('note', { run: () => undefined })], { celeryBroker: url })
  await wire.raw(nested(wire, 'note', 'a'))
  const pickle = { contentType: 'application/x-python-serialize', contentEncoding: 'binary', body: Buffer.from('.') }
  await wire.raw({ ...pickle, replyTo: wire.replyTo, headers: { task: 'note', id: 'pickle' } })
  for (const id of ['a', 'b', 'c', 'd', 'pickle'])
    expect(await wire.result(id)).toMatchObject({ state: 'FAILURE', value: { type: 'SluiceError' } })
  const unknown = await wire.send('nobody.knows')
  expect(await wire.result(unknown)).toMatchObject({ value: { type: 'NotRegistered', args: ['nobody.knows'] } })
  await until(() => worker.running === 0)
})

// A point of the list of conformance with Celery (scripts/conformance.mjs) begins with its number.
it('27: a message that has ended ten workers is put aside when it ends one more, and its producer learns that', async (context) => {
  const { url } = await freshBroker()
  const wire = await openWire(url, context)
  const seen: unknown[] = []
  const note = task('note', {
    input: z.unknown(),
    retry: { base: 1, max: 1 },
    run: (given, { ambiguous }) => void seen.push([given, ambiguous]),
  })
  const left = (crashes: number) => ({ headers: { [progressHeader]: JSON.stringify({ crashes }) } })
  const last = await wire.send('note', [1], left(9))
  const lethal = await wire.send('note', [2], left(10))
  // A worker that is lost with both.
  const lost = await openBroker({ url, name: 'test', log: silent })
  const held: Incoming[] = []
  await lost.consume('celery', { prefetch: 2 }, (one) => held.push(one))
  await until(() => held.length === 2, 'it has both')
  await lost.close()
  await direct(context, [note], { celeryBroker: url, park: true })
  expect(await wire.result(lethal)).toMatchObject({ state: 'FAILURE', value: { type: 'SLUICE_WORKER_LOST' } })
  expect(await wire.result(last)).toMatchObject({ state: 'SUCCESS' })
  expect(seen).toEqual([[[1], true]])
  await wire.park()
  await until(() => wire.reasons.length === 1, 'it is put aside')
  expect(wire.reasons[0]).toContain('crashed')
})
