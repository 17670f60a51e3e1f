/** The example of a service in Python, beside one in Node. */
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { openControl } from '../../src/celery/index.ts'
import { event } from '../../src/index.ts'
import { program } from '../bus/stage.ts'
import { startCelery } from '../celery/worker.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { findPython } from './interpreter.ts'

const place = fileURLToPath(new URL('../../examples/celery', import.meta.url))
const paid = event('orders.order.paid')
const shipped = event('orders.order.shipped')

it('a service in Python handles and emits events, tries them again by itself, and has its archive read and replayed from Node', async ({
  onTestFinished,
}) => {
  const { url } = await freshBroker()
  const env = { AMQP_URL: url, RETRIES: '1' }
  const flags = ['-Q', 'stock.orders.order.paid', '-c', '2']
  const python = startCelery({ place, python: await findPython('celery'), app: 'events', name: 'stock', env, flags })
  onTestFinished(() => python.kill())
  const control = await openControl({ broker: url })
  await python.ready(control)
  await control.close()

  const got: unknown[] = []
  const note = (data: unknown) => void got.push(data)
  const events = { on: 'rabbitmq', celery: true } as const
  const node = await program(url, { service: 'node', events }, [paid.on(note), shipped.on(note)])
  await node.events.emit(paid, { order: 7, later: 'a field that it does not know' })
  const id = await node.events.emit(paid, { order: -1 })
  const archive = node.events.archive('stock')
  const archived = async () => (await archive.count().catch(() => 0)) === 1
  await until(archived, 'it has failed for good')
  const given = { id, type: 'orders.order.paid', reason: 'exhausted', attempt: 2, event: { data: { order: -1 } } }
  expect(await archive.list()).toMatchObject([given])
  expect(await archive.replay({})).toBe(1)
  await until(archived, 'it has failed again')
  expect(await archive.list()).toMatchObject([{ ...given, attempt: 2 }])
  // Neither a retry nor the replay has come to the other service.
  expect(got).toHaveLength(3)
  expect(got).toEqual(
    expect.arrayContaining([{ order: 7, later: 'a field that it does not know' }, { order: 7 }, { order: -1 }]),
  )
})
