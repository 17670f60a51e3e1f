/** A Sluice that is closed while a process of a fleet connects to its broker, and a process of a fleet that cannot start. */
import { expect, it } from 'vitest'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { note } from './processes.ts'

it.for(['dispatch', 'execute'] as const)('keeps no connection to the broker: %s', async (role, { onTestFinished }) => {
  const [{ url: store }, broker] = [await freshDatabase(), await freshBroker()]
  const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
  onTestFinished(() => proxy.close())
  const sluice = await Sluice.open({ store, amqp: proxy.url(broker.url) })
  proxy.halfOpen()
  const starting = later<unknown>(sluice[role]([note]))
  await until(() => proxy.connections > 0)
  const closing = sluice.close()
  await proxy.pass()
  await expect(starting).rejects.toMatchObject({ code: 'SLUICE_CLOSED' })
  await closing
  await until(() => proxy.connections === 0)
})

it('keeps no connection to the broker: a worker whose tasks have one name', async ({ onTestFinished }) => {
  const [{ url: store }, broker] = [await freshDatabase(), await freshBroker()]
  const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
  const sluice = await Sluice.open({ store, amqp: proxy.url(broker.url) })
  onTestFinished(async () => {
    await sluice.close()
    await proxy.close()
  })
  await expect(sluice.execute([note, { ...note }])).rejects.toMatchObject({ code: 'SLUICE_BAD_TASK' })
  await until(() => proxy.connections === 0)
})
