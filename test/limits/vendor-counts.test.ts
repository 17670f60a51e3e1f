/** Which limit a vendor's count concerns, and what shows that its window is fixed. */
import { describe, expect, it } from 'vitest'
import { type Match, matchesOf, WindowWitness } from '../../src/limits/vendor-counts.ts'
import { limit } from '../../src/limits/limit.ts'
import type { Count } from '../../src/vendors/answer.ts'

const requests: Count = { unit: 'requests', limit: 5_000, remaining: 4_000, resetMs: 1_800_000 }
const namesOf = (limits: Parameters<typeof matchesOf>[0], counts: readonly Count[]) =>
  matchesOf(limits, counts).map(({ limit: name, left }) => ({ name, left }))

describe('a count concerns', () => {
  const hour = limit('hour', { window: '5000/h', vendor: 'github' })
  const minute = limit('minute', { rate: '80/min', vendor: 'github' })
  const unnamed = limit('unnamed', { window: '5000/h' })

  it('the limits of that vendor, else any', () => {
    expect(namesOf([hour, unnamed], [requests])).toEqual([{ name: 'hour', left: 4_000 }])
    expect(namesOf([unnamed], [requests])).toEqual([{ name: 'unnamed', left: 4_000 }])
  })

  it('the rule of the same window, else the one of the same size', () => {
    expect(namesOf([minute], [requests])).toEqual([])
    expect(namesOf([minute], [{ ...requests, windowMs: 60_000 }])).toHaveLength(1)
    expect(namesOf([hour], [{ ...requests, windowMs: 60_000 }])).toEqual([])
    expect(namesOf([hour], [{ ...requests, limit: 60, remaining: 1 }])).toEqual([])
    const day = limit('day', { quota: '10000/day', zone: 'America/New_York' })
    expect(namesOf([day], [{ ...requests, windowMs: 86_400_000 }])).toHaveLength(1)
  })

  it('the limit that it names, and no other', () => {
    const search = limit('search', { rate: '25/min', vendor: 'github' })
    const count = { ...requests, policy: 'search', limit: 30, remaining: 7 }
    expect(namesOf([hour, search], [count])).toEqual([{ name: 'search', left: 7 }])
    expect(namesOf([hour, search], [{ ...requests, policy: 'search' }])).toEqual([{ name: 'search', left: 4_000 }])
  })

  it('no limit whose jobs have costs, and none if it counts something else', () => {
    expect(namesOf([limit('costed', { window: '5000/h', cost: 2 })], [requests])).toEqual([])
    expect(namesOf([hour], [{ ...requests, unit: 'tokens' }])).toEqual([])
    expect(namesOf([limit('places', { concurrency: 5_000 })], [requests])).toEqual([])
  })

  it('a limit with the fewest units left, and never more units than the limit has', () => {
    const both = [requests, { ...requests, remaining: 10 }]
    expect(namesOf([hour], both)).toEqual([{ name: 'hour', left: 10 }])
    const half = limit('half', { window: '2500/h' })
    const [match] = matchesOf([half], [{ ...requests, windowMs: 3_600_000 }])
    expect(match).toMatchObject({ most: 2_500, left: 4_000, isFixed: false })
  })

  it('a fixed window if the vendor, or the definition, states that', () => {
    const fixed = limit('fixed', { window: '5000/h', vendor: { limit: '5000/h', algorithm: 'fixed window' } })
    expect(matchesOf([fixed], [requests])[0]?.isFixed).toBe(true)
    expect(matchesOf([hour], [{ ...requests, isFixed: true }])[0]?.isFixed).toBe(true)
  })
})

describe('a window', () => {
  const seen = (left: number, resetMs: number): Match => ({
    limit: 'crm',
    most: 100,
    left,
    vendorMost: 100,
    windowMs: 60_000,
    resetMs,
    isFixed: false,
    marginMs: 200,
  })

  it('is fixed if its end stays where it is while units are used', () => {
    const witness = new WindowWitness()
    expect(witness.recordCount(seen(90, 50_000), 0)).toBe(false)
    expect(witness.recordCount(seen(70, 48_000), 2_000)).toBe(false)
    expect(witness.recordCount(seen(70, 47_000), 3_000)).toBe(true)
    // Also in the next window, until its end moves.
    expect(witness.recordCount(seen(99, 60_000), 50_000)).toBe(true)
    expect(witness.recordCount(seen(90, 60_000), 55_000)).toBe(false)
  })

  it('is not known to be fixed while nothing is used, or its end moves', () => {
    const quiet = new WindowWitness()
    for (let s = 0; s < 50; s++) expect(quiet.recordCount(seen(90, 50_000 - s * 1_000), s * 1_000)).toBe(false)
    const moving = new WindowWitness()
    for (let s = 0; s < 50; s++) expect(moving.recordCount(seen(90 - s, 60_000), s * 1_000)).toBe(false)
  })

  it('of a bucket is not known to be fixed: it is full later with each unit', () => {
    const witness = new WindowWitness()
    // Three units each 2 s, 100 in a minute come back: its end moves, as slowly as it can while units are used up.
    for (let n = 0; n < 20; n++) {
      const used = Math.max(0, 3 * n - (100 * 2 * n) / 60) + 3
      expect(witness.recordCount(seen(100 - Math.ceil(used), (used * 60_000) / 100), n * 2_000)).toBe(false)
    }
  })
})
