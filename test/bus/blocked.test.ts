/** A RabbitMQ that takes no messages, because it lacks memory. */
import { expect, it } from 'vitest'
import { event } from '../../src/index.ts'
import { startRabbit } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { program } from './stage.ts'

const paid = event('orders.paid')

it('does not hold up the start of a service in a process that has emitted, which goes on when it takes messages again', async ({
  onTestFinished,
}) => {
  const server = await startRabbit()
  onTestFinished(() => server.close())
  const got: unknown[] = []
  const handler = paid.on((n) => void got.push(n))
  const before = await program(server.url, { service: 'a' }, [handler])
  await before.worker?.stop()
  const a = await program(server.url, { service: 'a' })
  await a.events.emit(paid, 0)
  await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000})')
  await until(async () => (await server.evaluate('rabbit_alarm:get_alarms()')).includes('memory'), 'it lacks memory')
  const emitted: Promise<unknown>[] = []
  // The server blocks a connection that publishes.
  await until(async () => {
    const one = later(a.events.emit(paid, 1 + emitted.length))
    emitted.push(one)
    return Promise.race([one.then(() => false), server.evaluate('1').then(() => true)])
  }, 'the server takes nothing more')
  await a.work([handler])
  await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 4000000000})')
  await Promise.all(emitted)
  await until(() => got.length === emitted.length + 1, 'all is handled')
  expect(new Set(got).size).toBe(got.length)
})
