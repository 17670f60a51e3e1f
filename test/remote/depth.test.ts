/** What shows how much waits in the queue of stock workers: the alarm, and `sluice status`. */
import { expect, it } from 'vitest'
import { openBroker } from '../../src/amqp/broker.ts'
import { openProducer } from '../../src/celery/index.ts'
import { fleet } from '../../src/cli/fleet.ts'
import { silent as log } from '../../src/core/log.ts'
import { sqlOn } from '../../src/db/store.ts'
import { task } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { remoteTask } from '../../src/tasks/remote.ts'
import { direct } from '../direct/stage.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

it('the alarm is raised, and status names it, when more wait in the queue than is allowed, whoever has sent them', async ({
  onTestFinished,
}) => {
  const [{ url: store }, host] = await Promise.all([freshDatabase(), freshBroker()])
  const { url } = host
  const broker = await openBroker({ url, name: 'test', log })
  onTestFinished(() => broker.close())
  await broker.declare({ queues: [{ name: 'mail' }, { name: 'here' }] })
  for (let n = 0; n < 5; n++) await broker.publish({ routingKey: 'mail', body: Buffer.from('{}') })
  const sluice = await Sluice.open({ store, amqp: url, log, alarms: { depth: 5 } })
  onTestFinished(() => sluice.close())
  const raised: unknown[] = []
  sluice.on('alarm', ({ alarm, subject, isRaised, value }) => raised.push({ alarm, subject, isRaised, value }))
  await sluice.dispatch([remoteTask('send', { queue: 'mail', slots: 1 }), task('here', { queue: 'here', run() {} })])
  await until(() => raised.length > 0, 'the alarm is raised')
  expect(raised).toEqual([{ alarm: 'depth', subject: 'mail', isRaised: true, value: 5 }])
  const at = { sql: sqlOn(sluice.db, 'sluice'), schema: 'sluice', isEmbedded: false }
  const text = (await fleet(at, url))?.text
  expect(text).toContain('0 messages in their queues, 5 messages in "mail" (no worker answers)')
  // The task of that queue runs in Node.
  expect(text).not.toContain('"here"')
  // A user who may look at queues, and may declare none.
  const [user, vhost, by] = ['watcher', host.name, 'test'].map((text) => `<<"${text}">>`)
  await host.evaluate(
    `rabbit_auth_backend_internal:add_user(${user}, <<"secret">>, ${by}), ` +
      `rabbit_auth_backend_internal:set_permissions(${user}, ${vhost}, <<"^$">>, <<"^$">>, <<".*">>, ${by})`,
  )
  const found = await fleet(at, url.replace('guest:guest', 'watcher:secret'))
  expect(found?.text).toContain('5 messages in "mail" (what workers hold is unknown)')
})

it('status shows how many messages of a queue workers have unacknowledged, whoever has sent them', async (context) => {
  const [{ url: store }, { url }] = await Promise.all([freshDatabase(), freshBroker()])
  const sluice = await Sluice.open({ store, amqp: url, log })
  context.onTestFinished(() => sluice.close())
  await sluice.dispatch([remoteTask('send', { queue: 'mail', slots: 1 })])
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const held = task('held', { run: () => released })
  const worker = await direct(context, [held], { celery: ['mail'], celeryBroker: url, concurrency: 2, log })
  const producer = await openProducer({ broker: url, queue: 'mail', results: 'none' })
  context.onTestFinished(() => producer.close())
  for (let n = 0; n < 5; n++) await producer.delay('held')
  await until(() => worker.running === 2, 'it has two in hand')
  const at = { sql: sqlOn(sluice.db, 'sluice'), schema: 'sluice', isEmbedded: false }
  const shown = async (text: string) => (await fleet(at, url))?.text.includes(text) === true
  await until(() => shown('3 messages in "mail" (2 unacknowledged at workers)'), 'they are shown')
  release()
  await until(() => shown('0 messages in "mail" (0 unacknowledged at workers)'), 'none is left')
})
