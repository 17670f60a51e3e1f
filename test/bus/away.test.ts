/** Programs that start while RabbitMQ is away. */
import { beforeEach, expect, it } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { event, task } from '../../src/index.ts'
import { freePort } from '../servers/postgres.ts'
import { isLong } from '../long.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { type Proxy, startProxy } from '../servers/proxy.ts'
import { later, until } from '../until.ts'
import { program, queuesOf } from './stage.ts'

const paid = event('orders.paid')
let host: Broker
let proxy: Proxy
let url: string
beforeEach(async (context) => {
  host = await freshBroker()
  proxy = await startProxy({ port: Number(new URL(host.url).port) })
  // After the programs, which take their leave.
  context.onTestFinished(() => proxy.close())
  await proxy.refuse()
  url = proxy.url(host.url)
})

it('a program begins with the jobs of its tasks, says what it waits for, and takes events within 10 s when RabbitMQ is there', async () => {
  const got: unknown[] = []
  const own = task('away.own', { run: () => void got.push('job') })
  const a = await program(url, { service: 'a' }, [own, paid.on((n) => void got.push(n))])
  await a.send(own, null)
  await until(() => got.length === 1)
  expect(a.lines.filter((line) => line.includes('service "a" waits for RabbitMQ'))).toHaveLength(1)
  const emitter = await program(url)
  const emitted = later(emitter.events.emit(paid, 1))
  await until(() => emitter.lines.some((line) => line.includes('no connection to RabbitMQ')))
  await proxy.pass()
  const sinceMs = systemClock.monotonicMs()
  await emitted
  // What nobody was subscribed to is not delivered later.
  await until(async () => (await queuesOf(host)).has('sluice.events:a:main'))
  await until(async () => {
    await emitter.events.emit(paid, 2)
    return got.includes(2)
  })
  if (isLong) expect(systemClock.monotonicMs() - sinceMs).toBeLessThan(10_000)
})

it('a program names the virtual host that it is not let into, and what may be the reason', async () => {
  const opened = program(host.url.replace(host.name, 'nowhere'), { service: 'a' }, [paid.on(() => undefined)])
  await expect(opened).rejects.toMatchObject({
    code: 'SLUICE_BROKER_REFUSED',
    message: expect.stringMatching(/user "guest" into the virtual host "nowhere": there is none[^<>]+\(AMQP_URL\)$/),
  })
})

it('a program stops while it waits', async () => {
  const a = await program(url, { service: 'a' }, [paid.on(() => undefined)])
  const emitted = later(a.events.emit(paid, 1))
  const sinceMs = systemClock.monotonicMs()
  await a.worker?.stop()
  if (isLong) expect(systemClock.monotonicMs() - sinceMs).toBeLessThan(5_000)
  void a.close()
  await expect(emitted).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
})

it('a program begins with the second node of a cluster while the first one is away', async () => {
  const { port, pathname } = new URL(host.url)
  const nodes = `amqp://guest:guest@127.0.0.1:${await freePort()},127.0.0.1:${port}${pathname}`
  const a = await program(nodes, { service: 'a' })
  await a.events.emit(paid, 1)
  expect(a.lines.filter((line) => line.includes('no connection'))).toEqual([])
})

it('a program ends with an error where RabbitMQ is there, and refuses', async () => {
  await expect(
    program(host.url.replace('guest:guest', 'guest:wrong'), { service: 'a' }, [paid.on(() => undefined)]),
  ).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
})
