import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Calendar, type CalendarUnit, periodOf } from '../../src/core/calendar.ts'
import { systemClock } from '../../src/core/clock.ts'
import { limit, type LimitOptions } from '../../src/limits/limit.ts'
import type { Published } from '../../src/redis/definition.ts'
import type { Granted } from '../../src/redis/call.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import { findPython } from '../examples/interpreter.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshRedis } from '../servers/redis.ts'
import { until } from '../until.ts'
import { Caller, type Told, type Want } from './caller.ts'
import { decided } from './calls.ts'

let callers: [Caller, Caller]
const { server, client } = await freshRedis()
const limiter = new RedisLimiter(client, { prefix: 'app:', domain: 'crm' })
beforeAll(async () => {
  const python = await findPython('redis')
  callers = [new Caller(python, server.url), new Caller(python, server.url)]
})
beforeEach(async () => {
  await client.send('FLUSHALL', [])
  await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0 })
})
afterAll(async () => {
  for (const one of callers) one.end()
})

// Python knows a definition for 10 s, so each test has a limit of its own.
let names = 0
const publish = async (options: Parameters<typeof limit>[1], version = 1, called = `limit-${names++}`) => {
  const { name, rules, keyed: isKeyed, grantUs } = limit(called, options)
  const published: Published = { name, rules, version, isKeyed, grantUs }
  await limiter.publish(published)
  return published
}
const reserve = async (one: Published, key?: string, want = 1): Promise<Granted> => {
  const buckets = [key === undefined ? one : { ...one, name: `${one.name}:${key}` }]
  const items = [{ want, takes: [{ bucket: 0, units: 1 }] }]
  return decided(await limiter.reserve({ id: randomUUID(), buckets, items }))[0] as Granted
}
const denied = (told: Told): number => {
  expect(told).toMatchObject({ error: 'Denied' })
  return told.wait ?? 0
}

describe('Python and Node on one limit', () => {
  it('see the same room, and the same wait', async () => {
    const [python] = callers
    const one = await publish({ window: '5/h', by: 'customer' })
    expect(await reserve(one, 'acme', 3)).toMatchObject({ granted: 3 })
    const wants: Want[] = [[one.name, 'acme', 2]]
    const { value: grant } = await python.ask('reserve', wants)
    const wait = denied(await python.ask('reserve', wants))
    const { granted, waitUs } = await reserve(one, 'acme')
    expect(granted).toBe(0)
    expect(waitUs / 1e6 - wait).toBeLessThan(0)
    expect(waitUs / 1e6 - wait).toBeGreaterThan(-5)
    // Another key has a bucket of its own.
    expect(await python.ask('reserve', [[one.name, 'bravo', 5]])).toMatchObject({ value: expect.any(String) })
    expect(await reserve(one, 'bravo')).toMatchObject({ granted: 0 })
    // One of two was used: the other is free for all. And one more than granted is owed.
    expect(await python.ask('settle', grant, 1)).toEqual({ value: null })
    expect(await reserve(one, 'acme', 9)).toMatchObject({ granted: 1 })
    const { value: other } = await python.ask('reserve', [[one.name, 'cecil', 1]])
    expect(await python.ask('settle', other, 3, one.name)).toEqual({ value: null })
    expect(await reserve(one, 'cecil', 9)).toMatchObject({ granted: 2 })
    const { value: unused } = await python.ask('reserve', [[one.name, 'dora', 5]])
    expect(await python.ask('give_back', unused)).toEqual({ value: null })
    expect(await reserve(one, 'dora', 9)).toMatchObject({ granted: 5 })
  })

  it('run the very same scripts', async () => {
    const one = await publish({ window: '5/h' })
    await client.send('SCRIPT', ['FLUSH'])
    const before = async () => Number(/number_of_cached_scripts:(\d+)/.exec(String(await client.send('INFO', [])))?.[1])
    await reserve(one)
    decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, holdUs: 1 }] }))
    const known = await before()
    const { value: grant } = await callers[0].ask('reserve', [[one.name]])
    expect(await callers[0].ask('give_back', grant)).toEqual({ value: null })
    expect(await before()).toBe(known)
    // And scripts that Redis has forgotten.
    await client.send('SCRIPT', ['FLUSH'])
    expect(await callers[0].ask('reserve', [[one.name]])).toMatchObject({ value: expect.any(String) })
  })

  it('never exceed it together, in any window, and use all of it', async () => {
    const units = 40
    // A busy machine may stop a process between its reading of the clock and its record of it.
    const one = await publish({ window: `${units}/s`, transit: 300 })
    const wants: Want[] = [[one.name]]
    const seconds = 4
    const endMs = systemClock.monotonicMs() + seconds * 1_000
    const node = async (): Promise<number[]> => {
      const arrivals: number[] = []
      await until(async () => {
        const sentMs = systemClock.monotonicMs()
        const { granted } = await reserve(one)
        const isFresh = systemClock.monotonicMs() - sentMs < one.grantUs / 1_000
        if (granted === 1 && isFresh) arrivals.push(Number(process.hrtime.bigint()))
        return systemClock.monotonicMs() >= endMs
      })
      return arrivals
    }
    const told = await Promise.all([node(), ...callers.map((python) => python.ask('run', wants, seconds))])
    const each = told.map((one) => (Array.isArray(one) ? one : (one.value as number[])))
    for (const arrivals of each) expect(arrivals.length).toBeGreaterThan(0)
    const all = each.flat().sort((a, b) => a - b)
    const shortest = Math.min(...all.slice(units).map((at, i) => at - (all[i] ?? 0)))
    expect(shortest).toBeGreaterThanOrEqual(1e9)
    // The bound is 40 in 1.4 s and a part, so three windows begin within 4 s.
    console.info(`arrivals: ${each.map((one) => one.length).join(', ')}; 41 of them in ${shortest / 1e6} ms at least`)
    expect(all.length).toBeGreaterThan(2 * units)
  })
})

describe('a process in Python', () => {
  it('waits until there is room, and not when room cannot come in time', async () => {
    const [python] = callers
    const one = await publish({ window: '1/s' })
    await reserve(one)
    expect(await python.ask('take', [[one.name]], 30)).toMatchObject({ value: expect.any(String) })
    const decorated = await publish({ window: '1/h' })
    expect(await python.ask('decorated', [[decorated.name]], 21)).toEqual({ value: 42 })
    expect(await reserve(decorated)).toMatchObject({ granted: 0 })
    // It would wait for an hour.
    expect(denied(await python.ask('take', [[decorated.name]], 0.05))).toBeGreaterThan(60)
  })

  it('takes from all limits or from none, and names the one that lacks room', async () => {
    const [python] = callers
    const [wide, narrow] = [await publish({ window: '5/h' }), await publish({ window: '1/h' })]
    const wants: Want[] = [[wide.name], [narrow.name]]
    expect(await python.ask('reserve', wants)).toMatchObject({ value: expect.any(String) })
    expect(await python.ask('reserve', wants)).toMatchObject({
      error: 'Denied',
      text: expect.stringContaining(narrow.name),
    })
    expect(await reserve(wide, undefined, 9)).toMatchObject({ granted: 4 })
  })

  it('gets one grant for a request that it repeats because the reply was lost', async () => {
    const proxy = await startProxy({ port: server.port })
    const python = new Caller(await findPython('redis'), `redis://127.0.0.1:${proxy.port}/0`)
    const one = await publish({ window: '5/h', by: 'customer' })
    expect(await python.ask('reserve', [[one.name, 'other']])).toMatchObject({ value: expect.any(String) })
    const lost = proxy.swallow({ when: `${one.name}:acme`, leave: 'closed' })
    const granted = python.ask('reserve', [[one.name, 'acme', 2]])
    await lost
    expect(await granted).toMatchObject({ value: expect.any(String) })
    expect(await reserve(one, 'acme', 9)).toMatchObject({ granted: 3 })
    python.end()
    await proxy.close()
  })

  it('sends nothing under a grant that is too old, and gives the grant back', async () => {
    const one = await publish({ window: '1/h' })
    expect(await callers[0].ask('nap', [[one.name]], 0.2)).toMatchObject({ error: 'GrantExpired' })
    expect(await reserve(one)).toMatchObject({ granted: 1 })
  })

  it('holds the bucket for the whole fleet when the vendor demands silence', async () => {
    const one = await publish({ window: '5/h' })
    expect(await callers[0].ask('hold', [one.name], 60)).toEqual({ value: null })
    expect((await reserve(one)).waitUs).toBeGreaterThan(50_000_000)
    expect(denied(await callers[1].ask('reserve', [[one.name]]))).toBeGreaterThan(50)
  })

  it('follows a new definition as soon as another process does', async () => {
    const [python] = callers
    const one = await publish({ window: '5/h' })
    expect(await python.ask('reserve', [[one.name]])).toMatchObject({ value: expect.any(String) })
    const two = await publish({ window: '9/h' }, 2, one.name)
    expect(await reserve(two, undefined, 4)).toMatchObject({ granted: 4 })
    expect(await python.ask('reserve', [[one.name, null, 4]])).toMatchObject({ value: expect.any(String) })
    expect(await python.ask('reserve', [[one.name]])).toMatchObject({ error: 'Denied' })
  })

  it('gets nothing while the state is lost, and goes on in the next epoch', async () => {
    const [python] = callers
    const one = await publish({ window: '5/h' })
    expect(await python.ask('reserve', [[one.name]])).toMatchObject({ value: expect.any(String) })
    await client.send('FLUSHALL', [])
    for (const name of [one.name, 'never-heard-of'])
      expect(await python.ask('reserve', [[name]])).toMatchObject({ error: 'StateLost' })
    const waiting = python.ask('take', [[one.name]], 60)
    await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 100_000 })
    await limiter.publish(one)
    expect(await waiting).toMatchObject({ value: expect.any(String) })
  })

  it("is neither let through nor kept from requests by a step of Redis's clock", async () => {
    const [, python] = callers
    const minutes = [
      await publish({ window: '1/min' }),
      await publish({ window: '1/min' }),
      await publish({ window: '1/min' }),
    ]
    expect(await python.ask('reserve', [[minutes[0]?.name]])).toMatchObject({ value: expect.any(String) })
    expect(await python.ask('step', '_bound', 3_600)).toEqual({ value: null })
    for (const one of minutes.slice(1)) {
      expect(await python.ask('reserve', [[one.name]])).toMatchObject({ value: expect.any(String) })
      // Python used its own clock: for Node, which has no such doubt, that grant is an hour old.
      expect(await reserve(one)).toMatchObject({ granted: 1 })
    }
    expect(await python.ask('step', '_bound', -3_600)).toEqual({ value: null })
    expect(await python.ask('step', '_seen', 3_600)).toEqual({ value: null })
    const late = await publish({ window: '1/min' })
    expect(await python.ask('reserve', [[late.name]])).toMatchObject({ value: expect.any(String) })
  })

  it('refuses invalid arguments', async () => {
    const [python] = callers
    const [keyed, plain] = [await publish({ window: '5/h', by: 'a' }), await publish({ window: '5/h' })]
    const places = await publish({ window: '5/h', concurrency: 3 })
    const refused: [Want, RegExp][] = [
      [['nobody'], /no limit nobody is published/],
      [[keyed.name], /needs key/],
      [[plain.name, 'acme'], /has no key/],
      [[plain.name, null, 6], /more than limit .* ever grants/],
      [[plain.name, null, 0.5], /not a whole number/],
      [[places.name], /concurrency, which only jobs/],
    ]
    for (const [want, text] of refused)
      expect(await python.ask('reserve', [want])).toMatchObject({
        error: 'LimitError',
        text: expect.stringMatching(text),
      })
  })
})

describe('quotas in Python', () => {
  it('count in the periods of the zone, as in Node', async () => {
    const options: LimitOptions = { quota: '5/day', zone: 'America/New_York' }
    const one = await publish(options)
    expect(await callers[0].ask('reserve', [[one.name, null, 2]])).toMatchObject({ value: expect.any(String) })
    expect(await reserve(one, undefined, 2)).toMatchObject({ granted: 2 })
    expect(await callers[1].ask('reserve', [[one.name]])).toMatchObject({ value: expect.any(String) })
    const wait = denied(await callers[0].ask('reserve', [[one.name]]))
    expect(wait - (await reserve(one)).waitUs / 1e6).toBeLessThan(5)
    // Redis needs the calendar around another time than Python's clock shows.
    expect(await callers[1].ask('step', '_bound', 40 * 86_400)).toEqual({ value: null })
    const other = await publish({ quota: '5/day', zone: 'Asia/Tokyo' })
    expect(await callers[1].ask('reserve', [[other.name]])).toMatchObject({ value: expect.any(String) })
    expect(await callers[1].ask('step', '_bound', -40 * 86_400)).toEqual({ value: null })
  })

  it('have the same boundaries as in Node, in any zone at any time', async () => {
    const zones = [
      'UTC',
      'Europe/Berlin',
      'America/New_York',
      'Australia/Lord_Howe',
      'America/Nuuk',
      'Asia/Kolkata',
      'Pacific/Apia',
    ]
    const units: CalendarUnit[] = ['minute', 'hour', 'day', 'week', 'month']
    const second = fc.integer({ min: 0, max: 2_000_000_000 })
    const any = fc.record({
      unit: fc.constantFrom(...units),
      zone: fc.constantFrom(...zones),
      anchorUs: fc.option(second.map((s) => s * 1e6)),
      atUs: second.map((s) => s * 1e6 + 123_456),
    })
    const cases = fc.sample(any, 2_000)
    const asked = cases.map(({ unit, zone, anchorUs, atUs }) => [
      { unit, zone, ...(anchorUs === null ? {} : { anchor: anchorUs }) },
      atUs,
    ])
    const { value, text } = await callers[0].ask('boundaries', asked)
    expect(text).toBeUndefined()
    const wrong = cases.filter((one, i) => String(around(one, one.atUs)) !== String((value as number[][])[i]))
    expect(wrong).toEqual([])
  })

  it('are refused when their zone is not known there', async () => {
    const told = await callers[0].ask('boundaries', [[{ unit: 'day', zone: 'Mars/Olympus' }, 0]])
    expect(told).toMatchObject({ error: 'LimitError', text: expect.stringContaining('tzdata') })
  })
})

/** The numbers of a definition, as in src/redis/definition.ts. */
function around(calendar: Calendar, atUs: number): number[] {
  const { startUs, endUs } = periodOf(calendar, atUs)
  const list = [periodOf(calendar, startUs - 1).startUs, startUs, endUs]
  for (let more = 0; more < 2; more++) list.push(periodOf(calendar, list.at(-1) ?? endUs).endUs)
  return list
}
