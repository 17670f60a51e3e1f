/** What happens to fleets around their processes: no workers at all, queues deleted, connections dead, and limits in Redis. */
import { beforeAll, describe, expect, it } from 'vitest'
import { isLong } from '../long.ts'
import { startProxy } from '../servers/proxy.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { startRedis } from '../servers/redis.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { call, checkOnce, checkRate, createFleet, note } from './processes.ts'

const calls = (n: number) => copies(n, { key: 'k' })

let broker: Broker
beforeAll(async () => void (broker = await freshBroker()))

describe.concurrent('a fleet', () => {
  it('makes no burst of the jobs that became due while all of its workers were away', async (context) => {
    const fleet = await createFleet(broker.url, context)
    await fleet.start('dispatch')
    const first = await fleet.start('execute', 20)
    await fleet.sluice.sendMany(call, calls(300))
    await until(() => fleet.runs.length > 100, 'it runs')
    first.kill('SIGTERM')
    await until(() => first.exitCode !== null, 'it has left')
    await fleet.sluice.sendMany(call, calls(300))
    await fleet.pass(isLong ? 60 : 4)
    const before = fleet.runs.length
    expect(await fleet.count('done')).toBe(before)
    expect(await fleet.count('job where claim is not null')).toBe(0)
    await Promise.all([fleet.start('execute', 20), fleet.start('execute', 20)])
    await fleet.areDone(600)
    checkRate(fleet.runs)
    await fleet.checkDeadlines()
    expect(fleet.runs.filter(({ attempt, ambiguous }) => attempt > 1 || ambiguous)).toEqual([])
    expect((await fleet.sluice.verify()).exceeded).toEqual([])
  })

  it('keeps its limits in Redis, though its dispatcher is killed', async (context) => {
    const redis = await startRedis()
    context.onTestFinished(() => redis.close())
    const fleet = await createFleet(broker.url, context, redis.url)
    const first = await fleet.start('dispatch')
    await Promise.all([fleet.start('dispatch'), fleet.start('execute', 20), fleet.start('execute', 20)])
    await fleet.sluice.sendMany(call, calls(600))
    await until(() => fleet.runs.length > 100, 'it runs')
    first.kill('SIGKILL')
    await fleet.areDone(600)
    checkRate(fleet.runs)
    checkOnce(fleet.runs)
    expect((await fleet.sluice.verify()).exceeded).toEqual([])
  })

  it('goes on when the queues of its processes are deleted', async (context) => {
    const host = await freshBroker()
    const fleet = await createFleet(host.url, context)
    await fleet.start('dispatch')
    await fleet.start('execute')
    await fleet.sluice.sendMany(note, [{ gate: fleet.gate }, ...copies(20)])
    await fleet.areDone(20)
    const queues = `rabbit_amqqueue:list(<<"${host.name}">>)`
    const gone = await host.evaluate(`[rabbit_amqqueue:delete(Q, false, false, <<"test">>) || Q <- ${queues}], ok`)
    expect(gone).toContain('ok')
    fleet.open()
    await fleet.sluice.sendMany(note, copies(20))
    await fleet.areDone(41)
    checkOnce(fleet.runs)
  })

  it('records what ran on a worker whose connections went dead', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
    context.onTestFinished(() => proxy.close())
    await fleet.start('dispatch')
    await fleet.start('execute', 4, proxy.url(broker.url))
    await fleet.sluice.sendMany(note, [{ gate: fleet.gate }, ...copies(20)])
    await fleet.areDone(20)
    proxy.strand()
    fleet.open()
    await fleet.sluice.sendMany(note, copies(20))
    await fleet.areDone(41)
    expect(await fleet.count('failed')).toBe(0)
    checkOnce(fleet.runs)
  })

  it('loses nothing while a dispatcher and a worker are killed every 2 s', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const start = () => Promise.all([fleet.start('dispatch'), fleet.start('execute', 8)])
    let [now, sent] = [await start(), 0]
    for (let round = 0; round < (isLong ? 30 : 3); round++) {
      sent += (await fleet.sluice.sendMany(note, copies(50))).length
      const next = await start()
      await fleet.pass(2)
      for (const child of now) child.kill('SIGKILL')
      now = next
    }
    const last = await fleet.sluice.send(note, {})
    sent++
    await until(async () => (await fleet.stateOf(last)) === 'done', 'it is back', isLong ? 10_000 : 60_000)
    await fleet.areDone(sent)
    expect(await fleet.count('failed')).toBe(0)
    checkOnce(fleet.runs)
  })
})
