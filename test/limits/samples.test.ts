/** The samples from which margins follow: how old grants are when they are used, and how long answers take. */
import { describe, expect, it } from 'vitest'
import { Samples } from '../../src/limits/samples.ts'

const minute = 60_000

describe('samples', () => {
  it('are the age of nearly all grants, and the shortest and longest answer', () => {
    const samples = new Samples()
    for (let i = 1; i <= 100; i++) samples.recordAge(i === 100 ? 5_000 : 3, false)
    for (const took of [7, 3.5, 9]) samples.recordAnswer(took, 0, false)
    expect(samples.report(0)).toEqual({
      ages: 100,
      ageUs: 3_000,
      latePart: 0,
      answers: 3,
      leastUs: 3_500,
      // Half as much again as the answers differ by, and a millisecond.
      mostUs: 12_750,
      isSound: true,
      boundMs: Infinity,
    })
  })

  it('forget answers, and doubts, after ten minutes', () => {
    const samples = new Samples()
    samples.recordAnswer(80, 0, false)
    samples.recordDoubt(minute)
    samples.recordAnswer(5, 2 * minute, false)
    samples.recordAnswer(6, 9 * minute, false)
    expect(samples.report(9 * minute)).toMatchObject({ answers: 3, mostUs: 118_500, isSound: false })
    expect(samples.report(10 * minute)).toMatchObject({ answers: 2, mostUs: 7_500, isSound: false })
    expect(samples.report(11 * minute)).toMatchObject({ answers: 2, mostUs: 7_500, isSound: true })
    expect(samples.report(60 * minute)).toMatchObject({ answers: 0, leastUs: 0, mostUs: 0 })
  })

  it('bound the way by what nearly all answers took, and name the slower ones, as soon as the margin allows for it', () => {
    const samples = new Samples()
    const answer = (nowMs: number) => {
      let slow = 0
      for (let i = 1; i <= 200; i++) if (samples.recordAnswer(i === 7 ? 60 : i % 2 === 0 ? 4 : 2, nowMs, true)) slow++
      return slow
    }
    expect([answer(0), samples.overdueMs]).toEqual([0, undefined])
    // The slow answer was not charged, and its window may still be open.
    expect(samples.report(0)).toMatchObject({ leastUs: 2_000, mostUs: 60_000 })
    expect([answer(minute), samples.overdueMs]).toEqual([1, 102])
    const windows = [1_000, minute]
    expect(samples.report(2 * minute + 9_000, windows)).toMatchObject({ mostUs: 60_000 })
    const later = samples.report(2 * minute + 10_000, windows)
    expect(later).toMatchObject({ leastUs: 2_000, mostUs: 4_000 })
    samples.recordReport(later, 2 * minute + 10_000)
    for (let i = 0; i < 100; i++) samples.recordAnswer(20, 3 * minute, true)
    expect(samples.report(3 * minute)).toMatchObject({ mostUs: 20_000 })
    expect(samples.recordAnswer(20, 3 * minute, true)).toBe(true)
    samples.recordReport(samples.report(3 * minute), 3 * minute)
    const raise = (nowMs: number) => samples.allowBound(samples.recordReport(samples.report(nowMs), nowMs))
    // Another process may be about to act by what it read before.
    raise(3 * minute + 3_999)
    expect(samples.recordAnswer(20, 3 * minute, true)).toBe(true)
    raise(3 * minute + 4_000)
    expect(samples.recordAnswer(20, 3 * minute, true)).toBe(false)
  })

  it('forget a slow start after two minutes, as soon as newer answers are enough', () => {
    const samples = new Samples()
    const answer = (tookMs: number, nowMs: number, many = 100) => {
      for (let i = 0; i < many; i++) samples.recordAnswer(tookMs, nowMs, true)
    }
    answer(4, 0)
    answer(90, 0)
    expect(samples.report(0).boundMs).toBe(90)
    answer(4, minute, 150)
    expect(samples.report(2 * minute)).toMatchObject({ boundMs: 90, mostUs: 90_000 })
    answer(4, 2 * minute, 50)
    expect(samples.report(2 * minute)).toMatchObject({ boundMs: 4, mostUs: 4_000 })
  })

  it('charge a few slow answers once more, or widen the margin for many, whichever costs less of the rate', () => {
    const bound = (slow: number, tookMs: number, windowMs: number) => {
      const samples = new Samples()
      for (let i = 0; i < 1_000; i++) samples.recordAnswer(i < slow ? tookMs : 4, 0, true)
      return samples.report(0, [windowMs]).boundMs
    }
    expect([bound(20, 60, 1_000), bound(20, 300, 1_000), bound(80, 60, 1_000)]).toEqual([4, 4, 60])
    expect([bound(20, 60, 60_000), bound(1, 60, 60_000), bound(200, 300, 1_000)]).toEqual([60, 60, Infinity])
  })

  it('charge none where too little of the window is left for that', () => {
    const bound = (tookMs: number, aheadMs?: number) => {
      const samples = new Samples()
      for (let i = 0; i < 100; i++) samples.recordAnswer(tookMs, 0, true)
      return samples.report(0, [1_000], aheadMs).boundMs
    }
    expect([bound(400), bound(401), bound(150, 450), bound(151, 450)]).toEqual([400, Infinity, 150, Infinity])
  })

  it('are the age of 99 of 100 grants in all of the last reports', () => {
    const samples = new Samples()
    const age = (ageMs: number, many: number) => {
      for (let i = 0; i < many; i++) samples.recordAge(ageMs, false)
    }
    for (let report = 0; report < 12; report++) {
      age(3, 99)
      age(report === 5 ? 200 : 6, 1)
      samples.report(0)
    }
    expect(samples.report(0)).toMatchObject({ ages: 1_200, ageUs: 3_000 })
    age(50, 100)
    expect(samples.report(0)).toMatchObject({ ages: 1_200, ageUs: 50_000 })
  })

  it('take only a bound that the margin was asked for, also when a later report has a greater one', () => {
    const samples = new Samples()
    samples.recordAnswer(4, 0, true)
    const first = samples.recordReport(samples.report(0), 0)
    for (let i = 0; i < 100; i++) samples.recordAnswer(60, 0, true)
    samples.report(0)
    samples.allowBound(first)
    expect(samples.recordAnswer(60, 0, true)).toBe(true)
  })

  it('take no bound whose report was not recorded', () => {
    const samples = new Samples()
    samples.recordAnswer(4, 0, true)
    samples.allowBound(samples.recordReport(samples.report(0), 0))
    for (let i = 0; i < 100; i++) samples.recordAnswer(60, 0, true)
    samples.report(5_000)
    samples.allowBound(samples.recordReport(samples.report(10_000), 10_000))
    expect(samples.recordAnswer(60, 0, true)).toBe(true)
  })

  it('name slow answers again, ten minutes after one that could not be charged', () => {
    const samples = new Samples()
    const answer = (nowMs: number) => samples.recordAnswer(4, nowMs, nowMs > 0)
    answer(0)
    for (let nowMs = minute; nowMs <= 9 * minute; nowMs += minute) answer(nowMs)
    expect([samples.report(9 * minute).boundMs, samples.overdueMs]).toEqual([Infinity, undefined])
    answer(10 * minute)
    expect([samples.report(10 * minute).boundMs, samples.recordAnswer(60, 10 * minute, true)]).toEqual([4, true])
  })

  it('name no answer as slow where all take so long that a charge would come too late', () => {
    const samples = new Samples()
    for (let i = 0; i < 200; i++) samples.recordAnswer(500 + (i % 5), 0, true)
    samples.allowBound(samples.report(0).boundMs)
    expect([samples.recordAnswer(590, 0, true), samples.overdueMs]).toEqual([false, undefined])
  })

  it('name every answer of a process that has not called for a while, until it has reported', () => {
    const samples = new Samples()
    samples.report(0)
    expect(samples.recordAnswer(3, 0, true)).toBe(false)
    const idle = new Samples()
    idle.report(0)
    idle.report(5_000)
    expect(idle.recordAnswer(3, 6_000, true)).toBe(true)
  })

  it('show which part of the grants since the last report came too late, if those are a few at least', () => {
    const samples = new Samples()
    const age = (late: number, used: number) => {
      for (let i = 0; i < late + used; i++) samples.recordAge(150, i < late)
      return samples.report(0).latePart
    }
    expect([age(5, 20), age(4, 0), age(30, 10), age(0, 0)]).toEqual([0.2, 0, 0.75, 0])
  })

  it('state half at most as too late of the first grants of a process, unless all were', () => {
    const age = (samples: Samples, late: number, used: number) => {
      for (let i = 0; i < late + used; i++) samples.recordAge(150, i < late)
      return samples.report(0).latePart
    }
    const [cold, slow] = [new Samples(), new Samples()]
    expect([age(cold, 0, 0), age(cold, 30, 10), age(cold, 30, 10)]).toEqual([0, 0.5, 0.75])
    expect(age(slow, 30, 0)).toBe(1)
  })

  it('remember the worst of the last twelve reports', () => {
    const samples = new Samples()
    const age = (ms: number) => {
      for (let i = 0; i < 10; i++) samples.recordAge(ms, false)
      return samples.report(0).ageUs / 1_000
    }
    expect(age(80)).toBe(80)
    for (let n = 0; n < 11; n++) expect(age(5)).toBe(80)
    expect(age(5)).toBe(5)
  })
})
