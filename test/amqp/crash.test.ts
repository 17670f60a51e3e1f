/** A RabbitMQ that is killed, that runs out of memory, and that speaks TLS. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Incoming } from '../../src/amqp/broker.ts'
import { systemClock } from '../../src/core/clock.ts'
import { isLong } from '../long.ts'
import { type RabbitServer, startRabbit } from '../servers/rabbitmq.ts'
import { selfSigned } from '../servers/redis.ts'
import { later, until } from '../until.ts'
import { collect, open, to } from './stage.ts'

let server: RabbitServer
let cert: string
beforeAll(async () => {
  const tls = await selfSigned()
  cert = tls.cert
  server = await startRabbit({ tls })
})
afterAll(() => server.close())

it('a RabbitMQ is spoken to over TLS, by those who trust its certificate', async () => {
  await expect(open(server.tlsUrl)).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
  const broker = await open(`${server.tlsUrl}?ca=${encodeURIComponent(cert)}`)
  await broker.declare({ queues: [{ name: 'secret' }] })
  await broker.publish(to('secret', '1'))
})

it('a RabbitMQ refuses a wrong password at once, with the cause', async () => {
  await expect(open(server.url.replace(':guest@', ':wrong@'))).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
  await expect(open(server.url.replace('%2f', 'none'))).rejects.toMatchObject({ code: 'SLUICE_BROKER_REFUSED' })
  await expect(open('amqp://127.0.0.1:1')).rejects.toMatchObject({ code: 'SLUICE_BROKER_UNREACHABLE' })
})

// Points of the list of conformance with Celery (scripts/conformance.mjs) begin with their number.
it('43: blocks publishers at its memory alarm; then messages wait, or are rejected, and none is lost', async () => {
  const broker = await open(server.url)
  const consuming = await open(server.url)
  await broker.declare({ queues: [{ name: 'alarm' }] })
  const { texts } = await collect(consuming, 'alarm', 1_000)
  await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 1000})')
  // The server blocks a connection when it publishes, and the alarm may come after the first message.
  let count = 0
  let first: Promise<unknown> | undefined
  await until(() => {
    if (broker.isUp && first === undefined) {
      count++
      first = later(broker.publish(to('alarm', 'first')).finally(() => (first = undefined)))
    }
    return !broker.isUp
  })
  const sends = isLong ? 120_000 : 30_000
  const body = 'x'.repeat(500)
  const beforeBytes = usedBytes()
  const outcomes: unknown[] = []
  const sent: Promise<unknown>[] = []
  for (let i = 0; i < sends; i++) {
    const one = broker.publish(to('alarm', body)).then(() => true, codeOf)
    if (i < 4_999) sent.push(one)
    else outcomes.push(await one)
  }
  expect(() => broker.checkThere()).toThrow(/memory/)
  expect(usedBytes() - beforeBytes).toBeLessThan(20 * 2 ** 20)
  await server.evaluate('vm_memory_monitor:set_vm_memory_high_watermark({absolute, 4000000000})')
  await first
  expect(new Set(await Promise.all(sent))).toEqual(new Set([true]))
  expect(new Set(outcomes)).toEqual(new Set(['SLUICE_BROKER_FULL']))
  await until(() => texts.length === count + 4_999)
})

it('45: subscribes again when the server closes a channel that acknowledged too late, and other consumers go on', async () => {
  await server.evaluate('application:set_env(rabbit, consumer_timeout, 500)')
  await server.evaluate('application:set_env(rabbit, channel_tick_interval, 300)')
  const broker = await open(server.url)
  await broker.declare({ queues: [{ name: 'late' }, { name: 'other' }] })
  const held: Incoming[] = []
  await broker.consume('late', { prefetch: 1 }, (one) => {
    held.push(one)
    if (one.isRedelivered) one.ack()
  })
  const { texts, consumer } = await collect(broker, 'other')
  await broker.publish(to('late', '1'))
  await until(() => held.length === 2)
  expect(held[0]?.ack()).toBe(false)
  expect(consumer.isAttached).toBe(true)
  await broker.publish(to('other', '1'))
  await until(() => texts.length === 1)
  await server.evaluate('application:set_env(rabbit, consumer_timeout, 1800000)')
})

it('42: loses nothing that it confirmed, when it is killed in mid-flow and started again', async () => {
  const [broker, consuming] = [await open(server.url), await open(server.url)]
  await broker.declare({ queues: [{ name: 'flow' }] })
  const { texts, consumer } = await collect(consuming, 'flow', 100)
  const confirmed: string[] = []
  let isOver = false
  let count = 0
  const flow = async () => {
    while (!isOver) {
      const text = String(count++)
      await broker.publish(to('flow', text, { withinMs: 300_000 }))
      confirmed.push(text)
    }
  }
  const flows = later(Promise.all(Array.from({ length: 50 }, flow)))
  for (let round = 0; round < (isLong ? 5 : 1); round++) {
    const goal = confirmed.length + 2_000
    await until(() => confirmed.length > goal)
    await server.kill()
    await until(() => !broker.isUp && !consumer.isAttached)
    await server.start()
    const startMs = systemClock.monotonicMs()
    await until(() => broker.isUp && consumer.isAttached)
    if (isLong) expect(systemClock.monotonicMs() - startMs).toBeLessThan(10_000)
  }
  const goal = confirmed.length + 1_000
  await until(() => confirmed.length > goal)
  isOver = true
  await flows
  await until(() => texts.length >= confirmed.length)
  await until(() => {
    const seen = new Set(texts)
    return confirmed.every((text) => seen.has(text))
  })
})

/** Bytes in use, buffers included, after a collection of garbage. */
function usedBytes(): number {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}

const codeOf = (error: { code: string }) => error.code
