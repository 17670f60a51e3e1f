/** What a producer sends for members of a group, without a worker. */
import { expect, it } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { openProducer, signature } from '../../src/celery/index.ts'
import { readIncoming } from '../../src/celery/transport.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { silent } from '../../src/core/log.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

it('a producer sends all members of a group by their options, or none if one of them is refused', async ({
  onTestFinished,
}) => {
  const { url } = await freshBroker()
  const broker = await openBroker({ url, name: 'test', log: silent })
  onTestFinished(() => broker.close())
  await broker.declare({ queues: [{ name: 'mine' }] })
  const producer = await openProducer({ broker: url })
  onTestFinished(() => producer.close())
  const first = signature('first', [], { options: { routing_key: 'mine', queue: 'nowhere' } })
  const odd = signature('odd', [], { options: { group_id: 'g' } })
  await expect(producer.group([first, odd])).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  for (const odd of [{ eta: new Date(Number.NaN) }, { expires: new Date(Number.NaN) }, { countdown: 1e15 }])
    await expect(producer.delay('second', [], odd)).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
  expect(() => signature('second', [], { queue: 'mine' } as object)).toThrow('here it is { options: { queue:')
  const one = signature('second')
  for (const misuse of [
    () => producer.delay('second', [], { linkError: one as never }),
    () => producer.delay('second', [], { link: ['first'] as never }),
    () => producer.chain([[one], one] as never),
    () => producer.group(one as never),
    () => producer.group([signature('second', [], { options: { link: one } }), { task: 'second' } as never]),
  ])
    await expect(misuse()).rejects.toMatchObject({ message: expect.stringContaining('takes a flat list of tasks') })
  const options = { routing_key: 'mine', queue: 'nowhere', reply_to: 'theirs', shadow: 'named' }
  await producer.group([signature('second', [], { options })])
  // An option that is undefined counts as absent.
  await producer.chain([signature('third', [], { options })], { queue: undefined, id: undefined })
  const got: WireMessage[] = []
  await broker.consume('mine', { prefetch: 10, noAck: true }, (one) => got.push(readIncoming(one)))
  await until(() => got.some(({ headers }) => headers['task'] === 'third'))
  expect(got.map(({ headers, replyTo }) => [headers['task'], headers['shadow'], replyTo])).toEqual([
    ['second', 'named', 'theirs'],
    ['third', 'named', 'theirs'],
  ])
})
