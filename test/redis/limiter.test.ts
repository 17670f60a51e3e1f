import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { beforeEach, describe, expect, it } from 'vitest'
import type { LimitOptions } from '../../src/limits/limit.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import { toJson, type RedisBucket } from '../../src/redis/definition.ts'
import type { Granted } from '../../src/redis/call.ts'
import { RedisLimiter, scriptOf } from '../../src/redis/limiter.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshRedis } from '../servers/redis.ts'
import { bucket, decided } from './calls.ts'
import { connectRedis } from '../servers/resp.ts'

const { server, client } = await freshRedis()
const limiter = new RedisLimiter(client)
beforeEach(async () => {
  await client.send('FLUSHALL', [])
  await limiter.begin({ owner: 'sluice', epoch: randomUUID(), closeUs: 0 })
})

const reserve = async (buckets: RedisBucket[], want = 1, id: string = randomUUID(), by = limiter): Promise<Granted> => {
  const items = [{ want, takes: buckets.map((_, i) => ({ bucket: i, units: 1 })) }]
  const [one] = decided(await by.reserve({ id, buckets, items }))
  if (one === undefined) throw new Error('no answer')
  return one
}

const fields = (name: string): Promise<unknown> => client.send('HKEYS', [limiter.keyOf(name)])

describe('a call for grants', () => {
  it('grants as many of each item as fit in all its buckets, and names the bucket that has room last', async () => {
    const buckets = [
      bucket('wide', { window: '10/min' }),
      bucket('narrow', { window: '3/h' }),
      bucket('places', { concurrency: 5 }),
    ]
    const all = (want: number, numbers: number[], units = 1) => ({
      want,
      takes: numbers.map((i) => ({ bucket: i, units })),
    })
    const items = [all(2, [0, 1]), all(5, [0, 1]), all(9, [0]), all(4, [2], 2), all(4, [2], 0), all(0, [1])]
    const answer = await limiter.reserve({ id: randomUUID(), buckets, items })
    expect(decided(answer)).toMatchObject([
      { granted: 2, waitUs: 0, lacking: undefined },
      { granted: 1, waitUs: expect.any(Number), lacking: 1 },
      { granted: 7, waitUs: expect.any(Number), lacking: 0 },
      { granted: 4, waitUs: 0, lacking: undefined },
      { granted: 1, waitUs: Number.MAX_SAFE_INTEGER - (answer.isDecided ? answer.nowUs : 0), lacking: 2 },
      { granted: 0, waitUs: 0, lacking: undefined },
    ])
  })

  it('takes from no bucket when one of them has no room', async () => {
    const [open, full] = [bucket('open', { window: '2/min' }), bucket('full', { window: '1/min' })]
    expect(await reserve([full])).toMatchObject({ granted: 1 })
    expect(await reserve([open, full])).toMatchObject({ granted: 0, lacking: 1 })
    expect(await reserve([open], 5)).toMatchObject({ granted: 2 })
  })

  it('gets the same reply under the same id, whether something was granted or nothing', async () => {
    const one = bucket('one', { concurrency: 1 })
    const [granted, denied] = [randomUUID(), randomUUID()]
    const first = await reserve([one], 1, granted)
    const second = await reserve([one], 1, denied)
    decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts: [{ bucket: 0, ended: 1 }] }))
    expect(await reserve([one], 1, granted)).toEqual(first)
    expect(await reserve([one], 1, denied)).toEqual(second)
    expect([first.granted, second.granted]).toEqual([1, 0])
    expect(await reserve([one])).toMatchObject({ granted: 1 })
  })

  it('never goes by a later time than the upper bound of the caller', async () => {
    const one = bucket('one', { window: '5/min' })
    const [time] = (await client.send('TIME', [])) as string[]
    const capUs = (Number(time) - 3_600) * 1e6 + 1
    const answer = await limiter.reserve({ id: randomUUID(), buckets: [one], items: [], capUs })
    expect(answer).toMatchObject({ isDecided: true, nowUs: capUs })
  })

  it('is not decided by an outdated definition, and is decided on rebuilt state under a new one', async () => {
    const old = bucket('one', { window: '5/min' })
    await reserve([old], 3)
    expect(await reserve([bucket('one', { window: '4/min' }, 2)], 9)).toMatchObject({ granted: 1 })
    const items = [{ want: 1, takes: [{ bucket: 0, units: 1 }] }]
    expect(await limiter.reserve({ id: randomUUID(), buckets: [old], items })).toEqual({
      isDecided: false,
      why: 'superseded',
      bucket: 0,
      version: 2,
    })
  })
})

describe('the settlement of grants', () => {
  it("after a change starts from the old definition's state, if that is valid, where not all grants are remembered", async () => {
    const each = { window: '2000/h', level: { rate: '2000/h', burst: 2000 } } as const
    const made = (window: LimitOptions, rate: LimitOptions, version: number) =>
      [bucket('parts', window, version), bucket('level', rate, version)] as const
    const [parts, level] = made({ window: each.window }, each.level, 1)
    await Promise.all(Array.from({ length: 1_100 }, () => reserve([parts, level])))
    const [more, faster] = made({ window: '3000/h' }, { rate: '3000/h', burst: 2000 }, 2)
    expect(await reserve([more], 3_000)).toMatchObject({ granted: 1_900 })
    const { granted } = await reserve([faster], 3_000)
    // A unit drains in 1.8 s.
    expect(granted).toBeGreaterThanOrEqual(900)
    expect(granted).toBeLessThan(1_000)
    // Less than was granted under the old definition, because the debt by the new one is unknown.
    expect(await reserve([bucket('level', { rate: '10/h', burst: 10 }, 3)], 1)).toMatchObject({ granted: 0 })
    expect(await reserve([bucket('parts', { window: '3000/2h' }, 3)], 1)).toMatchObject({ granted: 0 })
  })

  it('refunds unused units once, and no more than were granted', async () => {
    const one = bucket('one', { window: '5/min' })
    const [grant, id] = [randomUUID(), randomUUID()]
    await reserve([one], 5, grant)
    const acts = [{ bucket: 0, grant, more: -2 }]
    for (let again = 0; again < 3; again++)
      expect(decided(await limiter.settle({ id, buckets: [one], acts }))).toEqual([-2])
    expect(await reserve([one], 9)).toMatchObject({ granted: 2 })
    const rest = { bucket: 0, grant, more: -5 }
    expect(decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts: [rest, rest] }))).toEqual([-3, 0])
    expect(
      decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts: [{ ...rest, grant: 'nobody' }] })),
    ).toEqual([0])
  })

  it('refunds a wholly unused grant once, places too', async () => {
    const buckets = [bucket('flow', { window: '5/min' }), bucket('place', { concurrency: 3 })]
    const [grant, other] = [randomUUID(), randomUUID()]
    await reserve(buckets, 2, grant)
    await reserve(buckets, 1, other)
    const acts = [0, 1].map((at) => ({ bucket: at, grant, isUnused: true as const }))
    const unused = () => limiter.settle({ id: randomUUID(), buckets, acts })
    expect(decided(await unused())).toEqual([-2, -2])
    expect(decided(await unused())).toEqual([0, 0])
    expect(await reserve(buckets, 9)).toMatchObject({ granted: 2, lacking: 1 })
  })

  it('frees places by their grant, however much was granted since, and none twice', async () => {
    const place = bucket('place', { concurrency: 5_000 })
    const grant = randomUUID()
    await reserve([place], 3, grant)
    await Promise.all(Array.from({ length: 1_100 }, () => reserve([place])))
    expect(await fields('place')).toContain(`p${grant}`)
    const ended = async (places: number) => {
      return decided(
        await limiter.settle({ id: randomUUID(), buckets: [place], acts: [{ bucket: 0, grant, ended: places }] }),
      )
    }
    expect([await ended(2), await ended(2), await ended(2)]).toEqual([[2], [1], [0]])
    expect(await fields('place')).not.toContain(`p${grant}`)
    // When places were not counted for a while, earlier grants hold none.
    await reserve([place], 1, `${grant}2`)
    const acts = [{ bucket: 0, grant: `${grant}2`, ended: 1 }]
    const buckets = [{ ...place, version: 3, countedFrom: 3 }]
    await reserve(buckets, 1)
    expect(decided(await limiter.settle({ id: randomUUID(), buckets, acts }))).toEqual([0])
    expect(await reserve(buckets, 9_999)).toMatchObject({ granted: 4_999 })
  })

  it('charges usage beyond the grant, holds buckets for the whole fleet, and frees places', async () => {
    const one = bucket('one', { rate: '100/min', burst: 10 })
    const place = bucket('place', { concurrency: 1 })
    const grant = randomUUID()
    await reserve([one, place], 1, grant)
    const acts = [
      { bucket: 0, grant, more: 11 },
      { bucket: 1, ended: 3 },
      { bucket: 1, holdUs: 60_000_000 },
    ]
    const answer = await limiter.settle({ id: randomUUID(), buckets: [one, place], acts })
    expect(decided(answer)).toEqual([11, 1, (answer.isDecided ? answer.nowUs : 0) + 60_000_000])
    const { waitUs } = await reserve([one])
    // Two units more than the bucket holds, and the one that is wanted: 600 ms each.
    expect(waitUs).toBeGreaterThan(1_200_000)
    expect(waitUs).toBeLessThanOrEqual(1_800_000)
    expect(await reserve([place])).toMatchObject({ granted: 0, lacking: 0 })
  })

  it('counts the units of a request that is charged once more from now on, but not in quotas', async () => {
    const one = bucket('one', { rate: '100/min', burst: 10, window: '20/min', quota: '10/day' })
    await reserve([one], 8)
    const acts = [{ bucket: 0, more: 2 }]
    expect(decided(await limiter.settle({ id: randomUUID(), buckets: [one], acts }))).toEqual([2])
    const { granted, waitUs } = await reserve([one])
    expect(granted).toBe(0)
    // It waits for a unit of the rate, not for the next day.
    expect(waitUs).toBeLessThanOrEqual(600_000)
    // Under a changed definition, too.
    const windowed = bucket('one', { window: '20/min', quota: '12/day' }, 2)
    expect(await reserve([windowed], 20)).toMatchObject({ granted: 4 })
    const window = bucket('one', { window: '20/min' }, 3)
    expect(await reserve([window], 20)).toMatchObject({ granted: 6 })
  })
})

it('the example call in the docs works', async () => {
  const docs = readFileSync(new URL('../../docs/redis-protocol.md', import.meta.url), 'utf8')
  const { keys, argument } = JSON.parse(/```json\n([^]*?)```/.exec(docs)?.[1] ?? '') as {
    keys: string[]
    argument: object
  }
  const args = [scriptOf('reserve'), String(keys.length), ...keys, JSON.stringify(argument)]
  expect(await client.send('EVAL', args)).toEqual(['decided', '0b6e', expect.any(Number), expect.any(Number), 1, 0, 0])
  const buckets = [bucket('mail', { rate: '100/min' }), bucket('crm:acme', { window: '5/min' })]
  const items = [{ want: 99, takes: [{ bucket: 1, units: 1 }] }]
  expect(await limiter.reserve({ id: 'a', buckets, items })).toMatchObject({ results: [{ granted: 4 }] })
  expect(buckets.map((one) => toJson(one, []))).toMatchObject((argument as { buckets: object[] }).buckets)
})

describe('state in Redis', () => {
  it('keeps numbers whole, and only numbers of grants in the names of fields', async () => {
    const one = bucket('one', { rate: '999983/day' })
    await reserve([one], 3, 'g')
    expect(((await fields('one')) as string[]).toSorted()).toEqual(['e1', 'gg', 's'])
    expect(await client.send('HGET', [limiter.keyOf('one'), 'gg'])).toBe('1')
    const [seconds, micros] = ((await client.send('TIME', [])) as string[]).map(Number)
    const now = await limiter.reserve({ id: randomUUID(), buckets: [one], items: [] })
    expect(now.isDecided && now.nowUs - ((seconds ?? 0) * 1e6 + (micros ?? 0))).toBeLessThan(60e6)
  })

  it('expires with its keys when no process needs them, and never while something runs', async () => {
    const buckets = [bucket('flow', { window: '5/min' }), bucket('place', { concurrency: 2 })]
    const ttl = async (name: string) => Number(await client.send('PTTL', [limiter.keyOf(name)]))
    await reserve(buckets)
    const spanMs = (buckets[0]?.rules[0]?.spanUs ?? 0) / 1_000
    expect(await ttl('flow')).toBeGreaterThan(spanMs)
    expect(await ttl('flow')).toBeLessThan(spanMs + 120_000)
    expect(await ttl('place')).toBe(-1)
    decided(await limiter.settle({ id: randomUUID(), buckets, acts: [{ bucket: 1, ended: 1 }] }))
    expect(await ttl('place')).toBeGreaterThan(0)
    const answers = (await client.send('KEYS', ['*:a:*'])) as string[]
    for (const key of answers) expect(Number(await client.send('PTTL', [key]))).toBeGreaterThan(0)
  })

  it('remembers a thousand grants of a bucket, and a new definition that looks back longer waits', async () => {
    const open: LimitOptions = { window: '5000/min' }
    const first = randomUUID()
    await reserve([bucket('one', open)], 1, first)
    await Promise.all(Array.from({ length: 1_100 }, () => reserve([bucket('one', open)])))
    const left = ((await fields('one')) as string[]).filter((name) => name.startsWith('g'))
    expect(left.length).toBeGreaterThanOrEqual(1_000)
    expect(left.length).toBeLessThan(1_100)
    // For each grant two, its state, and that other programs call.
    expect(await fields('one')).toHaveLength(2 * left.length + 2)
    const back = [{ bucket: 0, grant: first, more: -1 }]
    expect(decided(await limiter.settle({ id: randomUUID(), buckets: [bucket('one', open)], acts: back }))).toEqual([0])
    const changed = bucket('one', { window: '9000/2min' }, 2)
    const denied = await reserve([changed])
    expect(denied).toMatchObject({ granted: 0 })
    expect(denied.waitUs).toBeGreaterThan(50_000_000)
    expect(denied.waitUs).toBeLessThanOrEqual(changed.rules[0]?.spanUs ?? 0)
  })

  it('does not include the scripts, which are loaded again when Redis has lost them', async () => {
    await reserve([bucket('one', { window: '5/min' })])
    await client.send('SCRIPT', ['FLUSH'])
    expect(await reserve([bucket('one', { window: '5/min' })], 9)).toMatchObject({ granted: 4 })
  })
})

describe('the connection to Redis', () => {
  it('carries out a call once whose reply was lost and which was sent again', async () => {
    const one = bucket('one', { window: '5/min' })
    const proxy = await startProxy({ port: server.port })
    const through = await connectRedis(proxy.port)
    const id = randomUUID()
    const lost = proxy.swallow({ when: id, leave: 'closed' })
    await expect(reserve([one], 3, id, new RedisLimiter(through))).rejects.toThrow(/lost/)
    await lost
    expect(await reserve([one], 3, id)).toMatchObject({ granted: 3 })
    expect(await reserve([one], 9)).toMatchObject({ granted: 2 })
    await proxy.close()
  })

  it('does not carry out a call that arrives when its caller has given it up', async () => {
    const one = bucket('one', { window: '5/min' })
    const proxy = await startProxy({ port: server.port })
    const through = await connectRedis(proxy.port)
    const by = new RedisLimiter(through, { timeoutMs: 50 })
    await reserve([one], 1, randomUUID(), by)
    proxy.halfOpen()
    await expect(reserve([one], 2, randomUUID(), by)).rejects.toMatchObject({ code: 'SLUICE_REDIS_SILENT' })
    await proxy.pass()
    // Replies come in order: once this one is here, the other call has been handled.
    await through.send('PING', [])
    expect(await reserve([one], 9)).toMatchObject({ granted: 4 })
    // A call that may be repeated is repeated.
    expect(await reserve([one], 1, randomUUID(), by)).toMatchObject({ granted: 0 })
    through.close()
    await proxy.close()
  })

  it('carries out no call later than its time allows, from the first one on', async () => {
    const sent: string[][] = []
    const by = new RedisLimiter({
      send: (command, args) => (sent.push([command, ...args]), client.send(command, args)),
    })
    const items = [{ want: 1, takes: [] }]
    const call = { id: randomUUID(), buckets: [], items, withinMs: 700 }
    const [seconds, micros] = ((await client.send('TIME', [])) as string[]).map(Number)
    decided(await by.reserve(call))
    expect(sent.map(([command]) => command)).toEqual(['TIME', 'EVALSHA', ...(sent.length > 2 ? ['EVAL'] : [])])
    const { until } = JSON.parse(sent[1]?.at(-1) ?? '') as { until: number }
    const leftMs = (until - (seconds ?? 0) * 1e6 - (micros ?? 0)) / 1_000
    expect(leftMs).toBeGreaterThan(0)
    expect(leftMs).toBeLessThan(5_000)
    const never = new RedisLimiter({
      send: (command, args) => (command === 'TIME' ? client.send(command, args) : new Promise(() => {})),
    })
    const startMs = performance.now()
    await expect(never.reserve({ ...call, withinMs: 40 })).rejects.toMatchObject({ code: 'SLUICE_REDIS_SILENT' })
    expect(performance.now() - startMs).toBeLessThan(1_500)
  })

  it('matches no reply to another call', async () => {
    const one = bucket('one', { window: '5/min' })
    const proxy = await startProxy({ port: server.port })
    const through = await connectRedis(proxy.port)
    const [by, id] = [new RedisLimiter(through), randomUUID()]
    const lost = proxy.swallow({ when: id })
    const first = reserve([one], 1, id, by)
    await lost
    await Promise.all([
      expect(first).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' }),
      expect(reserve([one], 1, randomUUID(), new RedisLimiter(through, { timeoutMs: 100 }))).rejects.toMatchObject({
        code: 'SLUICE_REDIS_SILENT',
      }),
    ])
    expect(await reserve([one], 9)).toMatchObject({ granted: 3 })
    through.close()
    await proxy.close()
  })

  it('takes no reply to another command for the time', async () => {
    for (const reply of ['OK', ['decided', 'b', 1], null]) {
      const send = async (command: string) => (command === 'TIME' ? reply : ['decided', 'a', 1, 1])
      const asked = new RedisLimiter({ send }).reserve({ id: 'a', buckets: [], items: [], withinMs: 1_000 })
      await expect(asked).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' })
    }
  })

  it('gives up a reply that does not come', async () => {
    const never: RedisClient = { send: () => new Promise(() => {}) }
    const silent = new RedisLimiter(never, { timeoutMs: 20 })
    await expect(reserve([], 1, 'a', silent)).rejects.toMatchObject({ code: 'SLUICE_REDIS_SILENT', retryable: true })
  })

  it('advises on the errors of Redis, and passes on all other errors of the client', async () => {
    const answer = (message: string) =>
      reserve([], 1, 'a', new RedisLimiter({ send: () => Promise.reject(new Error(message)) }))
    const refused = {
      LOADING: 'LOADING Redis is loading the dataset in memory',
      OOM: "ERR Error running script (call to f_0a): @user_script:5: -OOM command not allowed when used memory > 'maxmemory'",
      MOVED: 'MOVED 3999 127.0.0.1:6381',
      NOAUTH: 'NOAUTH Authentication required.',
      NOPERM: "ERR The user executing the script can't run this command: NOPERM",
      MASTERDOWN: "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    }
    for (const [code, message] of Object.entries(refused))
      await expect(answer(message)).rejects.toMatchObject({
        code: 'SLUICE_REDIS_REFUSED',
        retryable: true,
        message: expect.stringContaining(`(${code})`),
        cause: { message },
      })
    for (const message of ['ERR wrong number of arguments', 'the ROOMS are closed', 'connect ECONNREFUSED'])
      await expect(answer(message)).rejects.toEqual(new Error(message))
  })

  it('keeps domains apart, each in one slot of a cluster', () => {
    const key = (domain: string) => new RedisLimiter(client, { prefix: 'app:', domain }).keyOf('crm:acme')
    expect([key('a'), key('b')]).toEqual(['app:{a}:b:crm:acme', 'app:{b}:b:crm:acme'])
    expect(() => key('a}')).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_REDIS' }))
  })
})
