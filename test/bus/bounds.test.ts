/** The bounds of a service's queues, and the alarm about events that are retried. */
import { beforeEach, expect, it } from 'vitest'
import type { Incoming } from '../../src/amqp/broker.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { readQueues } from '../../src/bus/queue-watch.ts'
import { Republisher } from '../../src/bus/republisher.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { event } from '../../src/index.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf, stranger } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
beforeEach(async () => {
  host = await freshBroker()
})

it('an archive drops what is older than it keeps', async () => {
  const events = { on: 'rabbitmq', archive: { keep: '1s' } } as const
  const a = await program(host.url, { service: 'a', events }, [paid.on(() => undefined)])
  const queue = 'sluice.archive:a'
  const other = await stranger(host.url)
  for (const n of [1, 2, 3]) await other.publish({ routingKey: queue, body: Buffer.from(String(n)) })
  await until(async () => (await queuesOf(host)).get(queue) === 0, 'all are too old')
  expect(await a.events.archive().count()).toBe(0)
})

it('a service has a queue for each group and step, and two more, one of them for each process', async () => {
  const attempts: unknown[] = []
  const failing = (group: string) =>
    paid.on(
      (_, { attempt }) => {
        attempts.push(attempt)
        throw new Error('always')
      },
      { name: group, group, retry: { attempts: 3, base: 20 } },
    )
  const services = ['a', 'b', 'c']
  const groups = ['one', 'two']
  for (const service of services) await program(host.url, { service }, groups.map(failing))
  const emitter = await program(host.url)
  await emitter.events.emit(paid, 1)
  await until(() => attempts.length === 3 * services.length * groups.length)
  const found = [...(await queuesOf(host)).keys()].filter((name) => name !== 'sluice.unrouted')
  // The name of a process's own queue ends in an id.
  const own = found.map((name) => name.replace(/^(sluice[.]replicas:.):.*/, '$1'))
  const of = (service: string) => [
    ...groups.map((group) => `sluice.events:${service}:${group}`),
    ...[20, 40].map((step) => `sluice.retry:${service}:${step}`),
    `sluice.archive:${service}`,
    `sluice.replicas:${service}`,
  ]
  expect(own.toSorted()).toEqual(services.flatMap(of).toSorted())
})

/** Returns the arguments of the queues, `key=value` in a text for each. */
async function argumentsOf({ name, evaluate }: Broker): Promise<string[]> {
  const value = `case V of B when is_binary(B) -> B; _ -> io_lib:format("~w", [V]) end`
  const each = `[[" ", K, "=", ${value}] || {K, _, V} <- lists:sort(amqqueue:get_arguments(Q))]`
  const all = await evaluate(
    `[lists:flatten(io_lib:format("~s~s", [element(4, amqqueue:get_name(Q)), ${each}])) || Q <- rabbit_amqqueue:list(<<"${name}">>)]`,
  )
  return [...all.matchAll(/"([^"]*)"/g)].map(([, text = '']) => text.replaceAll(/\s+/g, ' '))
}

it('quorum queues lose nothing on the way to a queue of retries, back from it, or to the archive', async () => {
  const events = { on: 'rabbitmq', quorum: true } as const
  let attempts = 0
  const failing = paid.on(
    () => {
      attempts++
      throw new Error('always')
    },
    { group: 'main', retry: { attempts: 2, base: 20 } },
  )
  const a = await program(host.url, { service: 'a', events }, [failing])
  await a.events.emit(paid, 1)
  await until(() => attempts === 2)
  const own = (await argumentsOf(host)).filter((text) => /:a[: ]/.test(text) && !text.startsWith('sluice.replicas'))
  expect(own.map((text) => text.split(' ')[0] ?? '').toSorted()).toEqual([
    'sluice.archive:a:quorum',
    'sluice.events:a:main:quorum',
    'sluice.retry:a:20:quorum',
  ])
  for (const text of own) expect(text).toContain(' x-queue-type=quorum')
  // The other queues give messages on to nobody.
  const giving = own.filter((text) => text.includes('x-dead-letter-exchange'))
  expect(giving).toHaveLength(2)
  for (const text of giving) {
    expect(text).toContain(' x-dead-letter-strategy=at-least-once')
    expect(text).toContain(' x-overflow=reject-publish')
  }
})

it('an alarm is told how many events wait for a retry', async () => {
  const broker = await stranger(host.url)
  const names = new ServiceNames('a', { isQuorum: false, isCelery: false, archive: undefined })
  await broker.declare(names.groupTopology(names.group('main', false), false, []))
  const store = { clock: systemClock, log: silent }
  const republisher = new Republisher({ broker, names, ...store })
  const counts: unknown[] = []
  const alarms = {
    evaluate: (alarm: string, subject: string, value: number) => void counts.push([alarm, subject, value]),
  }
  const look = () => readQueues({ store, broker, names, republisher, alarms, look() {} })
  await look()
  const incoming = { body: Buffer.from('1'), properties: {} as Incoming['properties'], routingKey: paid.name }
  const progress = {
    type: 'orders.paid',
    attempt: 1,
    failed: 1,
    throttled: 0,
    crashes: 0,
    strays: 0,
    isDoubtful: false,
  }
  for (const delayMs of [3_600_000, 3_600_000, 7_200_000])
    await republisher.returnLater(
      { incoming, event: undefined },
      { queue: names.group('main', false), stepFor: (ms) => ms },
      progress,
      delayMs,
    )
  await look()
  expect(counts).toEqual([
    ['retries', 'a', 0],
    ['retries', 'a', 3],
  ])
})
