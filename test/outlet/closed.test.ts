/** A Sluice that is closed while a process of a fleet connects to its broker, and a process of a fleet that cannot start. */
import { expect, it } from 'vitest'
import { z } from 'zod'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { later, until } from '../until.ts'
import { note } from './processes.ts'

it.for(['dispatch', 'execute'] as const)(
  'a closed Sluice keeps no connection to the broker: %s',
  async (role, { onTestFinished }) => {
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
  },
)

it('a closed Sluice keeps no connection to the broker: a worker whose tasks have one name', async ({
  onTestFinished,
}) => {
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

/** A task whose first attempt lasts until it is stopped, or until `end`. */
function createSlow() {
  const at = { runs: [] as boolean[], end: () => {} }
  const slow = task('slow', {
    input: z.string(),
    run: (name, { attempt, ambiguous }) => {
      at.runs.push(ambiguous)
      if (name === 'slow' && attempt === 1) return new Promise<void>((done) => (at.end = done))
      return undefined
    },
  })
  return Object.assign(at, { slow })
}

it('a dispatcher that waits for its last jobs leaves the slots of its workers to another one', async ({
  onTestFinished,
}) => {
  const [{ url: store }, { url: amqp }] = [await freshDatabase(), await freshBroker()]
  const sluice = await Sluice.open({ store, amqp })
  onTestFinished(() => sluice.close())
  const at = createSlow()
  const first = await sluice.dispatch([at.slow], { grace: '1h' })
  await sluice.execute([at.slow])
  await sluice.send(at.slow, 'slow')
  await until(() => at.runs.length === 1, 'the first has begun')
  const second = await sluice.dispatch([at.slow])
  const stopping = first.stop()
  await until(() => second.slots > 0, 'the worker offers its slots to the other one')
  await sluice.send(at.slow, 'quick')
  await until(() => at.runs.length === 2, 'the second has begun, too')
  at.end()
  await stopping
  await until(async () => (await sluice.jobs.status()).done === 2, 'both are done')
  expect(at.runs).toEqual([false, false])
})

it('a dispatcher ends though RabbitMQ is away, and what it has in hand runs again, marked', async ({
  onTestFinished,
}) => {
  const [{ url: store }, broker] = [await freshDatabase(), await freshBroker()]
  const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
  const [sluice, others] = [
    await Sluice.open({ store, amqp: proxy.url(broker.url) }),
    await Sluice.open({ store, amqp: broker.url }),
  ]
  const at = createSlow()
  onTestFinished(async () => {
    at.end()
    await Promise.all([sluice.close(), others.close()])
    await proxy.close()
  })
  const dispatcher = await sluice.dispatch([at.slow])
  await others.execute([at.slow])
  await sluice.send(at.slow, 'slow')
  await until(() => at.runs.length === 1, 'it has begun')
  await proxy.refuse()
  proxy.reset()
  await dispatcher.abort()
  await others.dispatch([at.slow])
  await until(async () => (await others.jobs.status()).done === 1, 'it is done')
  expect(at.runs).toEqual([false, true])
})
