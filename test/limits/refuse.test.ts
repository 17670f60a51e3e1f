/** Which buckets a vendor's refusal holds, for how long, and what ends that: on a clock that the test moves. */
import { beforeEach, describe, expect, it } from 'vitest'
import { hash64, newId } from '../../src/core/hash.ts'
import { sqlOn } from '../../src/db/store.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { limit } from '../../src/limits/limit.ts'
import { emptied, mainEngines, ownClock } from '../claim/engine.ts'
import { accept as acceptBuckets, giveBack as giveBackGrant } from '../takes/engine.ts'
import { isOnTrial } from '../claim/engine-parts.ts'
import { addBucket, grantOf, hold, refuse as refuseBuckets, roomOf } from './engine.ts'

const startMs = 1_800_000_000_000
let names = 0

describe.each(mainEngines)('refusals, on $name', (engine) => {
  const at = emptied(engine)
  let nowMs: number
  let clock: { set(ms: number): Promise<void> }
  let name: string
  const pass = async (ms: number) => clock.set((nowMs += ms))
  const define = async (own: string, options: Parameters<typeof limit>[1], keys: readonly string[]) => {
    await defineLimit(sqlOn(at.db), limit(own, options))
    for (const key of keys) await addBucket(at.db, own, key)
  }
  beforeEach(async () => {
    names++
    nowMs = startMs
    clock = await ownClock(at.db, startMs)
    await clock.set(startMs)
    name = `refuse${names}`
    await define(name, { rate: '100/10s' }, ['a', 'b', 'c', 'd'])
    await define(`${name}all`, { rate: '100/s' }, [''])
  })

  /** Reports a refusal of a request for this key that was granted so long ago; resolves to what is held, and for how long. */
  const refuse = async (key: string, saidMs?: number, ageMs = 1) => {
    const waitUs = saidMs === undefined ? undefined : saidMs * 1_000
    const answer = { shared: [`${name}all`], waitUs, ageUs: ageMs * 1_000 }
    const refused = await refuseBuckets(at.db, [`${name}:${key}`], answer)
    const all = ['a', 'b', 'c', 'd'].map((own) => [hash64(`${name}:${own}`), own] as const)
    const known = new Map([...all, [hash64(`${name}all`), 'all']])
    return { held: refused.held.map((id) => known.get(id)), s: refused.waitUs / 1_000_000 }
  }
  const accept = (key: string, ageMs = 1) => acceptBuckets(at.db, [`${name}:${key}`], ageMs * 1_000)
  const room = async (key: string) => {
    const [row] = await at.db.query<{ avail: string; next_s: number }>(
      `select avail, (next - sluice.now_us()) / 1000000::float8 as next_s
       from ${roomOf('array[$1::bigint]')}`,
      [hash64(`${name}:${key}`)],
    )
    return { avail: Number(row?.avail), nextS: row?.next_s }
  }
  /** Grants one unit, as a claim does. */
  const grant = (key: string, id = newId()) => grantOf(at.db, `${name}:${key}`, 1, id)
  const giveBack = (key: string, id: string) => giveBackGrant(at.db, `${name}:${key}`, id)

  it('hold the key for as long as the vendor demands, and nothing else', async () => {
    expect(await refuse('a', 30_000)).toEqual({ held: ['a'], s: 30 })
    expect(await room('a')).toEqual({ avail: 0, nextS: 30 })
    expect((await room('b')).avail).toBeGreaterThan(1)
  })

  it('hold what keys share when a third key is refused within a second, and not later', async () => {
    await refuse('a', 5_000)
    await pass(600)
    expect((await refuse('b', 5_000)).held).toEqual(['b'])
    await pass(600)
    expect((await refuse('c', 5_000)).held).toEqual(['c'])
    await pass(300)
    expect((await refuse('d', 5_000)).held).toEqual(['d', 'all'])
  })

  it('hold under a changed definition, too; what other programs used up in Redis does not', async () => {
    await refuse('b', 3_000)
    await hold(
      at.db,
      ['a', 'b'].map((key) => `${name}:${key}`),
      5_000_000,
      null,
      'used',
    )
    expect([await room('a'), await room('b')]).toMatchObject([{ nextS: 5 }, { nextS: 5 }])
    await defineLimit(sqlOn(at.db), limit(name, { rate: '90/10s' }))
    expect([await room('a'), await room('b')]).toMatchObject([{ nextS: 0 }, { nextS: 3 }])
  })

  it('let one request through after the hold, and the next one only after another', async () => {
    await refuse('a', 5_000)
    await pass(5_000)
    expect(await room('a')).toEqual({ avail: 1, nextS: 0 })
    await grant('a')
    expect(await room('a')).toEqual({ avail: 0, nextS: 1 })
    await pass(1_000)
    expect((await room('a')).avail).toBe(1)
  })

  it('let the next request through at once when nothing was sent under the grant of the one before', async () => {
    const ids = [newId(), newId()] as const
    await grant('a', ids[0])
    await refuse('a', 5_000)
    // A grant of before the refusal ends no hold.
    await giveBack('a', ids[0])
    expect(await room('a')).toEqual({ avail: 0, nextS: 5 })
    await pass(5_000)
    await grant('a', ids[1])
    expect(await room('a')).toEqual({ avail: 0, nextS: 1 })
    await giveBack('a', ids[1])
    expect(await room('a')).toEqual({ avail: 1, nextS: 0 })
  })

  it('let claims report an accepted request only for a key that may be tried now', async () => {
    const both = [hash64(`${name}:a`), hash64(`${name}:b`)]
    expect(await isOnTrial(at.db, both)).toBe(false)
    await refuse('a', 5_000)
    expect(await isOnTrial(at.db, both)).toBe(false)
    await pass(5_000)
    expect(await isOnTrial(at.db, both)).toBe(true)
  })

  it('double the hold with each one in a row if the vendor states no time, up to the span of the limit', async () => {
    const holds: number[] = []
    for (let n = 0; n < 6; n++) {
      const { s } = await refuse('a')
      holds.push(s)
      await pass(s * 1_000)
      await grant('a')
      await pass(50)
    }
    expect(holds).toEqual([1, 2, 3, 3, 3, 3])
  })

  it('of several keys state the longest hold, whichever key comes last', async () => {
    await refuse('a')
    await pass(1_000)
    await grant('a')
    await pass(50)
    const both = await refuseBuckets(at.db, [`${name}:a`, `${name}:b`], { ageUs: 1_000 })
    expect(both.waitUs).toBe(2_000_000)
    expect((await room('a')).nextS).toBe(2)
    expect((await room('b')).nextS).toBe(1)
  })

  it('count once when they answer requests that were sent before the first of them', async () => {
    expect((await refuse('a', undefined, 10)).s).toBe(1)
    await pass(100)
    for (const ageMs of [150, 300, 101]) expect((await refuse('a', undefined, ageMs)).s).toBe(1)
  })

  it('change nothing when they answer requests that were sent before the newest of them', async () => {
    await refuse('a')
    await pass(1_000)
    await grant('a')
    await pass(100)
    // It neither holds the bucket for longer, nor does it make the request on trial look older than the refusal.
    await refuse('a', undefined, 3_000)
    expect(await room('a')).toEqual({ avail: 0, nextS: 0.9 })
    await pass(100)
    await accept('a', 200)
    expect((await room('a')).avail).toBeGreaterThan(1)
  })

  it('are over when a request is accepted that was sent later, and not by one that was sent before', async () => {
    await refuse('a', 5_000)
    await pass(200)
    await accept('a', 300)
    expect((await room('a')).avail).toBe(0)
    await pass(4_800)
    await grant('a')
    await pass(100)
    await accept('a', 100)
    expect((await room('a')).avail).toBeGreaterThan(1)
    expect((await refuse('a')).s).toBe(1)
  })
})
