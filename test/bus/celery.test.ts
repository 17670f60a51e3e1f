/** Events between a service in Node and one in Python, by the names and messages of Celery-AMQP-Events. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openControl, openProducer, type Producer } from '../../src/celery/index.ts'
import { event, fail, on } from '../../src/index.ts'
import { overlap } from '../../src/events/names.ts'
import { findPython } from '../examples/interpreter.ts'
import { type CeleryWorker, startCelery } from '../celery/worker.ts'
import { type Broker, freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'
import { program, queuesOf } from './stage.ts'

const events = { on: 'rabbitmq', celery: true } as const
const even = event('demo.number.even')
const seen = event('demo.number.seen')
let host: Broker
let python: CeleryWorker
let producer: Producer

beforeAll(async () => {
  host = await freshBroker()
  const env = { BROKER: host.url }
  const flags = ['-c', '2', '-Q', 'py.demo.number.even,py.calls']
  python = startCelery({ python: await findPython('celery'), app: 'service', name: 'py', env, flags })
  const control = await openControl({ broker: host.url })
  await python.ready(control)
  await control.close()
  producer = await openProducer({ broker: host.url, queue: 'py.calls', results: 'none' })
})
afterAll(async () => {
  await python.kill()
  await producer.close()
})

/** Emits an event from Python. */
const emitThere = (name: string, data: object) => producer.delay('emit', [name], { kwargs: { ...data } })

it('events go both ways, each once to each service', async () => {
  const got: unknown[] = []
  const told: unknown[] = []
  const note = (list: unknown[]) => (data: unknown) => void list.push(data)
  const a = await program(host.url, { service: 'a', events }, [even.on(note(got)), seen.on(note(told))])
  await program(host.url, { service: 'b', events }, [on('demo.#', note(got))])
  const ids = [await a.events.emit(even, { number: 2, by: 'node' }), await a.events.emit(even, { number: 4 })]
  await until(() => told.length === 2 && got.length === 6, 'both services have them')
  expect(told).toEqual(
    expect.arrayContaining([
      { number: 2, id: ids[0], more: { by: 'node' } },
      { number: 4, id: ids[1], more: {} },
    ]),
  )
  await emitThere('demo.number.even', { number: 6 })
  await until(() => told.length === 3 && got.length === 9, 'what Python emits arrives, too')
  expect(got.filter((data) => (data as { number: number }).number === 6)).toHaveLength(3)
})

it('events are tried again in each service by itself, with the steps of Celery-AMQP-Events', async () => {
  const attempts: number[] = []
  const told: unknown[] = []
  const failing = even.on((_, { attempt }) => {
    attempts.push(attempt)
    if (attempt < 3) throw new Error('not yet')
  })
  const a = await program(host.url, { service: 'c', events }, [failing, seen.on((data) => void told.push(data))])
  await a.events.emit(even, { number: 13 })
  await until(() => attempts.length === 3 && told.length === 1, 'both services have handled it')
  expect(attempts).toEqual([1, 2, 3])
  const names = [...(await queuesOf(host)).keys()].filter((name) => /^c[.:]/.test(name))
  expect(names.toSorted()).toEqual(
    expect.arrayContaining(['c.demo.number.even', 'c.demo.number.seen', 'c:archived', 'c:retry']),
  )
  expect(names.filter((name) => !/^c(\.demo\.number\.(even|seen)|:archived|:retry(\.\d)?)$/.test(name))).toEqual([])
})

it('events that Python sends itself again stay in its service if it names its queue, and else go to each service', async () => {
  const [got, told]: number[][] = [[], []]
  const note = (list: number[]) => (data: unknown) => void list.push((data as { number: number }).number)
  const a = await program(host.url, { service: 'g', events }, [even.on(note(got!)), seen.on(note(told!))])
  for (const number of [17, 19]) await a.events.emit(even, { number })
  await until(() => told!.length === 2 && got!.length === 3, 'both services have them')
  const sorted = (list: number[]) => list.toSorted((a, b) => a - b)
  expect([sorted(got!), sorted(told!)]).toEqual([
    [17, 19, 19],
    [17, 19],
  ])
})

it('events are shared by replicas of one service in both languages', async () => {
  const [here, all]: unknown[][] = [[], []]
  const other = await program(host.url, { service: 'd', events }, [seen.on((data) => void all!.push(data))])
  const replica = await program(host.url, { service: 'py', events }, [even.on((data) => void here!.push(data))])
  expect(replica.lines).toEqual([])
  for (let number = 100; number < 140; number++) await other.events.emit(even, { number })
  await until(() => all!.length + here!.length === 40, 'all are handled')
  expect(here!.length).toBeGreaterThan(0)
  expect(all!.length).toBeGreaterThan(0)
})

it('events are kept in the archive of that name when they have failed for good, and can be replayed', async () => {
  let isBroken = true
  const got: unknown[] = []
  const odd = event('demo.number.odd')
  const handler = odd.on((data) => {
    if (isBroken) throw fail('no')
    got.push(data)
  })
  const e = await program(host.url, { service: 'e', events }, [handler])
  const id = await e.events.emit(odd, { number: 3 })
  await until(async () => (await e.events.archive().count()) === 1, 'it is archived')
  expect(await e.events.archive().list()).toMatchObject([{ id, type: 'demo.number.odd', reason: 'refused' }])
  isBroken = false
  expect(await e.events.archive().replay({})).toBe(1)
  await until(() => got.length === 1, 'it is handled')
  expect(got).toEqual([{ number: 3 }])
})

it('events have one queue in each service, so patterns that overlap are refused', async () => {
  const both = [even.on(() => undefined, { name: 'one' }), on('demo.#', () => undefined, { name: 'two' })]
  await expect(program(host.url, { service: 'f', events }, both)).rejects.toThrow('no other handler in another queue')
  const cases = [
    ['a.b', 'a.b', true],
    ['a.*', 'a.b', true],
    ['a.*', 'a.b.c', false],
    ['a.#', 'a.b.c', true],
    ['#', 'x', true],
    ['a.*.c', 'a.b.*', true],
    ['a.*', 'b.*', false],
    ['a.b', 'a.b.c', false],
    ['a.b.#', 'a.b', true],
  ] as const
  for (const [one, other, is] of cases)
    expect([one, other, overlap(one, other), overlap(other, one)]).toEqual([one, other, is, is])
})
