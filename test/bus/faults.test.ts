/** Workers and connections that are lost while they have events. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { beforeEach, expect, it, onTestFinished } from 'vitest'
import { event, type EventHandler, Sluice } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf } from './stage.ts'
import { brief } from '../v8.ts'

const dying = fileURLToPath(new URL('./dying.mjs', import.meta.url))
const slow = event('slow')
let host: Broker
let url: string
beforeEach(async () => {
  host = await freshBroker()
  ;({ url } = host)
})

it('a service counts a lost worker as an attempt from the second loss on, so that an event that kills its workers ends in the archive', async () => {
  const { url: store } = await freshDatabase()
  const emitter = await Sluice.open({ store, amqp: url, service: 'a', events: 'rabbitmq' })
  onTestFinished(() => emitter.close())
  const start = () => spawn(process.execPath, [...brief, dying, store, url], { stdio: 'ignore' })
  let child = start()
  for (let deaths = 0; deaths < 3; deaths++) {
    if (deaths === 0) {
      await until(async () => (await queuesOf(host)).has('sluice.events:a:fatal'))
      await emitter.events.emit(event('fatal'), 'x')
    }
    await once(child, 'exit')
    child = start()
  }
  await until(async () => (await emitter.events.archive().count()) === 1)
  child.kill('SIGKILL')
  expect(await emitter.events.archive().list()).toMatchObject([
    { type: 'fatal', handler: null, reason: 'crashed', attempt: 2, event: { data: 'x' } },
  ])
})

it('a service calls a handler once that outlives its connection, and acknowledges its message on the next one', async () => {
  const got: unknown[] = []
  let finish = () => {}
  const done = new Promise<void>((resolve) => (finish = resolve))
  const a = await program(url, { service: 'a' }, [
    slow.on(async (n, { redelivered }) => {
      got.push([n, redelivered])
      if (n === 1) await done
    }),
  ])
  await a.events.emit(slow, 1)
  await until(() => got.length === 1)
  await host.evaluate(
    `[rabbit_networking:close_connection(P, "test") || P <- rabbit_networking:connections(), proplists:get_value(vhost, rabbit_networking:connection_info(P, [vhost])) =:= <<"${host.name}">>]`,
  )
  await until(() => a.lines.some((line) => line.includes('no connection to RabbitMQ')))
  await a.events.emit(slow, 2)
  await until(() => got.length === 2)
  finish()
  await until(async () => [...(await queuesOf(host)).values()].every((count) => count === 0))
  expect(got).toEqual([
    [1, false],
    [2, false],
  ])
})

it('a service finishes what it has when it stops, and hands over what runs for too long', async () => {
  const got: unknown[] = []
  const handler = (name: string): EventHandler =>
    slow.on(
      async (_, { signal, redelivered }) => {
        got.push([name, redelivered])
        if (name === 'first') await new Promise((resolve) => signal.addEventListener('abort', resolve))
      },
      { name: 'slow' },
    )
  const a = await program(url, { service: 'a' }, [handler('first')])
  await a.events.emit(slow, 1)
  await until(() => got.length === 1)
  await a.worker?.abort()
  await program(url, { service: 'a' }, [handler('second')])
  await until(() => got.length === 2)
  expect(got).toEqual([
    ['first', false],
    ['second', true],
  ])
})

it('a service puts an event off that its process has no handler for, until one has it', async () => {
  const got: unknown[] = []
  const both = (name: string) => slow.on((n) => void got.push([name, n]), { name, group: 'all' })
  const a = await program(url, { service: 'a' }, [both('new')])
  const old = event('other').on((n) => void got.push(['old', n]), { name: 'old', group: 'all' })
  await a.worker?.stop()
  const b = await program(url, { service: 'a' }, [old])
  await a.events.emit(slow, 1)
  await until(() => b.lines.some((line) => line.includes('has no handler of events slow')))
  await program(url, { service: 'a' }, [both('new')])
  await b.worker?.stop()
  await until(() => got.length === 1)
  expect(got).toEqual([['new', 1]])
})
