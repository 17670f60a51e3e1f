import { onTestFinished } from 'vitest'
import { openBroker, type Broker, type Incoming } from '../../src/amqp/broker.ts'
import { logTo } from '../../src/core/log.ts'

/** A broker, and the lines that it logs. */
export async function open(url: string): Promise<Broker & { lines: string[] }> {
  const lines: string[] = []
  const log = logTo((level, message) => lines.push(`${level} ${message}`))
  const broker = await openBroker({ url, name: 'test', log })
  onTestFinished(() => broker.close())
  return Object.assign(broker, { lines })
}

/** Receives the messages of a queue, acknowledges them, and keeps their texts. */
export async function collect(broker: Broker, queue: string, prefetch = 100) {
  const texts: string[] = []
  const consumer = await broker.consume(queue, { prefetch }, (incoming: Incoming) => {
    texts.push(incoming.body.toString())
    incoming.ack()
  })
  return { texts, consumer }
}

/** A message for a queue. */
export const to = (queue: string, text: string, rest: object = {}) => ({
  routingKey: queue,
  body: Buffer.from(text),
  ...rest,
})
