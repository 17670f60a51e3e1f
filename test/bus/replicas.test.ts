/** Questions among the replicas of a service, about a message that RabbitMQ brings again. */
import { expect, it, onTestFinished } from 'vitest'
import { ServiceNames } from '../../src/bus/names.ts'
import { Replicas } from '../../src/bus/replicas.ts'
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
  const wants: string[] = []
  const clock = {
    ...systemClock,
    after: (_: number, then: () => void) => systemClock.after(patienceMs, then),
    sleep: () => new Promise<void>((resolve) => setImmediate(resolve)),
  }
  const look = (key: string) => {
    wants.push(key)
    return known[key]
  }
  const names = new ServiceNames('a', { isQuorum: false, archive: undefined, isCelery: false })
  const replicas = new Replicas({ broker, names, clock, log: silent, look })
  await replicas.open()
  return { replicas, wants }
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
