/** The brokers of workers without a store: each has the tests of all. */
import { openBroker } from '../../src/amqp/broker.ts'
import { readEnvelope } from '../../src/celery/kombu.ts'
import { readIncoming } from '../../src/celery/transport.ts'
import type { WireMessage } from '../../src/celery/wire.ts'
import { silent } from '../../src/core/log.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { connectRedis } from '../servers/resp.ts'

/** Which there are. */
export const kinds = ['RabbitMQ', 'Redis'] as const
export type Kind = (typeof kinds)[number]

/** A broker of a file's or a test's own; see the fields. */
export interface DirectHost {
  url: string
  /** Where results go, as producers name it. */
  backend: string
  /** How many messages of a queue nobody has in hand. */
  depth(queue: string): Promise<number>
  /** Takes the messages out of a queue that nobody serves. */
  drain(queue: string): Promise<WireMessage[]>
  close(): Promise<void>
}

/** Starts one. */
export function startHost(kind: Kind): Promise<DirectHost> {
  return kind === 'Redis' ? startRedisHost() : startRabbitHost()
}

async function startRabbitHost(): Promise<DirectHost> {
  const { url } = await freshBroker()
  const broker = await openBroker({ url, name: 'test', log: silent })
  return {
    url,
    backend: 'rpc://',
    depth: (queue) => broker.use(async (channel) => (await channel.checkQueue(queue)).messageCount),
    drain: (queue) =>
      broker.use(async (channel) => {
        const found: WireMessage[] = []
        for (;;) {
          const message = await channel.get(queue, { noAck: true })
          if (message === false) return found
          found.push(readIncoming({ body: message.content, properties: message.properties as never }))
        }
      }),
    close: () => broker.close(),
  }
}

async function startRedisHost(): Promise<DirectHost> {
  const server = await startRedis()
  const admin = await connectRedis(server.port)
  return {
    url: server.url,
    backend: server.url,
    depth: async (queue) => Number(await admin.send('LLEN', [queue])),
    async drain(queue) {
      const found: WireMessage[] = []
      for (;;) {
        const text = (await admin.send('RPOP', [queue])) as string | null
        if (text === null) return found
        found.push(readEnvelope(text).message)
      }
    },
    async close() {
      admin.close()
      await server.close()
    },
  }
}
