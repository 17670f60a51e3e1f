/** The RabbitMQ of tests: virtual hosts, durable messages across a crash, and nothing left behind. */
import { connect } from 'amqplib'
import { expect, it, onTestFinished } from 'vitest'
import { freshBroker, startRabbit } from './rabbitmq.ts'

it('gives each caller a virtual host of its own on one server', async () => {
  const [one, other] = await Promise.all([freshBroker(), freshBroker()])
  expect(one.url).not.toBe(other.url)
  const connection = await connect(one.url)
  const channel = await connection.createChannel()
  await channel.assertQueue('orders')
  await connection.close()
  expect(await one.evaluate(`length(rabbit_amqqueue:list(<<"${one.name}">>))`)).toBe('1')
  expect(await other.evaluate(`length(rabbit_amqqueue:list(<<"${other.name}">>))`)).toBe('0')
})

it('keeps durable queues across a crash', async () => {
  const server = await startRabbit()
  onTestFinished(() => server.close())
  const connection = await connect(server.url)
  connection.on('error', () => {})
  const channel = await connection.createConfirmChannel()
  await channel.assertQueue('orders', { durable: true })
  channel.sendToQueue('orders', Buffer.from('1'), { persistent: true })
  await channel.waitForConfirms()
  // RabbitMQ may forget a queue that was declared just before the crash: Mnesia writes its log a little later.
  await server.evaluate('mnesia:sync_log()')
  await server.kill()
  await server.start()
  const again = await connect(server.url)
  onTestFinished(() => again.close())
  const reader = await again.createChannel()
  reader.on('error', () => {})
  expect(await reader.checkQueue('orders')).toMatchObject({ messageCount: 1 })
})
