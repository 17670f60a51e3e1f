/** Headers between this transport and Python's client of RabbitMQ, which Celery uses. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { expect, it } from 'vitest'
import { findPython } from '../examples/interpreter.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { open, to } from './stage.ts'

const script = `
import amqp, json, sys
host, vhost = sys.argv[1:]
connection = amqp.Connection(host, virtual_host=vhost)
connection.connect()
channel = connection.channel()
message = channel.basic_get('to-python', no_ack=True)
print(json.dumps(message.headers))
headers = {'a': 1, 'big': 2**40, 'inner': {'big': -2**40}, 'text': 'x', 'z': [1, 2**33]}
channel.basic_publish(amqp.Message('back', application_headers=headers), routing_key='to-node')
connection.close()
`

it('headers have the same values in Node and in Python', async () => {
  const host = await freshBroker()
  const broker = await open(host.url)
  await broker.declare({ queues: [{ name: 'to-python' }, { name: 'to-node' }] })
  const headers = {
    small: 5,
    byte: 200,
    short: 1_000,
    negative: -3,
    int: 70_000,
    long: 2 ** 40,
    list: [300, 240],
    none: null,
  }
  await broker.publish(to('to-python', '1', { properties: { headers } }))
  const { host: at } = new URL(host.url)
  const { stdout } = await promisify(execFile)(await findPython('celery'), ['-c', script, at, host.name])
  expect(JSON.parse(stdout)).toEqual(headers)
  const got: unknown[] = []
  await broker.consume('to-node', { prefetch: 1 }, (one) => {
    got.push(one.properties.headers)
    one.ack()
  })
  await until(() => got.length === 1)
  expect(got).toEqual([{ a: 1, big: 2 ** 40, inner: { big: -(2 ** 40) }, text: 'x', z: [1, 2 ** 33] }])
})
