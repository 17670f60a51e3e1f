/** Fleets over a real RabbitMQ: dispatchers and workers in processes of their own, and what kills them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isLong } from '../long.ts'
import { type Broker, freshBroker, type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { startProxy } from '../servers/proxy.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { call, checkOnce, createFleet, note } from './processes.ts'

let broker: Broker
beforeAll(async () => void (broker = await freshBroker()))

// Five run at a time, so that the longest stand first.
describe.concurrent('a fleet', () => {
  it('records what runs when its dispatcher is killed by another one, and runs nothing twice', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const first = await fleet.start('dispatch')
    await fleet.start('execute')
    await fleet.sluice.sendMany(note, [{ gate: fleet.gate }, { gate: fleet.gate }])
    await until(() => fleet.runs.length === 2, 'both began')
    await fleet.start('dispatch')
    first.kill('SIGKILL')
    await fleet.sluice.sendMany(note, copies(20))
    await fleet.areDone(20)
    // Longer than a worker may be silent before its jobs go back.
    await fleet.pass(13)
    expect(await fleet.count('job where claim is not null')).toBe(2)
    fleet.open()
    await fleet.areDone(22)
    expect(fleet.runs.length).toBe(22)
    checkOnce(fleet.runs)
  })

  it('records what runs when its dispatcher and then the heir of that are killed', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const first = await fleet.start('dispatch')
    await fleet.start('execute')
    const held = await fleet.sluice.send(note, { gate: fleet.gate })
    await until(() => fleet.runs.length === 1, 'it began')
    for (let last = first, n = 0; n < 2; n++) {
      const heir = await fleet.start('dispatch')
      last.kill('SIGKILL')
      const next = await fleet.sluice.send(note, {})
      await until(async () => (await fleet.stateOf(next)) === 'done', 'the heir has the worker')
      last = heir
    }
    // Longer than a worker may be silent before its jobs go back.
    await fleet.pass(13)
    expect(await fleet.stateOf(held)).toBe('running')
    fleet.open()
    await fleet.areDone(3)
    expect(fleet.runs.length).toBe(3)
    checkOnce(fleet.runs)
  })

  it('runs the jobs of a killed worker again, marked as in doubt, and no others', async (context) => {
    const fleet = await createFleet(broker.url, context)
    await fleet.start('dispatch')
    const first = await fleet.start('execute', 3)
    await fleet.sluice.sendMany(note, [{ gate: fleet.gate }, { gate: fleet.gate }])
    await until(() => fleet.runs.length === 2, 'both began')
    await fleet.start('execute', 3)
    first.kill('SIGKILL')
    await fleet.sluice.sendMany(note, copies(20))
    await fleet.areDone(22)
    checkOnce(fleet.runs)
    const held = fleet.runs.slice(0, 2).map(({ id }) => id)
    expect(fleet.runs.filter(({ id, ambiguous }) => ambiguous && held.includes(id)).length).toBe(2)
    // What was on its way to it is in doubt, too, but did not begin.
    expect(new Set(fleet.runs.map(({ id, pid }) => `${id} ${pid}`)).size).toBe(24)
  })

  it('returns uncalled and unmarked what a killed dispatcher had claimed and no worker has begun', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const proxy = await startProxy({ port: Number(new URL(broker.url).port) })
    context.onTestFinished(() => proxy.close())
    const first = await fleet.start('dispatch', 4, proxy.url(broker.url))
    await fleet.start('execute')
    const held = await fleet.sluice.send(note, { gate: fleet.gate })
    await until(() => fleet.runs.length === 1, 'it began')
    await until(async () => (await fleet.stateOf(held)) === 'running', 'it is known to run')
    await fleet.start('dispatch')
    proxy.halfOpen()
    const lost = await fleet.sluice.send(note, {})
    await fleet.sluice.sendMany(note, copies(2))
    await until(async () => (await fleet.count('job where claim is not null')) === 4, 'they are claimed')
    expect(await fleet.sluice.jobs.status()).toMatchObject({ running: 1, dispatched: 3 })
    expect(await fleet.stateOf(lost)).toBe('dispatched')
    expect((await fleet.sluice.list({ state: 'dispatched' })).length).toBe(3)
    expect(await fleet.sluice.why(lost)).toMatchObject({ state: 'dispatched', reasons: [] })
    first.kill('SIGKILL')
    // Though a job of the same dispatcher goes on.
    await fleet.areDone(3)
    expect(fleet.runs.filter(({ attempt, ambiguous }) => attempt > 1 || ambiguous)).toEqual([])
    fleet.open()
    await fleet.areDone(4)
    expect(fleet.runs.length).toBe(4)
  })

  it('ends what has expired, with and without a worker', async (context) => {
    const fleet = await createFleet(broker.url, context)
    const send = () => fleet.sluice.sendMany(note, copies(3), { maxWait: 1 })
    await send()
    await fleet.start('dispatch')
    await until(async () => (await fleet.count('failed')) === 3, 'the first have failed')
    await fleet.start('execute')
    await send()
    await until(async () => (await fleet.count('job')) === 0, 'the others have ended')
    expect(fleet.runs.length + (await fleet.count('failed'))).toBe(6)
  })

  it('executes each job once, on all of its workers, and leaves nothing in hand', async (context) => {
    const fleet = await createFleet(broker.url, context)
    await fleet.start('dispatch')
    await Promise.all([fleet.start('execute'), fleet.start('execute')])
    await fleet.sluice.sendMany(note, copies(300))
    await fleet.sluice.sendMany(
      call,
      Array.from({ length: 100 }, (_, n) => ({ key: `k${n % 2}` })),
    )
    await fleet.areDone(400)
    expect(fleet.runs.length).toBe(400)
    checkOnce(fleet.runs)
    expect(new Set(fleet.runs.map(({ pid }) => pid)).size).toBe(2)
    expect((await fleet.sluice.verify()).exceeded).toEqual([])
    await until(async () => (await fleet.count('claim')) === 0, 'no claim is left')
  })
})

// One after the other, because both kill it.
describe('a fleet with a broker of its own', () => {
  let server: RabbitServer
  beforeAll(async () => void (server = await startRabbit()))
  afterAll(() => server.close())

  it('goes on when the broker is killed and comes back, and loses nothing', async (context) => {
    const fleet = await createFleet((await server.fresh()).url, context)
    await fleet.start('dispatch')
    await fleet.start('execute')
    await fleet.sluice.sendMany(note, [{ gate: fleet.gate }, ...copies(50)])
    await until(() => fleet.runs.length > 20, 'it runs')
    await server.kill()
    await fleet.sluice.sendMany(note, copies(50))
    fleet.open()
    await server.start()
    await fleet.areDone(101)
    checkOnce(fleet.runs)
    expect(fleet.runs.filter(({ attempt }) => attempt > 1)).toEqual([])
  })

  it('goes on after a memory alarm of the broker, and loses nothing', async (context) => {
    const fleet = await createFleet((await server.fresh()).url, context)
    await fleet.start('dispatch')
    await fleet.start('execute', 8)
    await fleet.sluice.sendMany(note, copies(20))
    await fleet.areDone(20)
    let sent = 20
    const goOn = async (what: string) => {
      const limitMs = isLong ? 10_000 : 60_000
      await until(async () => (await fleet.count('done')) > sent - 20, `it goes on after ${what}`, limitMs)
      await fleet.areDone(sent)
    }
    await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000})')
    sent += (await fleet.sluice.sendMany(note, copies(20))).length
    await fleet.pass(3)
    // Publishers are blocked: what was on its way may have arrived, and nothing more is claimed.
    expect(await fleet.count('job where claim is not null')).toBeLessThanOrEqual(8)
    await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 4000000000})')
    await goOn('the alarm')
    // In the short form the test before has restarted it.
    if (isLong) {
      await server.kill()
      sent += (await fleet.sluice.sendMany(note, copies(20))).length
      await server.start()
      await goOn('the restart')
    }
    checkOnce(fleet.runs)
    expect(await fleet.count('failed')).toBe(0)
  })
})
