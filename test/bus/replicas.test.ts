/** Notes among the replicas of a service, about messages that RabbitMQ brings again. */
import { expect, it, onTestFinished } from 'vitest'
import type { Broker } from '../../src/amqp/broker.ts'
import type { Message } from '../../src/amqp/publisher.ts'
import type { Topology } from '../../src/amqp/topology.ts'
import { ServiceNames } from '../../src/bus/names.ts'
import { findInReplicas, Replicas } from '../../src/bus/replicas.ts'
import { systemClock } from '../../src/core/clock.ts'
import { silent } from '../../src/core/log.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { stranger } from './stage.ts'

const wanted = () => true

/** Starts a replica of the service `a` that knows this of messages, and waits so long for others. */
async function replica(url: string, known: Record<string, 'handled' | 'in hand'> = {}, patienceMs = 1_000) {
  const broker = await stranger(url)
  let [aheadMs, drops] = [0, 0]
  const lossy = {
    declare: (topology: Topology) => broker.declare(topology),
    consume: (...how: Parameters<Broker['consume']>) => broker.consume(...how),
    publish: (message: Message) => (drops-- > 0 ? Promise.reject(new Error('lost')) : broker.publish(message)),
  } as Broker
  const wants: string[] = []
  const clock = {
    ...systemClock,
    monotonicMs: () => systemClock.monotonicMs() + aheadMs,
    after: (_: number, then: () => void) => systemClock.after(patienceMs, then),
    sleep: () => new Promise<void>((resolve) => setImmediate(resolve)),
  }
  const look = (key: string) => {
    wants.push(key)
    return known[key]
  }
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const learned: string[] = []
  const learn = (key: string) => void learned.push(key)
  const find = (id: string) => ({ handled: known[id] === 'handled' ? [`1 q h type ${id} `] : [], inHand: [] })
  const replicas = new Replicas({ broker: lossy, names, clock, log: silent, look, learn, find })
  await replicas.open()
  return {
    replicas,
    wants,
    learned,
    /** From then on it counts with all others to be known. */
    knowAll: () => (aheadMs = 3_600_000),
    dropNext: () => (drops = 1),
  }
}

it('a replica that has just started learns from the others what each has handled', async () => {
  const { url } = await freshBroker()
  await replica(url, { one: 'handled' })
  await replica(url, { two: 'handled' })
  const { replicas } = await replica(url)
  const keys = ['one', 'two', 'three']
  expect(await Promise.all(keys.map((key) => replicas.look(key, wanted)))).toEqual(['handled', 'handled', undefined])
})

it('a replica waits while another one has a message in hand, as long as it has the message itself', async () => {
  const { url } = await freshBroker()
  const known: Record<string, 'handled' | 'in hand'> = { one: 'in hand', two: 'in hand' }
  const { wants } = await replica(url, known)
  const { replicas } = await replica(url)
  const one = later(replicas.look('one', wanted))
  await until(() => wants.filter((key) => key === 'one').length > 2, 'there is another question')
  known['one'] = 'handled'
  expect(await one).toBe('handled')
  expect(await replicas.look('two', () => false)).toBe('in hand')
  const two = later(replicas.look('two', wanted))
  // The other one has given it up.
  delete known['two']
  expect(await two).toBe(undefined)
})

it('a replica repeats its question to one that was not connected before', async () => {
  const { url } = await freshBroker()
  const proxy = await startProxy({ port: Number(new URL(url).port) })
  onTestFinished(() => proxy.close())
  await replica(proxy.url(url), { one: 'handled' })
  const { replicas } = await replica(url, {}, 30_000)
  // By then it knows the other one.
  expect(await replicas.look('one', wanted)).toBe('handled')
  await proxy.refuse()
  proxy.reset()
  const answered = later(replicas.look('one', wanted))
  await proxy.pass()
  expect(await answered).toBe('handled')
})

it('a replica whose answer was lost gets the next question', async () => {
  const { url } = await freshBroker()
  const { dropNext } = await replica(url, { one: 'handled' })
  const { replicas, knowAll } = await replica(url)
  expect(await replicas.look('one', wanted)).toBe('handled')
  knowAll()
  dropNext()
  expect(await replicas.look('one', wanted)).toBe(undefined)
  await until(async () => (await replicas.look('one', wanted)) === 'handled')
})

it('a replica reports to the others what it has handled, and the rest when it stops', async () => {
  const { url } = await freshBroker()
  const first = await replica(url, {}, 10)
  const others = [await replica(url), await replica(url)]
  void others[0]?.replicas.look('one', wanted)
  await until(() => first.wants.length > 0, 'it knows another one')
  for (const key of ['one', 'two']) first.replicas.report(key)
  await until(() => others.every(({ learned }) => learned.length === 2))
  first.replicas.report('three')
  await first.replicas.close()
  await until(() => others.every(({ learned }) => learned.length === 3))
  for (const { learned } of others) expect(learned).toEqual(['one', 'two', 'three'])
  expect(first.learned).toEqual([])
})

it('a program that is no replica learns what each replica knows of an event, and counts for none', async () => {
  const { url } = await freshBroker()
  const asking = await stranger(url)
  const ask = (replicas: number) => findInReplicas(asking, { services: ['a', 'b'], id: 'one', replicas })
  // There is no exchange yet.
  expect(await ask(1)).toEqual([])
  await replica(url, { one: 'handled' })
  // It would wait for longer than this test.
  const { replicas, knowAll } = await replica(url, {}, 1_000_000)
  expect(await replicas.look('one', wanted)).toBe('handled')
  knowAll()
  const answers = await ask(2)
  expect(answers.toSorted((one, other) => other.handled.length - one.handled.length)).toEqual([
    { service: 'a', handled: ['1 q h type one '], inHand: [] },
    { service: 'a', handled: [], inHand: [] },
  ])
  // More are expected than there are.
  expect(await ask(3)).toHaveLength(2)
  expect(await replicas.look('two', wanted)).toBe(undefined)
})

it('no question waits for a replica that has stopped', async () => {
  const { url } = await freshBroker()
  const other = await replica(url, { one: 'handled' })
  // It would wait for longer than this test.
  const { replicas, knowAll } = await replica(url, {}, 1_000_000)
  expect(await replicas.look('one', wanted)).toBe('handled')
  knowAll()
  await other.replicas.close()
  expect(await replicas.look('one', wanted)).toBe(undefined)
})
