/** The real usage of an attempt: the numbers of known cases, and the fence. */
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { settle } from './specification.ts'
import { level, minute, second, sliding } from './oracle.ts'

describe('settlement', () => {
  it('of 25 jobs of 1,200 tokens, at 60 requests and 30,000 tokens a minute, for 17,500 in all lets 10 more go', () => {
    const rpm = [level(60, minute, 60)]
    const tpm = [sliding(30_000, second)]
    const requests = charge(rpm, emptyBucket(rpm, 0), 25)
    const tokens = charge(tpm, emptyBucket(tpm, 0), 30_000)
    expect(room(tpm, tokens, 0, false, 1_200)).toMatchObject({ avail: 0, nextUs: 61 * second })
    const at5 = room(tpm, tokens, 5 * second).bucket
    const settled = settle(tpm, 0, 17_500 - 30_000, [], at5)
    expect(settled.parts[0]?.[5]).toBe(17_500)
    expect(Math.floor(room(tpm, settled, 5 * second).avail / 1_200)).toBe(10)
    expect(room(rpm, requests, 5 * second).avail).toBe(40)
  })

  it('at a vendor that refunds in full lets 1,000 jobs go at 50 a second', () => {
    const rules = [level(50, second, 1_000)]
    const less = settle(rules, 0, 12 - 252, [], charge(rules, emptyBucket(rules, 0), 252), true)
    expect(room(rules, less, 0).avail).toBe(988)
    const more = settle(rules, 0, 1_200 - 900, [], charge(rules, less, 900))
    expect(1_000 * 1 - (more.debt[0] ?? 0) / (rules[0]?.weight ?? 1)).toBe(-212)
    expect(room(rules, more, 0, false, 100)).toMatchObject({ avail: 0, nextUs: 6_240_000 })
  })

  it('gives back nothing that has drained from the level meanwhile', () => {
    const rules = [level(60, minute, 30)]
    const then = room(rules, charge(rules, emptyBucket(rules, 0), 30), 20 * second)
    expect(then.avail).toBe(20)
    const back = settle(rules, 0, -15, [], then.bucket)
    expect(room(rules, back, 20 * second).avail).toBe(30)
    const late = settle(rules, 0, -5, [], charge(rules, then.bucket, 20))
    expect(room(rules, late, 20 * second).avail).toBe(5)
  })

  it('of more than a window remembers counts the rest in its oldest part', () => {
    const rules = [sliding(100, second)]
    const later = room(rules, charge(rules, emptyBucket(rules, 0), 10), 90 * second).bucket
    const owed = settle(rules, 0, 120, [], later)
    expect(room(rules, owed, 90 * second)).toMatchObject({ avail: 0, nextUs: 91 * second })
  })
})
