/** Messages that wait on a RabbitMQ: how long, where, and that none is lost. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Broker, openBroker } from '../../src/amqp/broker.ts'
import { routeDelayed, delayMaxMs, delayTopology, publishLater } from '../../src/amqp/delays.ts'
import { silent } from '../../src/core/log.ts'
import { isLong } from '../long.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

/** Returns how long a message stays, by the queues that its headers name. */
function stayMs({ exchange, headers }: ReturnType<typeof routeDelayed>): number {
  const { queues = [], bindings = [], exchanges = [] } = delayTopology()
  const names = exchanges.map(({ name }) => name)
  let [at, ms] = [exchange, 0]
  for (const seen = new Set<string>(); at !== '';) {
    const fitting = bindings.filter(({ exchange: from, arguments: found = {} }) => {
      return (
        from === at && Object.entries(found).every(([name, value]) => name === 'x-match' || headers[name] === value)
      )
    })
    expect(fitting).toHaveLength(1)
    const to = fitting[0]?.to ?? { queue: '' }
    if ('exchange' in to) at = to.exchange
    else {
      expect(seen.has(to.queue)).toBe(false)
      seen.add(to.queue)
      const own = queues.find(({ name }) => name === to.queue)?.arguments ?? {}
      ms += Number(own['x-message-ttl'])
      at = own['x-dead-letter-exchange'] as string
      expect(at === '' || names.includes(at)).toBe(true)
    }
  }
  return ms
}

describe('delays', () => {
  it('take each message by one way, through no queue twice, for its time rounded up to 50 ms', () => {
    const some = Array.from({ length: 300 }, () => Math.random() * delayMaxMs)
    for (const ms of [0.1, 1, 49.9, 50, 51, 200, 250, 12_345, delayMaxMs - 1, delayMaxMs, ...some])
      expect(stayMs(routeDelayed(ms))).toBe(Math.ceil(ms / 50) * 50)
    expect(stayMs(routeDelayed(10 * delayMaxMs))).toBe(delayMaxMs)
  })

  it('need few queues, each of one time to live, whose name has it', () => {
    const { queues = [] } = delayTopology()
    expect(queues).toHaveLength(28)
    for (const { name, arguments: own } of queues)
      expect(name.endsWith(`:${own?.['x-message-ttl'] as number}`)).toBe(true)
  })
})

describe('a message that waits', () => {
  let broker: Broker
  beforeAll(async () => {
    const { url } = await freshBroker()
    broker = await openBroker({ url, name: 'test', log: silent })
    await broker.declare(delayTopology())
  })
  afterAll(() => broker.close())

  it('arrives within 100 ms after its time, and never before', async () => {
    await broker.declare({ queues: [{ name: 'here' }] })
    const count = isLong ? 5_000 : 300
    const spanMs = isLong ? 30_000 : 3_000
    const late: number[] = []
    const consumer = await broker.consume('here', { prefetch: 200 }, (incoming) => {
      late.push(performance.now() - Number(incoming.properties.headers?.['due']))
      incoming.ack()
    })
    for (let i = 0; i < count; i++) {
      const ms = Math.random() * spanMs
      // A few at a time: the wait counts from when the broker has it.
      const due = String(performance.now() + ms)
      const sent = publishLater(broker, { body: Buffer.from('x'), properties: { headers: { due } } }, 'here', ms)
      if (i % 10 === 9) await sent
    }
    await until(() => late.length === count, 'all have arrived', spanMs + 20_000)
    await consumer.cancel()
    late.sort((a, b) => a - b)
    expect(late[0]).toBeGreaterThanOrEqual(-1)
    // Only a quiet machine has no delays of its own.
    if (isLong) expect(late[Math.floor(count * 0.99)]).toBeLessThan(100)
    if (isLong)
      console.log('lateness in ms, p50, p99, greatest:', late[count >> 1], late[Math.floor(count * 0.99)], late.at(-1))
  })

  it('is not lost when it waits again and again, in the same queues', async () => {
    await broker.declare({ queues: [{ name: 'circle' }] })
    const rounds: number[] = []
    await broker.consume('circle', { prefetch: 10 }, async (incoming) => {
      const round = Number(incoming.properties.headers?.['round'])
      rounds.push(round)
      if (round < 20) await again(round + 1)
      incoming.ack()
    })
    const again = (round: number) =>
      publishLater(broker, { body: Buffer.from('x'), properties: { headers: { round } } }, 'circle', 75)
    await again(0)
    await until(() => rounds.length === 21, 'it has come back each time', 20_000)
    expect(rounds.at(-1)).toBe(20)
  })

  it('is an error when its queue is gone only if it is published at once', async () => {
    const message = { body: Buffer.from('x') }
    await expect(publishLater(broker, message, 'nowhere', 0)).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNROUTED' })
  })
})
