/** What an emitter over RabbitMQ learns of events that no service gets, and of one that it emits again. */
import { expect, it } from 'vitest'
import { UnroutedEvents } from '../../src/bus/unrouted.ts'
import { StoreError } from '../../src/core/errors.ts'
import { silent } from '../../src/core/log.ts'
import { event, on } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program } from './stage.ts'

const paid = event('orders.paid')
const stray = event('orders.payd')

it('an emitter is warned once of each type that no service gets, at the latest when it closes', async () => {
  const { url } = await freshBroker()
  const got: unknown[] = []
  await program(url, { service: 'a' }, [on('orders.paid', (n) => void got.push(n))])
  const emitter = await program(url)
  // In this order, the look at the first type finds that something has no queue.
  for (const one of [stray, paid, stray]) await emitter.events.emit(one, 1)
  await emitter.close()
  const warned = emitter.lines.filter((line) => line.includes('no service is known'))
  expect(warned).toEqual([expect.stringContaining('gets events orders.payd')])
  await until(() => got.length === 1)
})

it('an emitter publishes an event once for each key and type', async () => {
  const { url } = await freshBroker()
  const got: unknown[] = []
  const handlers = [paid.on((n) => void got.push(n)), stray.on((n) => void got.push(n))]
  const a = await program(url, { service: 'a' }, handlers)
  const key = { idempotencyKey: '😀'.repeat(400) }
  const first = await a.events.emit(paid, 1, key)
  expect(await a.events.emit(paid, 2, key)).toBe(first)
  expect(await a.transaction((tx) => a.events.emit(paid, 3, { ...key, tx }))).toBe(first)
  await a.events.emit(stray, 4, key)
  await until(() => got.length === 2)
  await a.close()
  expect(new Set(got)).toEqual(new Set([1, 4]))
  expect(got).toHaveLength(2)
})

it('an emitter looks at a type again after a look that has failed', async () => {
  let failures = 1
  const use = async () => {
    if (failures-- > 0) throw new StoreError('SLUICE_BROKER_UNREACHABLE', 'it is away')
    return { messageCount: 0 }
  }
  const unrouted = new UnroutedEvents(silent)
  const sent = () => unrouted.recordSent('orders.paid', { use } as never)
  await sent()
  expect(sent()).toBeInstanceOf(Promise)
  await until(() => failures < 0)
  expect(sent()).toBeUndefined()
})
