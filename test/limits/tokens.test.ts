/** 60 requests and 30,000 tokens a minute, estimates off by half either way, settled some seconds later. */
import { describe, expect, it } from 'vitest'
import { charge, emptyBucket, room } from '../../src/limits/decide.ts'
import { settle } from './specification.ts'
import { guarantees } from '../../src/limits/guarantee.ts'
import { limit } from '../../src/limits/limit.ts'
import { minute, second } from './oracle.ts'

interface Call {
  atUs: number
  estimate: number
  actual: number
}

const rpm = limit('rpm', { rate: '60/min', transit: 0 })
const tpm = limit('tpm', { window: '30000/min', cost: 'maxTokens', transit: 0 })
const lengthUs = 60 * minute
const settleUs = 3 * second

/** Numbers from 0 to 1, the same each time. */
function randoms(seed: number): () => number {
  let state = seed
  return () => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647
}

/** The calls of a greedy lane, first in, first out, in an hour. */
function hour(meanTokens: number, seed: number): Call[] {
  const random = randoms(seed)
  const calls: Call[] = []
  let requests = emptyBucket(rpm.rules, 0)
  let tokens = emptyBucket(tpm.rules, 0)
  const next = (atUs: number): Call => {
    const estimate = Math.round(meanTokens * (0.5 + random()))
    return { atUs, estimate, actual: Math.round(estimate * (0.5 + random())) }
  }
  let settled = 0
  for (let nowUs = 0, head = next(0); nowUs < lengthUs;) {
    for (let due = calls[settled]; due !== undefined && due.atUs + settleUs <= nowUs; due = calls[++settled])
      tokens = settle(tpm.rules, due.atUs, due.actual - due.estimate, [], room(tpm.rules, tokens, nowUs).bucket)
    const a = room(rpm.rules, requests, nowUs)
    const b = room(tpm.rules, tokens, nowUs, false, head.estimate)
    if (a.units >= 1 && b.units >= head.estimate) {
      requests = charge(rpm.rules, a.bucket, 1)
      tokens = charge(tpm.rules, b.bucket, head.estimate)
      calls.push({ ...head, atUs: nowUs })
      head = next(nowUs)
    } else {
      const wakeUs = Math.max(a.nextUs, b.nextUs)
      const dueUs = (calls[settled]?.atUs ?? Infinity) + settleUs
      nowUs = Math.max(nowUs + 1, Math.min(wakeUs, dueUs))
    }
  }
  return calls
}

/** Most of `amount` in any half-open minute, less the excess of estimates not settled at its end. */
function worst(calls: readonly Call[], amount: (call: Call) => number): { most: number; over: number } {
  let [from, sum, most, over] = [0, 0, 0, -Infinity]
  calls.forEach((call, i) => {
    sum += amount(call)
    while ((calls[from]?.atUs ?? 0) <= call.atUs - minute) sum -= amount(calls[from++] as Call)
    const open = calls.slice(from, i + 1).filter(({ atUs }) => atUs > call.atUs - settleUs)
    const late = open.reduce((all, { estimate, actual }) => all + Math.max(0, actual - estimate), 0)
    most = Math.max(most, sum)
    over = Math.max(over, sum - late)
  })
  return { most, over }
}

describe.each([
  { meanTokens: 250, binds: 'requests' },
  { meanTokens: 500, binds: 'requests' },
  { meanTokens: 600, binds: 'tokens' },
  { meanTokens: 1_000, binds: 'tokens' },
  { meanTokens: 2_000, binds: 'tokens' },
])('jobs of about $meanTokens tokens, which the limit of $binds delays', ({ meanTokens, binds }) => {
  const calls = hour(meanTokens, 1_234 + meanTokens)
  const tokens = calls.reduce((sum, { actual }) => sum + actual, 0)
  const perSecond = { requests: calls.length / 3_600, tokens: tokens / 3_600 }

  it('have no more than 60 requests a minute, nor more than 30,000 tokens beyond the estimates not yet settled', () => {
    expect(worst(calls, () => 1).most).toBeLessThanOrEqual(60)
    expect(worst(calls, ({ actual }) => actual).over).toBeLessThanOrEqual(30_000)
  })

  it('use at least 95 % of what the guarantee allows', () => {
    const [level] = guarantees(rpm)
    const [window] = guarantees(tpm)
    const share =
      binds === 'requests' ? perSecond.requests / (level?.perSecond ?? 0) : perSecond.tokens / (window?.perSecond ?? 0)
    const nominal = binds === 'requests' ? perSecond.requests : perSecond.tokens / 500
    process.stdout.write(
      `tokens.test: ${meanTokens} a job: ${(share * 100).toFixed(1)} % of the guarantee's ${binds}, ${(nominal * 100).toFixed(1)} % of nominal\n`,
    )
    expect(share).toBeGreaterThanOrEqual(0.95)
    expect(share).toBeLessThanOrEqual(1.01)
  })
})
