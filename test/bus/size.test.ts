/** Sizes of events over RabbitMQ, where an event may be the input of a job. */
import { expect, it } from 'vitest'
import { event } from '../../src/index.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program } from './stage.ts'

const paid = event('orders.paid')

it('the largest and deepest payload reaches handlers with limits, and goes through a transaction', async () => {
  const { url } = await freshBroker()
  const got: unknown[] = []
  const a = await program(url, { service: 'a' }, [paid.on((data) => void got.push(data), { concurrency: 5 })])
  const text = '"'.repeat(131_070)
  const deep = Array.from({ length: 32 }).reduce<unknown>((inner) => [inner], 1)
  const all = [text, deep]
  for (const data of all) await a.events.emit(paid, data)
  await a.transaction(async (tx) => {
    for (const data of all) await a.events.emit(paid, data, { tx })
  })
  await until(() => got.length === 4)
  expect(got).toEqual(expect.arrayContaining(all))
  expect(await a.events.archive().count()).toBe(0)
  for (const data of [`${text}""`, [deep]]) await expect(a.events.emit(paid, data)).rejects.toThrow('payload of')
})
