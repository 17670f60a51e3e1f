/** A dispatcher that is killed on each step of a job's way to its worker and back, and another one that takes over. */
import { beforeAll, describe, expect, it } from 'vitest'
import { holdEnd } from '../claim/engine-parts.ts'
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
  ] as const)('%s loses nothing, and nothing runs twice', async ([, point], context) => {
    const fleet = await createFleet(broker.url, context)
    const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
    context.onTestFinished(() => proxy.close())
    await fleet.start('execute')
    // Its limit allows one: if it has not begun, it must get its unit back.
    const id = await fleet.sluice.send(rare, { gate: fleet.gate })
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

  it('when it knows of an end, before it has recorded that, runs nothing twice', async (context) => {
    const fleet = await createFleet(broker.url, context)
    await fleet.start('execute')
    const first = await fleet.start('dispatch')
    const id = await fleet.sluice.send(note, { gate: fleet.gate })
    await until(() => fleet.runs.length === 1, 'it has begun')
    const end = await holdEnd(fleet.sluice, id)
    fleet.open()
    await end.tried()
    first.kill('SIGKILL')
    await until(() => first.signalCode === 'SIGKILL', 'it is killed')
    await end.free()
    await fleet.start('dispatch')
    await until(async () => (await fleet.stateOf(id)) === 'done', 'it is done')
    expect(fleet.runs).toMatchObject([{ attempt: 1, ambiguous: false }])
    expect(await fleet.sluice.jobs.get(id)).toMatchObject({ attempt: 1, ambiguous: false, crashes: 0 })
  })
})
