/** What becomes of messages when a worker without a store, its Redis or its broker fails. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openProducer } from '../../src/celery/index.ts'
import type { Owner } from '../fleet/children.ts'
import { type Broker, type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { kinds, startHost } from './brokers.ts'
import { type Arrival, startMember, startRecorder } from './fleet.ts'
import { mostIn } from './stage.ts'

const count = 40

/** A Redis and a vendor of one test's own beside this broker, workers, which end with the test, and what was called. */
async function openStage<Host extends { url: string }>({ onTestFinished }: Owner, host: Host) {
  const [redis, vendor] = await Promise.all([startRedis(), startRecorder()])
  onTestFinished(() => redis.close())
  onTestFinished(() => void vendor.close())
  return {
    host,
    redis,
    vendor,
    async sendAll() {
      const producer = await openProducer({ broker: host.url, results: 'none' })
      // A worker that starts first makes the queue.
      for (let n = 0; n < count; n++) await producer.delay('call', [n])
      await producer.close()
    },
    async member(crashAt?: string) {
      // Over Redis what a worker had that was killed comes again after that.
      const url = { broker: host.url, redis: redis.url, vendor: vendor.url, visible: '5s' }
      const child = await startMember(url, '20/s', 5, crashAt)
      onTestFinished(() => void child.kill('SIGKILL'))
      return child
    },
    all: () => new Set(vendor.arrivals.map(({ n }) => n)).size,
  }
}
type Stage = Awaited<ReturnType<typeof openStage<Broker>>>

/** Each task that was called more than once knew that it might have been called before, but for the first time. */
function expectMarked(arrivals: readonly Arrival[]): void {
  const unmarked = arrivals.filter(({ isAgain }) => !isAgain).map(({ n }) => n)
  expect(new Set(unmarked).size).toBe(unmarked.length)
}

/** No second had more than the limit of 20. */
function expectWithin(arrivals: readonly Arrival[]): void {
  const times = arrivals.map(({ atMs }) => atMs)
  expect(mostIn(times, 1_000)).toBeLessThanOrEqual(20)
}

describe.concurrent.each(kinds)('without a store, over %s', (kind) => {
  /** As `openStage`, on a broker of the test's own. */
  async function openOwn(context: Owner) {
    const host = await startHost(kind)
    context.onTestFinished(() => host.close())
    return openStage(context, host)
  }

  it('nothing is lost when a worker is killed with messages in hand; what may run twice is told so', async (context) => {
    const { vendor, sendAll, member, all } = await openOwn(context)
    const first = await member()
    await sendAll()
    await until(() => vendor.arrivals.length >= 5, 'some were called', 20_000)
    first.kill('SIGKILL')
    await member()
    await until(() => all() === count, 'all were called', 40_000)
    expectWithin(vendor.arrivals)
    expectMarked(vendor.arrivals)
  })

  it('nothing is lost when a worker dies between the confirmation of a copy and its acknowledgement', async (context) => {
    const { vendor, sendAll, member, all } = await openOwn(context)
    const first = await member('direct.settled')
    const gone = new Promise((resolve) => first.once('exit', resolve))
    await sendAll()
    await gone
    await member()
    await until(() => all() === count, 'all were called', 40_000)
    const twice = vendor.arrivals.filter(({ n }, i) => vendor.arrivals.findIndex((one) => one.n === n) < i)
    expect(twice.length).toBeLessThanOrEqual(5)
    expectMarked(vendor.arrivals)
  })

  it('a flush of Redis closes the limit, exceeds nothing and loses nothing', async (context) => {
    const { redis, vendor, sendAll, member, all } = await openOwn(context)
    await member()
    await sendAll()
    await until(() => vendor.arrivals.length >= 10, 'some were called', 20_000)
    const { Redis } = await import('ioredis')
    const client = new Redis(redis.url)
    await client.flushall()
    client.disconnect()
    await until(() => all() === count, 'all were called', 40_000)
    expect(vendor.arrivals).toHaveLength(count)
    expectWithin(vendor.arrivals)
  })
})

describe('without a store, on a broker of its own', () => {
  let rabbit: RabbitServer
  beforeAll(async () => void (rabbit = await startRabbit()))
  afterAll(() => rabbit.close())

  it('a broker that is killed and started again has all that waits', async (context) => {
    const stage = await openStage(context, await rabbit.fresh())
    const { vendor, sendAll, member, all } = stage
    await member()
    await sendAll()
    await until(() => all() >= 10, 'some were called', 20_000)
    // A server that is killed loses some of what its classic queues have just passed on (docs/broker.md), so nothing is on its way then.
    vendor.isShut = true
    await until(() => rest(stage), 'all others wait in the first queue of their wait', 20_000)
    await rabbit.kill()
    vendor.isShut = false
    await rabbit.start()
    await expectAll(stage)
  })

  it('a broker that is killed in mid-traffic loses nothing that did not wait, and what it still has is called', async (context) => {
    const stage = await openStage(context, await rabbit.fresh())
    const { vendor, sendAll, member } = stage
    await member()
    await sendAll()
    const producer = await openProducer({ broker: stage.host.url, results: 'none' })
    context.onTestFinished(() => producer.close())
    const free = 3_000
    const sent = Promise.all(Array.from({ length: free }, (_, n) => producer.delay('free', [n])))
    const calledOf = (kind: string) => vendor.arrivals.filter(({ what }) => what === kind)
    const seenOf = (kind: string) => new Set(calledOf(kind).map(({ n }) => n)).size
    await sent
    await until(() => seenOf('free') >= free / 10 && seenOf('call') > 0, 'both kinds are called', 20_000)
    await rabbit.kill()
    expect(seenOf('free')).toBeLessThan(free)
    await rabbit.start()
    await until(() => seenOf('free') === free, 'all that did not wait were called', 60_000)
    // Some of those that came out of their waits just then are lost (docs/broker.md).
    await until(async () => [...(await counts(stage.host)).values()].every((n) => n === 0), 'nothing is left', 60_000)
    await producer.delay('call', [count])
    await until(() => calledOf('call').some(({ n }) => n === count), 'it goes on')
    expectWithin(calledOf('call'))
    for (const kind of ['free', 'call']) expectMarked(calledOf(kind))
  })

  /** How many messages each queue has, those in hand included. */
  async function counts(host: Broker): Promise<Map<string, number>> {
    const told = await host.evaluate(
      `[{binary_to_list(element(4, amqqueue:get_name(Q))), element(2, lists:keyfind(messages, 1, rabbit_amqqueue:info(Q, [messages])))} || Q <- rabbit_amqqueue:list(<<"${host.name}">>)]`,
    )
    return new Map([...told.matchAll(/\{"([^"]+)",\s*(\d+)\}/g)].map(([, queue = '', n]) => [queue, Number(n)]))
  }

  /** True if each message that is left was published to the queue where it is: one from which a wait of some 10 s begins. */
  async function rest({ host, all }: Stage): Promise<boolean> {
    const found = [...(await counts(host))]
    const isFirst = (queue: string) => Number(/^sluice\.delay:\d:(\d+)$/.exec(queue)?.[1] ?? 0) >= 3_200
    const sum = (isWanted: (queue: string) => boolean) =>
      found.reduce((n, [queue, m]) => n + (isWanted(queue) ? m : 0), 0)
    return sum(isFirst) === count - all() && sum((queue) => !isFirst(queue)) === 0
  }

  async function expectAll({ vendor, all }: Stage): Promise<void> {
    await until(() => all() === count, 'all were called', 60_000)
    expectWithin(vendor.arrivals)
    expectMarked(vendor.arrivals)
  }
})

it('without a store, over a Redis that keeps what it has confirmed, and is killed and started again, nothing is lost', async (context) => {
  const broker = await startRedis({ appendonly: 'yes', appendfsync: 'always' })
  context.onTestFinished(() => broker.close())
  const stage = await openStage(context, broker)
  const { vendor, sendAll, member } = stage
  await member()
  await sendAll()
  const producer = await openProducer({ broker: broker.url, results: 'none' })
  context.onTestFinished(() => producer.close())
  const calledOf = (what: string) => vendor.arrivals.filter((arrival) => arrival.what === what)
  const seenOf = (what: string) => new Set(calledOf(what).map(({ n }) => n)).size
  let free = 0
  for (const part of [10, 25]) {
    await until(() => seenOf('call') >= part, 'some were called', 20_000)
    await Promise.all(Array.from({ length: 500 }, () => producer.delay('free', [free++])))
    await broker.kill()
    expect(seenOf('call')).toBeLessThan(count)
    await broker.start()
  }
  await until(() => seenOf('free') === free && seenOf('call') === count, 'all were called', 60_000)
  expectWithin(calledOf('call'))
  for (const kind of ['free', 'call']) expectMarked(calledOf(kind))
})
