/** The alarm for what waits in the queue of stock workers. */
import { expect, it } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { silent as log } from '../../src/core/log.ts'
import { Sluice } from '../../src/sluice.ts'
import { remoteTask } from '../../src/tasks/remote.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

it('the alarm is raised when more wait in the queue than is allowed, whoever has sent them', async ({
  onTestFinished,
}) => {
  const [{ url: store }, { url }] = await Promise.all([freshDatabase(), freshBroker()])
  const broker = await openBroker({ url, name: 'test', log })
  onTestFinished(() => broker.close())
  await broker.declare({ queues: [{ name: 'mail' }] })
  for (let n = 0; n < 5; n++) await broker.publish({ routingKey: 'mail', body: Buffer.from('{}') })
  const sluice = await Sluice.open({ store, amqp: url, log, alarms: { depth: 5 } })
  onTestFinished(() => sluice.close())
  const raised: unknown[] = []
  sluice.on('alarm', ({ alarm, subject, isRaised, value }) => raised.push({ alarm, subject, isRaised, value }))
  await sluice.dispatch([remoteTask('send', { queue: 'mail', slots: 1 })])
  await until(() => raised.length > 0, 'the alarm is raised')
  expect(raised).toEqual([{ alarm: 'depth', subject: 'mail', isRaised: true, value: 5 }])
})
