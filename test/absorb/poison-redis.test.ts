/** Messages of Celery in Redis that cannot be carried out, and that JSON cannot state as they are. */
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import { task } from '../../src/index.ts'
import { direct } from '../direct/stage.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis, type Connection } from '../servers/resp.ts'
import { until } from '../until.ts'
import { absorb } from './stage.ts'

let redis: Awaited<ReturnType<typeof startRedis>>
let admin: Connection
beforeAll(async () => {
  redis = await startRedis()
  admin = await connectRedis(redis.port)
})
afterAll(async () => {
  admin.close()
  await redis.close()
})

/** A message with this header, as Python writes it. */
function written(name: string, header: string, priority = '0'): string {
  const id = randomUUID()
  const body = Buffer.from('[[1], {}, {}]').toString('base64')
  const properties = {
    body_encoding: 'base64',
    correlation_id: id,
    delivery_tag: randomUUID(),
    delivery_info: { exchange: '', routing_key: 'celery' },
  }
  const headers = `{"task": "${name}", "id": "${id}", "x": ${header}}`
  return `{"body": "${body}", "content-type": "application/json", "content-encoding": "utf-8", "headers": ${headers}, "properties": {"priority": ${priority}, ${JSON.stringify(properties).slice(1)}}`
}
const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`

it.for([
  ['a number', '1'],
  ['NaN', 'NaN'],
  ['NaN in a list', '{"a": [NaN]}'],
  ['a list of 50,000 levels', deep],
] as const)('messages with %s in a header are parked, and hold up no other', async ([, header], context) => {
  await admin.send('FLUSHALL', [])
  const calls: unknown[] = []
  const note = task('note', { input: z.unknown(), run: (input) => void calls.push(input) })
  await admin.send('LPUSH', ['celery', written('nobody.knows', header)])
  await admin.send('LPUSH', ['celery', written('note', '1')])
  await absorb(redis.url, [note], context)
  await until(() => calls.length === 1, 'the other one runs')
  expect(Number(await admin.send('LLEN', ['celery.parked']))).toBe(1)
})

it('messages with NaN as their priority are carried out, or parked, and hold up no other', async (context) => {
  await admin.send('FLUSHALL', [])
  const calls: unknown[] = []
  const note = task('note', { input: z.unknown(), run: (input) => void calls.push(input) })
  for (const name of ['nobody.knows', 'note']) await admin.send('LPUSH', ['celery', written(name, '1', 'NaN')])
  await absorb(redis.url, [note], context)
  await until(() => calls.length === 1, 'it runs')
  expect(Number(await admin.send('LLEN', ['celery.parked']))).toBe(1)
})

it.for(['with a store', 'without'])(
  'a message that cannot be parked in its own list is parked in another one by a worker %s, and holds up no other',
  async (how, context) => {
    await admin.send('FLUSHALL', [])
    await admin.send('SET', ['celery.parked', 'no list'])
    const calls: unknown[] = []
    const note = task('note', { input: z.unknown(), run: (input) => void calls.push(input) })
    for (const name of ['nobody.knows', 'note']) await admin.send('LPUSH', ['celery', written(name, '1')])
    const isDirect = how === 'without'
    await (isDirect ? direct(context, [note], { celeryBroker: redis.url }) : absorb(redis.url, [note], context))
    await until(() => calls.length === 1, 'the other one runs')
    const parked = async () => (await admin.send('LRANGE', ['sluice.parked', '0', '-1'])) as string[]
    await until(async () => (await parked()).length > 0, 'it is parked')
    const [text = '', ...others] = await parked()
    expect(others).toEqual([])
    const { headers } = JSON.parse(text) as { headers: Record<string, string> }
    expect(headers).toMatchObject({
      task: 'nobody.knows',
      'x-sluice-reason': expect.stringMatching(/^from the queue "celery": no worker here has a task/),
    })
    await until(async () => Number(await admin.send('HLEN', ['unacked'])) === 0, 'nothing is in hand')
  },
)
