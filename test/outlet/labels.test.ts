/** Limits by label over a broker: a dispatcher takes the grant before it is known which of its workers makes the call. */
import { expect, it } from 'vitest'
import { label, limit } from '../../src/index.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'

it('each address makes the calls that its own limit allows, and the others wait', async ({ onTestFinished }) => {
  const [{ url: store }, { url: amqp }] = await Promise.all([freshDatabase(), freshBroker()])
  const byIp = limit('by-ip', { window: '3/h', by: label('ip') })
  const calls: string[] = []
  const from = (ip: string) => task('call', { limits: [byIp], run: () => void calls.push(ip) })
  const open = async () => {
    const sluice = await Sluice.open({ store, amqp })
    onTestFinished(() => sluice.close())
    return sluice
  }
  const ips = ['192.0.2.1', '192.0.2.2']
  for (const ip of ips) {
    const sluice = await open()
    await sluice.dispatch([from(ip)], { labels: { ip } })
    for (let n = 0; n < 2; n++) await sluice.execute([from(ip)], { labels: { ip }, concurrency: 4 })
  }
  const sluice = await open()
  await sluice.sendMany(from(''), copies(10))
  await until(async () => (await sluice.jobs.status()).done === 6, 'all are done for which there is room')
  await until(async () => (await sluice.jobs.status()).waiting === 4, 'the others wait')
  expect(calls.toSorted()).toEqual(ips.flatMap((ip) => [ip, ip, ip]))
  expect((await sluice.verify()).exceeded).toEqual([])
})
