/** A dispatcher that is killed on each step of a job's way to its worker and back, and another one that takes over. */
import { beforeAll, describe, expect, it } from 'vitest'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { startProxy } from '../servers/proxy.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { createFleet, note, rare } from './processes.ts'

let broker: Broker
beforeAll(async () => void (broker = await freshBroker()))

describe.concurrent('a dispatcher that is killed', () => {
  it.for([
    ['when it has claimed a job', 'claim.received'],
    ['when it has sent the job, before RabbitMQ has confirmed that', ''],
    ['when RabbitMQ has confirmed the job', 'outlet.confirmed'],
    ['when it was told of the end, before it has recorded that', 'attempt.ended'],
  ] as const)('%s loses nothing, and nothing runs twice', async ([, point], context) => {
    const fleet = await createFleet(broker.url, context)
    const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
    context.onTestFinished(() => proxy.close())
    await fleet.start('execute')
    // Its limit allows one: if it has not begun, it must get its unit back.
    const id = await fleet.sluice.send(rare, { gate: fleet.gate })
    if (point === 'attempt.ended') fleet.open()
    const sent = proxy.swallow({ when: '"type":"grants"' })
    const first = await fleet.start('dispatch', 4, point === '' ? proxy.url(broker.url) : broker.url, 1, point)
    if (point === '') {
      await sent
      first.kill('SIGKILL')
    }
    await until(() => first.signalCode === 'SIGKILL', 'it is killed')
    expect(await fleet.count('job where claim is not null')).toBe(1)
    await fleet.start('dispatch')
    await fleet.sluice.sendMany(note, copies(5))
    await until(async () => (await fleet.count(`done where task = 'note'`)) === 5, 'the heir has the worker')
    fleet.open()
    await until(async () => (await fleet.stateOf(id)) === 'done', 'it is done, too')
    expect(fleet.runs.length).toBe(6)
    expect(fleet.runs.filter(({ attempt, ambiguous }) => attempt > 1 || ambiguous)).toEqual([])
    expect((await fleet.sluice.verify()).isProved).toBe(true)
    await until(async () => (await fleet.count('claim')) === 0, 'no claim is left')
  })
})
