/** How fast events go to RabbitMQ, beside its own client, and how fast many of them are declared. Ratios, of one run. */
import { connect } from 'amqplib'
import { expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../src/core/clock.ts'
import { CeleryNames } from '../../src/bus/celery-names.ts'
import { sourcesOf } from '../../src/bus/source.ts'
import { groupsOf } from '../../src/events/groups.ts'
import { event, type Work } from '../../src/index.ts'
import { isLong } from '../long.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { program, queuesOf } from './stage.ts'

const rounds = isLong ? 5 : 1
const count = isLong ? 20_000 : 1_000
const payload = { order: 7, text: 'x'.repeat(100) }

async function perSecond(body: () => Promise<unknown>): Promise<number> {
  const startMs = systemClock.monotonicMs()
  await body()
  return (count * 1_000) / (systemClock.monotonicMs() - startMs)
}

it('a program emits as fast as most of what the client alone publishes and confirms of the same messages', async () => {
  const { url } = await freshBroker()
  const number = event('measured.number')
  const sluice = await program(url)
  await sluice.events.emit(number, payload)
  const model = await connect(url)
  onTestFinished(() => model.close())
  const channel = await model.createConfirmChannel()
  await channel.bindQueue((await channel.assertQueue('measured')).queue, 'sluice.events', 'measured.*')
  await sluice.events.emit(number, payload)
  const sample = await channel.get('measured', { noAck: true })
  if (sample === false) throw new Error('the event has not arrived')
  const { contentType, messageId, type } = sample.properties as unknown as Record<
    'contentType' | 'messageId' | 'type',
    string
  >
  const same = { contentType, messageId, type, persistent: true, mandatory: true }
  const raw = async () => {
    for (let n = 0; n < count; n++) {
      const body = Buffer.from(sample.content.toString())
      const isFull = !channel.publish('sluice.events', 'measured.number', body, same)
      if (isFull) await new Promise((resolve) => channel.once('drain', resolve))
    }
    await channel.waitForConfirms()
  }
  const many = () => sluice.events.emitMany(number, Array<typeof payload>(count).fill(payload))
  const single = async () => {
    let left = count
    const caller = async () => {
      while (left-- > 0) await sluice.events.emit(number, payload)
    }
    await Promise.all(Array.from({ length: 200 }, caller))
  }
  const best = { raw: 0, many: 0, single: 0 }
  const ways = { raw, many, single }
  for (let round = 0; round < rounds; round++) {
    for (const way of ['raw', 'many', 'single'] as const) {
      best[way] = Math.max(best[way], await perSecond(ways[way]))
      // A queue that grows gets slower.
      await channel.purgeQueue('measured')
    }
  }
  console.log(
    `raw ${Math.round(best.raw)}/s, emitMany ${(best.many / best.raw).toFixed(2)} of it, emit by 200 callers ${(best.single / best.raw).toFixed(2)}`,
  )
  if (!isLong) return
  expect(best.many / best.raw).toBeGreaterThan(0.6)
  expect(best.single / best.raw).toBeGreaterThan(0.6)
})

it('a program makes the groups and queues of five thousand handlers in time that grows with their number', () => {
  const handlers = Array.from({ length: 5_000 }, (_, n) => event(`many.type.n${n}`).on(() => undefined))
  const startMs = systemClock.monotonicMs()
  const groups = groupsOf(handlers, 'many')
  const sources = sourcesOf(groups, new CeleryNames('many', { isQuorum: false, archive: undefined, isCelery: true }))
  expect(groups).toHaveLength(1)
  expect(sources).toHaveLength(5_000)
  // Comparing each with each takes half a minute.
  expect(systemClock.monotonicMs() - startMs).toBeLessThan(5_000)
})

/** Binds the types to a queue for each service, as amqplib alone does it: a connection for each, and so many channels. */
async function bindAlone(url: string, services: number, types: readonly string[]): Promise<number> {
  const channels = 8
  const models = await Promise.all(Array.from({ length: services }, () => connect(url)))
  onTestFinished(() => Promise.all(models.map((model) => model.close())).then(() => undefined))
  const startMs = systemClock.monotonicMs()
  const bind = async (model: (typeof models)[number], service: number) => {
    const queue = `alone.${service}`
    const each = await Promise.all(Array.from({ length: channels }, () => model.createChannel()))
    await each[0]?.assertExchange('alone', 'topic')
    await each[0]?.assertQueue(queue)
    const binds = types.map(async (type, at) => each[at % channels]?.bindQueue(queue, 'alone', type))
    await Promise.all(binds)
  }
  await Promise.all(models.map(bind))
  return systemClock.monotonicMs() - startMs
}

it('a program declares a thousand types in each of fifty services, beside its client alone', async () => {
  const [services, count] = isLong ? [50, 1_000] : [3, 100]
  const host = await freshBroker()
  const types = Array.from({ length: count }, (_, n) => `declared.type.n${n}`)
  const work = (): Work[] => types.map((type) => event(type).on(() => undefined))
  const aloneMs = await bindAlone(host.url, services, types)
  const own = await freshBroker()
  const startAll = async () => {
    const programs = await Promise.all(
      Array.from({ length: services }, (_, n) => program(own.url, { service: `s${n}` })),
    )
    const startMs = systemClock.monotonicMs()
    await Promise.all(programs.map((sluice) => sluice.work(work())))
    const tookMs = systemClock.monotonicMs() - startMs
    // Those of both starts would need more connections than the database has.
    await Promise.all(programs.map((sluice) => sluice.close()))
    return tookMs
  }
  const firstMs = await startAll()
  const queues = await queuesOf(own)
  expect(queues.size).toBeLessThanOrEqual(services * (1 + 0 + 2))
  const secondMs = await startAll()
  console.log(
    `${services} x ${count} types: first start ${Math.round(firstMs)} ms, second ${Math.round(secondMs)} ms, amqplib alone ${Math.round(aloneMs)} ms`,
  )
})
