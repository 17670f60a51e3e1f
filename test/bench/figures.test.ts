import fc from 'fast-check'
import { expect, it } from 'vitest'
import { forAll } from '../for-all.ts'

// Compares the arithmetic of the figures with simpler forms of it.

interface Load {
  mostIn(times: number[], window: number): number
  quantile(samples: number[], share: number): number
  refusedOf(times: number[], most: number, window: number): number
}
interface Utilisation {
  refusals(times: number[], limit: number, windowMs: number): [way: string, refused: number][]
}
interface Promised {
  burst: number
  perSecond: number
  worst: number
}
interface Limited {
  limitedLines(
    name: string,
    told: { times: number[]; nominal: number; promise: Promised; callsPerJob: number; cpuPer1000: number },
  ): { bench: string; value: number }[]
}

/** The benchmarks are plain JavaScript. */
const load = (file: string): Promise<unknown> => import(new URL(`../../bench/${file}`, import.meta.url).href)

it('the most jobs in a window is the maximum over all half-open windows that begin with a job', async () => {
  const { mostIn } = (await load('load.mjs')) as Load
  forAll(fc.array(fc.integer({ min: 0, max: 50 })), fc.integer({ min: 1, max: 20 }), (times, window) => {
    const plain = times.map((from) => times.filter((time) => time >= from && time < from + window).length)
    expect(mostIn(times, window)).toBe(Math.max(0, ...plain))
  })
})

it('a vendor refuses each call that would be too many for some window, and does not count refused calls', async () => {
  const { mostIn, refusedOf } = (await load('load.mjs')) as Load
  expect(refusedOf([30, 0, 5, 10, 20, 14], 2, 10)).toBe(1)
  forAll(
    fc.array(fc.integer({ min: 0, max: 50 })),
    fc.integer({ min: 1, max: 5 }),
    fc.integer({ min: 1, max: 20 }),
    (times, most, window) => {
      expect(refusedOf(times, most, window) === 0).toBe(mostIn(times, window) <= most)
    },
  )
})

it('a vendor refuses in each way of counting what that allows least, in the worst phase of its windows', async () => {
  const { refusals } = (await load('utilisation.mjs')) as Utilisation
  // As many as a window allows, twice within it: at its end, and at the beginning of the next one. The small bucket holds one.
  const times = [0, 100].flatMap((ms) => Array<number>(10).fill(ms))
  expect(Object.fromEntries(refusals(times, 10, 1_000))).toEqual({
    log: 10,
    window: 10,
    bucket: 9,
    counter: 10,
    'small-bucket': 18,
  })
  const even = Array.from({ length: 30 }, (_, i) => i * 125)
  expect(refusals(even, 10, 1_000).map(([, refused]) => refused)).toEqual([0, 0, 0, 0, 0])
})

it('a quantile is one of the samples, and at most its share of the samples lies below it', async () => {
  const { quantile } = (await load('load.mjs')) as Load
  forAll(fc.array(fc.integer(), { minLength: 1 }), fc.double({ min: 0, max: 1, noNaN: true }), (samples, share) => {
    const value = quantile(samples, share)
    expect(samples).toContain(value)
    expect(samples.filter((sample) => sample < value).length).toBeLessThanOrEqual(share * samples.length)
  })
})

it('a drain that keeps exactly to its promise takes the ideal time without excess, and one that takes more shows an excess', async () => {
  const { limitedLines } = (await load('limited.mjs')) as Limited
  // 10 at once, then one each 10 ms: 109 in the first second, 100 in a later one.
  const promise = { burst: 10, perSecond: 100, worst: 110 }
  const times = Array.from({ length: 510 }, (_, i) => Math.max(0, i - 9) * 10)
  const figures = (all: number[]) =>
    new Map(
      limitedLines('x', { times: all, nominal: 120, promise, callsPerJob: 0.1, cpuPer1000: 1 }).map((line) => [
        line.bench,
        line.value,
      ]),
    )
  const kept = figures(times)
  expect(kept.get('x-drain')).toBeCloseTo(1)
  expect(kept.get('x-most')).toBe(109)
  expect(kept.get('x-excess')).toBe(0)
  expect(kept.get('x-calls')).toBe(0.1)
  expect(kept.get('x-share')).toBeCloseTo(83.33)
  const broken = figures([...times, 500, 500])
  expect(broken.get('x-most')).toBe(111)
  expect(broken.get('x-excess')).toBeCloseTo(100 / 110)
})
