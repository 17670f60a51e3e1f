/** Messages that nobody can carry out: each is put aside by itself, its producer learns why, and what came with it runs. */
import { deflateSync } from 'node:zlib'
import { expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { signature } from '../../src/celery/signature.ts'
import { blank, type TaskMessage, writeTask } from '../../src/celery/task-message.ts'
import { task } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { absorb, nested, openWire } from './stage.ts'

type Wire = Awaited<ReturnType<typeof openWire>>

const json = { contentType: 'application/json', contentEncoding: 'utf-8' }
const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`
const follower = {
  ...signature('celery.chord', [], { kwargs: { header: [signature('note')], body: signature('note') } }),
}
const counted = [{ ...follower, subtask_type: 'chord' }]
const large = Buffer.from(JSON.stringify([['x'.repeat(3 * 2 ** 20)], {}, {}]))

/** Sends as many bytes of headers as one frame holds. */
async function sendFull({ raw }: Wire, id: string): Promise<void> {
  const send = (size: number) => {
    const more = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`h${i}`, 'x'.repeat(size)]))
    const message = { ...json, headers: { task: 'nobody.knows', id, ...more }, body: Buffer.from('[[],{},{}]') }
    return raw(message).then(
      () => true,
      () => false,
    )
  }
  let size = 6_545
  while (!(await send(size))) size -= 2
}

/** What is sent under which id, why it is parked, and the type of the error that its producer gets; undefined: it gets none. */
const all: [id: string, send: (wire: Wire, id: string) => Promise<unknown>, reason: RegExp, type?: string][] = [
  ['x'.repeat(300), (wire, id) => wire.send('note', [], { id }), /its id is longer than 255 bytes/],
  ['ü'.repeat(200), (wire, id) => wire.send('note', [], { id }), /its id is longer than 255 bytes/],
  ['deep', raw({}, Buffer.from(`[[${deep}],{},{}]`)), /nested deeper than 32/, 'UsageError'],
  ['thrown', (wire, id) => wire.send('thrown', [], { id }), /no schema of this sort/, 'TypeError'],
  ['args', (wire, id) => wire.send('note', [1], { kwargs: { args: 2 }, id }), /"args"/, 'SluiceError'],
  ['bomb', raw({ compression: 'application/x-gzip' }, deflateSync(large)), /longer than 2 MiB/, 'SluiceError'],
  ['long', raw({}, large), /longer than 2 MiB/, 'SluiceError'],
  ['unknown', (wire, id) => wire.send('nobody.knows', [], { id }), /no worker here has a task/, 'NotRegistered'],
  ['chord', built({ chord: signature('note'), groupId: 'g' }), /chord.*CELERY_RESULT_BACKEND/, 'SluiceError'],
  ['linked', built({ callbacks: [signature('note', [], { options: { chord: {} } })] }), /has no name/, 'SluiceError'],
  ['nested', (wire, id) => wire.raw(nested(wire, 'note', id)), /chord.*CELERY_RESULT_BACKEND/, 'SluiceError'],
  [
    'counted',
    built({ chain: [signature('note', [], { options: { link: counted } })] }),
    /chord.*CELERY_RESULT_BACKEND/,
    'SluiceError',
  ],
  ['pickle', raw({}, Buffer.from('.'), 'application/x-python-serialize'), /pickle/, 'SluiceError'],
  ['full', sendFull, /no worker here has a task/],
]

function raw(headers: object, body: Buffer, contentType = 'application/json') {
  return (wire: Wire, id: string) =>
    wire.raw({ ...json, contentType, replyTo: wire.replyTo, headers: { task: 'note', id, ...headers }, body })
}

function built(more: Partial<TaskMessage>) {
  return async (wire: Wire, id: string) => {
    const message = { ...blank, id, rootId: id, task: 'note', ...more }
    await wire.raw({ ...(await writeTask(message, { nowMs: Date.now() })), replyTo: wire.replyTo })
  }
}

/** A wire, and a function that starts a worker. */
async function open(context: TestContext) {
  const { url } = await freshBroker()
  const calls: unknown[] = []
  const validate = () => {
    throw new TypeError('no schema of this sort')
  }
  const own = [
    task('note', { input: z.unknown(), run: (input) => void calls.push(input) }),
    task('thrown', { input: { '~standard': { version: 1, vendor: 'test', validate } }, run: () => undefined }),
  ]
  return { wire: await openWire(url, context), calls, start: (events = false) => absorb(url, own, context, { events }) }
}

it('a message that cannot be carried out is parked by itself, and its producer learns why', async (context) => {
  const { wire, calls, start } = await open(context)
  for (const [id, send] of all) await send(wire, id)
  const good = await wire.send('note', ['good'])
  await start()
  expect(await wire.result(good)).toMatchObject({ state: 'SUCCESS' })
  await wire.park()
  await until(() => wire.reasons.length === all.length, 'all others are parked')
  for (const [, , reason] of all) expect(wire.reasons).toContainEqual(expect.stringMatching(reason))
  for (const [id, , , type] of all)
    if (type !== undefined) expect(await wire.result(id)).toMatchObject({ state: 'FAILURE', value: { type } })
  for (const id of ['b', 'c', 'd']) expect(await wire.result(id)).toMatchObject({ state: 'FAILURE' })
  expect(calls).toEqual([['good']])
})

it('a message is parked also in a queue that somebody has made otherwise', async (context) => {
  const { wire, start } = await open(context)
  await wire.broker.declare({ queues: [{ name: 'celery.parked', arguments: { 'x-message-ttl': 3_600_000 } }] })
  await wire.send('nobody.knows')
  await start()
  await wire.park()
  await until(() => wire.reasons.length === 1, 'it is parked')
  expect(wire.reasons).toEqual([expect.stringContaining('no worker here has a task "nobody.knows"')])
})

it('a message that has expired, and is nested thousands of levels deep, holds up no other one, though events show it', async (context) => {
  const { wire, start } = await open(context)
  const expired = { expires: '2020-01-01T00:00:00+00:00' }
  await raw(expired, Buffer.from(`[[${deep}],{},{}]`))(wire, 'deep')
  const good = await wire.send('note', ['good'])
  await start(true)
  expect(await wire.result('deep')).toMatchObject({ state: 'REVOKED' })
  expect(await wire.result(good)).toMatchObject({ state: 'SUCCESS' })
})
