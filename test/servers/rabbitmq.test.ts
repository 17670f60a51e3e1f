/** The run's RabbitMQ, and its virtual hosts. That a killed one has what is durable is the subject of test/amqp/crash.test.ts. */
import { connect } from 'amqplib'
import { expect, it } from 'vitest'
import { freshBroker } from './rabbitmq.ts'

it('the run gives each caller a virtual host of its own on one server', async () => {
  const [one, other] = await Promise.all([freshBroker(), freshBroker()])
  expect(one.url).not.toBe(other.url)
  const connection = await connect(one.url)
  const channel = await connection.createChannel()
  await channel.assertQueue('orders')
  await connection.close()
  expect(await one.evaluate(`length(rabbit_amqqueue:list(<<"${one.name}">>))`)).toBe('1')
  expect(await other.evaluate(`length(rabbit_amqqueue:list(<<"${other.name}">>))`)).toBe('0')
})
