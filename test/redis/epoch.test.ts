import { randomUUID } from 'node:crypto'
import { beforeEach, describe, expect, it } from 'vitest'
import { periodOf } from '../../src/core/calendar.ts'
import type { RedisClient } from '../../src/redis/client.ts'
import type { Granted } from '../../src/redis/call.ts'
import { RedisLimiter } from '../../src/redis/limiter.ts'
import type { RedisBucket } from '../../src/redis/definition.ts'
import { startProxy } from '../servers/proxy.ts'
import { freshRedis, startRedis } from '../servers/redis.ts'
import { later, until } from '../until.ts'
import { bucket, decided, seedOf } from './calls.ts'
import { connectRedis } from '../servers/resp.ts'

const { server, client } = await freshRedis()
const limiter = new RedisLimiter(client)
beforeEach(() => client.send('FLUSHALL', []))

const minute = bucket('minute', { window: '5/min' })
const hour = bucket('hour', { window: '5/h' })
const look = (one: RedisBucket) => one.rules[0]?.spanUs ?? 0
const anew = async (instead?: string, closeUs = 0): Promise<string> => {
  const epoch = randomUUID()
  expect(await limiter.begin({ owner: 'sluice', epoch, instead, closeUs })).toMatchObject({ isDecided: true })
  return epoch
}
const call = (buckets: RedisBucket[], want = 1, id: string = randomUUID(), epoch?: string, by = limiter) => {
  const items = [{ want, takes: buckets.map((_, i) => ({ bucket: i, units: 1 })) }]
  return by.reserve({ id, buckets, items, ...(epoch === undefined ? {} : { epoch }) })
}
const reserve = async (one: RedisBucket, want = 1, id?: string): Promise<Granted> =>
  decided(await call([one], want, id))[0] as Granted
const lost = (epoch?: string) => ({ isDecided: false, why: 'lost', epoch })

describe('an epoch', () => {
  it('means that the state is whole: without one nothing is granted, settled or written', async () => {
    expect(await call([minute])).toEqual(lost())
    const acts = [{ bucket: 0, grant: 'g', more: 3 }]
    expect(await limiter.settle({ id: randomUUID(), buckets: [minute], acts })).toEqual(lost())
    expect(await client.send('DBSIZE', [])).toBe(0)
    await anew()
    expect(await reserve(minute, 9)).toMatchObject({ granted: 5 })
  })

  it('stops callers of another epoch, however old their last reply is, and not callers that know none', async () => {
    const first = await anew()
    expect(await call([minute], 1, randomUUID(), first)).toMatchObject({ isDecided: true })
    const second = await anew(first)
    const id = randomUUID()
    expect(await call([minute], 1, id, first)).toEqual(lost(second))
    const acts = [{ bucket: 0, holdUs: 60_000_000 }]
    expect(await limiter.settle({ id: randomUUID(), epoch: first, buckets: [minute], acts })).toEqual(lost(second))
    // A call that was not carried out succeeds under the same id, once the caller knows the epoch; one was granted before.
    expect(decided(await call([minute], 9, id, second))).toMatchObject([{ granted: 4 }])
    expect(await call([minute])).toMatchObject({ isDecided: true })
  })

  it('is begun by one of several callers that find the loss at once, and the others learn the new epoch', async () => {
    const epochs = Array.from({ length: 8 }, () => randomUUID())
    const told = await Promise.all(epochs.map((epoch) => limiter.begin({ owner: 'sluice', epoch })))
    const [winner, ...others] = epochs.filter((_, i) => told[i]?.isDecided)
    expect(others).toEqual([])
    expect(told.filter((one) => !one.isDecided)).toEqual(Array.from({ length: 7 }, () => lost(winner)))
    // Nor does an owner win that expects an epoch that is no more.
    expect(await limiter.begin({ owner: 'sluice', epoch: randomUUID(), instead: randomUUID() })).toEqual(lost(winner))
  })

  it('is not begun a second time by the same id', async () => {
    const proxy = await startProxy({ port: server.port })
    const through = await connectRedis(proxy.port)
    const by = new RedisLimiter(through)
    const epoch = randomUUID()
    const gone = proxy.swallow({ when: epoch, leave: 'closed' })
    await expect(by.begin({ owner: 'sluice', epoch, closeUs: 0 })).rejects.toThrow(/lost/)
    await gone
    await reserve(minute, 3)
    const again = await limiter.begin({ owner: 'sluice', epoch, seeds: [seedOf(minute, { holdUs: 60_000_000 })] })
    expect(again).toEqual({ isDecided: true, atUs: Number(await client.send('HGET', ['sluice:{limits}:epoch', 'at'])) })
    expect(await reserve(minute, 9)).toMatchObject({ granted: 2 })
    await proxy.close()
  })

  it('is not begun by another owner than its own, whether it is whole or not', async () => {
    const epoch = await anew()
    expect(await limiter.readEpoch()).toEqual({
      id: epoch,
      isWhole: true,
      owner: 'sluice',
      mine: undefined,
      stores: 1,
      nowUs: expect.any(Number),
    })
    const other = { owner: 'other', epoch: randomUUID(), instead: epoch, closeUs: 0, seeds: [seedOf(minute)] }
    const owned = { isDecided: false, why: 'owned', owner: 'sluice' }
    expect(await limiter.begin(other)).toEqual(owned)
    await client.send('HSET', ['sluice:{limits}:epoch', 'history', 'another'])
    expect(await limiter.readEpoch()).toMatchObject({ id: epoch, isWhole: false, owner: 'sluice' })
    expect(await limiter.begin(other)).toEqual(owned)
    expect(await client.send('EXISTS', [limiter.keyOf('minute')])).toBe(0)
    await client.send('FLUSHALL', [])
    expect(await limiter.readEpoch()).toMatchObject({ id: undefined, isWhole: false, owner: undefined })
    expect(await limiter.begin({ ...other, instead: undefined })).toMatchObject({ isDecided: true })
    expect(await limiter.readEpoch()).toMatchObject({ id: other.epoch, isWhole: true, owner: 'other' })
  })

  it('is begun by commands that are sent once, and not by commands that come too late', async () => {
    const sent: string[] = []
    let isLate = false
    const watched: RedisClient = {
      send: (command, args) => {
        sent.push(command)
        if (isLate && command === 'TIME') return Promise.resolve(['1', '1'])
        return client.send(command, args)
      },
    }
    await client.send('SCRIPT', ['FLUSH'])
    const instead = randomUUID()
    expect(await new RedisLimiter(watched).begin({ owner: 'sluice', epoch: instead })).toMatchObject({
      isDecided: true,
    })
    expect(sent.splice(0)).toEqual(['TIME', 'EVALSHA', 'EVAL'])
    isLate = true
    const by = new RedisLimiter(watched)
    const begin = (epoch: string) => by.begin({ owner: 'sluice', epoch, instead })
    await expect(begin(randomUUID())).rejects.toMatchObject({ code: 'SLUICE_REDIS_ANSWER' })
    expect(sent).toEqual(['TIME', 'EVALSHA'])
    isLate = false
    expect(await begin(randomUUID())).toMatchObject({ isDecided: true })
  })

  it('with many seeds begins in portions; until the last one nothing is granted', async () => {
    const instead = await anew()
    let portions = 0
    let meanwhile = async () =>
      void (portions > 1 && expect(await call([minute], 1, randomUUID(), instead)).toEqual(lost()))
    const watched: RedisClient = {
      send: async (command, args) => {
        if (command !== 'EVALSHA') return client.send(command, args)
        portions++
        await meanwhile()
        expect(Number(args[1])).toBeLessThanOrEqual(2_001)
        return client.send(command, args)
      },
    }
    const by = new RedisLimiter(watched)
    const parts = [[3]]
    const seeds = Array.from({ length: 4_100 }, (_, i) => seedOf(bucket(`many${i}`, { window: '5/min' }), { parts }))
    const epoch = randomUUID()
    expect(await by.begin({ owner: 'sluice', epoch, instead, closeUs: 0, seeds })).toMatchObject({ isDecided: true })
    expect(portions).toBe(3)
    expect(await limiter.readEpoch()).toMatchObject({ id: epoch, isWhole: true, owner: 'sluice' })
    for (const seed of [seeds[0], seeds[4_099]])
      expect(await reserve(seed?.bucket as RedisBucket, 9)).toMatchObject({ granted: 2 })

    // What is lost in between is not begun, and a process that begins again meanwhile is first.
    portions = 0
    meanwhile = async () => void (portions === 2 && (await client.send('FLUSHALL', [])))
    expect(await by.begin({ owner: 'sluice', epoch: randomUUID(), instead: epoch, seeds })).toEqual(lost())
    portions = 0
    meanwhile = async () => void (portions === 3 && (await anew()))
    expect(await by.begin({ owner: 'sluice', epoch: randomUUID(), seeds })).toMatchObject({ why: 'lost' })
    expect(await reserve(minute, 9)).toMatchObject({ granted: 5 })
    // Nor does another database take over what has just gone on.
    const others = { owner: 'other', stores: 2, epoch: randomUUID(), instead: (await limiter.readEpoch()).id }
    portions = 0
    meanwhile = async () =>
      void (portions === 2 && expect(await limiter.begin({ ...others, instead: undefined })).toEqual(lost()))
    expect(await by.begin({ ...others, owner: 'sluice', epoch: randomUUID(), seeds, closeUs: 0 })).toMatchObject({
      isDecided: true,
    })
  })

  it('is not begun by a command that arrives after its caller has given it up', async () => {
    const proxy = await startProxy({ port: server.port })
    const through = await connectRedis(proxy.port)
    const by = new RedisLimiter({
      send: (command, args) => (command === 'TIME' ? client : through).send(command, args),
    })
    const ready = await by.begin({ owner: 'sluice', epoch: randomUUID() })
    expect(ready).toMatchObject({ isDecided: true })
    await client.send('FLUSHALL', [])
    proxy.halfOpen()
    await expect(by.begin({ owner: 'sluice', epoch: randomUUID(), withinMs: 50 })).rejects.toMatchObject({
      code: 'SLUICE_REDIS_SILENT',
    })
    await proxy.pass()
    await through.send('PING', [])
    expect(await call([minute])).toEqual(lost())
    through.close()
    await proxy.close()
  })
})

describe('what a new epoch closes', () => {
  it('is every bucket, for as long as it looks back, whether it exists or not', async () => {
    const first = await anew()
    await reserve(minute)
    const before = Number(((await client.send('TIME', [])) as string[])[0]) * 1e6
    await anew(first, Infinity)
    for (const one of [minute, hour]) {
      const { granted, waitUs } = await reserve(one)
      expect(granted).toBe(0)
      expect(waitUs).toBeGreaterThan(look(one) - 5_000_000)
      const closed = await call([one])
      if (closed.isDecided) expect(closed.nowUs + waitUs - before).toBeLessThan(look(one) + 10_000_000)
    }
    const place = bucket('place', { concurrency: 1 })
    expect((await reserve(place)).waitUs).toBeGreaterThan(50_000_000)
  })

  it('is a quota until its period is over, and the next period where grants may have come close to it', async () => {
    const transit = 29_000
    for (const leftMs of [40_000, 10_000]) {
      await client.send('FLUSHALL', [])
      const [seconds] = (await client.send('TIME', [])) as string[]
      const endMs = Number(seconds) * 1_000 + leftMs
      const minutes = bucket('minutes', { quota: '5/min', transit, anchor: new Date(endMs - 60_000) })
      await limiter.begin({ owner: 'sluice', epoch: randomUUID() })
      const denied = await call([minutes])
      expect(denied).toMatchObject({ results: [{ granted: 0 }] })
      const untilMs = (leftMs > transit ? endMs : endMs + 60_000) + transit + 100
      if (denied.isDecided) expect(denied.nowUs + (denied.results[0]?.waitUs ?? 0)).toBe(untilMs * 1_000)
    }
    // A definition that counts by the month does not know how much was granted in it.
    const minutes = bucket('minutes', { quota: '5/min' })
    decided(await limiter.settle({ id: randomUUID(), buckets: [minutes], acts: [{ bucket: 0, grant: 'g', more: 1 }] }))
    const monthly = await call([bucket('minutes', { quota: '5/month' }, 2)])
    const nowUs = monthly.isDecided ? monthly.nowUs : 0
    const { endUs } = periodOf({ unit: 'month', zone: 'UTC', anchorUs: null }, nowUs)
    expect(nowUs + (decided(monthly)[0]?.waitUs ?? 0)).toBeGreaterThan(endUs)
  })

  it('is closed no longer than requested, and stays closed through settlements and later definitions', async () => {
    const us = 250_000
    await anew(undefined, us)
    const { granted, waitUs } = await reserve(hour)
    expect(granted).toBe(0)
    expect(waitUs).toBeLessThanOrEqual(us)
    decided(await limiter.settle({ id: randomUUID(), buckets: [hour], acts: [{ bucket: 0, grant: 'g', more: 1 }] }))
    expect((await reserve(hour)).granted).toBe(0)
    await expect.poll(async () => (await reserve(hour, 3)).granted).toBe(3)
    expect((await reserve(hour, 9)).granted).toBe(1)
  })

  it('does not keep the history that a later definition with a longer window would need', async () => {
    await anew(undefined, Infinity)
    // Written once under the short definition: from then on the state has a hold of its own.
    decided(await limiter.settle({ id: randomUUID(), buckets: [minute], acts: [{ bucket: 0, grant: 'g', more: 1 }] }))
    const { granted, waitUs } = await reserve(bucket('minute', { window: '5/h' }, 2))
    expect(granted).toBe(0)
    expect(waitUs).toBeGreaterThan(look(hour) - 60_000_000)
  })
})

describe('the loss of state', () => {
  it('is noticed when the server starts from an old snapshot', async () => {
    const own = await startRedis()
    const to = await connectRedis(own.port)
    const by = new RedisLimiter(to)
    const epoch = randomUUID()
    await by.begin({ owner: 'sluice', epoch, closeUs: 0 })
    decided(await call([hour], 1, 'a', undefined, by))
    await to.send('SAVE', [])
    decided(await call([hour], 4, 'b', undefined, by))
    await own.kill()
    await own.start()
    const back = await connectRedis(own.port)
    const again = new RedisLimiter(back)
    expect(await back.send('HGET', ['sluice:{limits}:epoch', 'id'])).toBe(epoch)
    for (const known of [undefined, epoch])
      expect(await call([hour], 9, randomUUID(), known, again)).toEqual(lost(epoch))
    expect(await again.begin({ owner: 'sluice', epoch })).toEqual(lost(epoch))
    expect(await again.begin({ owner: 'sluice', epoch: randomUUID(), instead: epoch })).toMatchObject({
      isDecided: true,
    })
    expect(decided(await call([hour], 9, randomUUID(), undefined, again))).toMatchObject([{ granted: 0 }])
    back.close()
    await own.close()
  })

  it('keeps grants from before from being refunded, and charges usage beyond them', async () => {
    await anew()
    await reserve(minute, 3, 'g')
    await client.send('FLUSHALL', [])
    await anew()
    await reserve(minute, 2)
    const acts = [
      { bucket: 0, grant: 'g', more: -3 },
      { bucket: 0, grant: 'g', isUnused: true as const },
      { bucket: 0, grant: 'g', ended: 1 },
      { bucket: 0, grant: 'g', more: 1 },
    ]
    expect(decided(await limiter.settle({ id: randomUUID(), buckets: [minute], acts }))).toEqual([0, 0, 0, 1])
    expect(await reserve(minute, 9)).toMatchObject({ granted: 2 })
  })

  it('is noticed when a lagging replica takes over', async () => {
    const [master, replica] = await Promise.all([startRedis({ 'repl-diskless-sync-delay': '0' }), startRedis()])
    const [from, to] = await Promise.all([connectRedis(master.port), connectRedis(replica.port)])
    const first = new RedisLimiter(from)
    const alone = randomUUID()
    await first.begin({ owner: 'sluice', epoch: alone, closeUs: 0 })
    await to.send('REPLICAOF', ['127.0.0.1', String(master.port)])
    await expect.poll(() => to.send('INFO', ['replication'])).toContain('master_link_status:up')
    // The first replica makes a new history, too; nothing distinguishes the two.
    expect(await call([hour], 1, randomUUID(), undefined, first)).toEqual(lost(alone))
    const second = new RedisLimiter(to)
    const epoch = randomUUID()
    await first.begin({ owner: 'sluice', epoch, instead: alone, closeUs: 0 })
    decided(await call([hour], 1, 'a', undefined, first))
    await expect.poll(() => to.send('EXISTS', [first.keyOf('hour')])).toBe(1)
    await expect(call([hour], 1, randomUUID(), undefined, second)).rejects.toMatchObject({
      code: 'SLUICE_REDIS_REFUSED',
      message: expect.stringContaining('READONLY'),
    })
    await to.send('REPLICAOF', ['NO', 'ONE'])
    expect(await call([hour], 9, randomUUID(), undefined, second)).toEqual(lost(epoch))
    from.close()
    to.close()
    await Promise.all([master.close(), replica.close()])
  })

  it('is not assumed after a full memory or a script that runs for long, and nothing is charged', async () => {
    await anew()
    await reserve(minute)
    await client.send('CONFIG', ['SET', 'maxmemory', '1'])
    const refused = (code: string) => ({
      code: 'SLUICE_REDIS_REFUSED',
      retryable: true,
      message: expect.stringContaining(code),
    })
    await expect(reserve(minute)).rejects.toMatchObject(refused('OOM'))
    await client.send('CONFIG', ['SET', 'maxmemory', '0'])
    await client.send('CONFIG', ['SET', 'busy-reply-threshold', '1'])
    const other = await connectRedis(server.port)
    const long = later(other.send('EVAL', ['while true do end', '0']))
    await until(
      () =>
        client.send('PING', []).then(
          () => false,
          () => true,
        ),
      'it is busy',
    )
    await expect(reserve(minute)).rejects.toMatchObject(refused('BUSY'))
    await client.send('SCRIPT', ['KILL'])
    await expect(long).rejects.toThrow(/killed/)
    other.close()
    expect(await reserve(minute, 9)).toMatchObject({ granted: 4 })
  })
})
