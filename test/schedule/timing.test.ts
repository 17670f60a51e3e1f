/** When schedules are due, against a clock that is read second by second. */
import fc from 'fast-check'
import { describe, expect, it, test } from 'vitest'
import { instants, newest, timingOf, type When } from '../../src/schedule/timing.ts'
import { forAll } from '../for-all.ts'

const timing = (when: When) => timingOf(when, 'schedule "test"')
const cron = (expression: string, zone = 'Europe/Berlin') => timing({ cron: expression, zone })
const hourMs = 3_600_000

/** Instants from a time on, as text in UTC. */
function due(expression: string, zone: string, from: string, count: number): string[] {
  const all = instants(cron(expression, zone), Date.parse(from) - 1, Infinity, count)
  return all.map((ms) => new Date(ms).toISOString().slice(0, 16))
}

/** The number of instants on one day of a zone's calendar, given by its ends in UTC. */
function countIn(expression: string, zone: string, from: string, until: string): number {
  return instants(cron(expression, zone), Date.parse(from) - 1, Date.parse(until) - 1, 1e6).length
}

describe('the day on which clocks go forward, Berlin 2026-03-29, 02:00 to 03:00', () => {
  const [from, until] = ['2026-03-28T23:00Z', '2026-03-29T22:00Z'] as const
  test('a daily job in the gap runs once, right after it, and at its usual time the next day', () => {
    expect(due('30 2 * * *', 'Europe/Berlin', from, 2)).toEqual(['2026-03-29T01:00', '2026-03-30T00:30'])
  })
  test.each([
    ['30 2 * * *', 1],
    ['0 2,3 * * *', 1],
    ['*/15 2 * * *', 1],
    ['* 1-3 * * *', 120],
    ['0 0 * * *', 1],
    ['0 * * * *', 23],
    ['@hourly', 23],
    ['*/10 * * * *', 138],
    ['0 */2 * * *', 11],
    ['0 30 2 * * *', 1],
    ['*/30 30 2 * * *', 1],
    ['* * 2 * * *', 1],
    ['0 */15 1-3 * * *', 8],
    ['0 0 * * * *', 23],
    ['30 0 */2 * * *', 11],
  ])('%s fires %d times', (expression, n) => expect(countIn(expression, 'Europe/Berlin', from, until)).toBe(n))
})

describe('the day on which clocks go back, Berlin 2026-10-25, 03:00 to 02:00', () => {
  const [from, until] = ['2026-10-24T22:00Z', '2026-10-25T23:00Z'] as const
  test('a daily job in the repeated hour runs in the first one', () => {
    expect(due('30 2 * * *', 'Europe/Berlin', from, 2)).toEqual(['2026-10-25T00:30', '2026-10-26T01:30'])
  })
  test.each([
    ['30 2 * * *', 1],
    ['*/15 2 * * *', 4],
    ['* 1-3 * * *', 180],
    ['0 * * * *', 25],
    ['*/10 * * * *', 150],
    ['0 */2 * * *', 13],
    ['0 30 2 * * *', 1],
    ['*/30 30 2 * * *', 2],
    ['0 */15 1-3 * * *', 12],
    ['0 0 * * * *', 25],
    ['30 0 */2 * * *', 13],
  ])('%s fires %d times', (expression, n) => expect(countIn(expression, 'Europe/Berlin', from, until)).toBe(n))
})

test('a gap that ends at midnight and a day that a zone skipped lose no instant', () => {
  expect(due('30 23 * * *', 'America/Nuuk', '2026-03-28T12:00Z', 3)).toEqual([
    '2026-03-29T01:00',
    '2026-03-30T00:30',
    '2026-03-31T00:30',
  ])
  // Samoa had no 30 December 2011.
  expect(due('0 9 30 12 *', 'Pacific/Apia', '2011-12-01T00:00Z', 2)).toEqual(['2011-12-30T10:00', '2012-12-29T19:00'])
})

test('half an hour of daylight saving time on Lord Howe Island is respected', () => {
  // 02:00 becomes 02:30 on 2026-10-04, and 01:30 on 2026-04-05.
  expect(due('15 2 * * *', 'Australia/Lord_Howe', '2026-10-03T00:00Z', 2)).toEqual([
    '2026-10-03T15:30',
    '2026-10-04T15:15',
  ])
  expect(due('45 1 * * *', 'Australia/Lord_Howe', '2026-04-04T00:00Z', 2)).toEqual([
    '2026-04-04T14:45',
    '2026-04-05T15:15',
  ])
  expect(due('45 * * * *', 'Australia/Lord_Howe', '2026-04-04T14:00Z', 3)).toEqual([
    '2026-04-04T14:45',
    '2026-04-04T15:15',
    '2026-04-04T16:15',
  ])
})

test('leap days, the ends of months and years, and the last day are found', () => {
  expect(due('0 12 29 2 *', 'UTC', '2096-03-01T00:00Z', 2)).toEqual(['2104-02-29T12:00', '2108-02-29T12:00'])
  expect(due('0 0 31 * *', 'UTC', '2026-02-01T00:00Z', 3)).toEqual([
    '2026-03-31T00:00',
    '2026-05-31T00:00',
    '2026-07-31T00:00',
  ])
  expect(due('59 23 31 12 *', 'Europe/Berlin', '2026-12-31T22:59Z', 2)).toEqual([
    '2026-12-31T22:59',
    '2027-12-31T22:59',
  ])
  expect(due('0 0 1 1 *', 'Asia/Kolkata', '2026-12-31T18:00Z', 1)).toEqual(['2026-12-31T18:30'])
  expect(due('0 0 L * *', 'UTC', '2028-02-01T00:00Z', 2)).toEqual(['2028-02-29T00:00', '2028-03-31T00:00'])
})

test('`every` is aligned to 1970, and `after` is exclusive', () => {
  const ten = timing({ every: '10s' })
  expect([ten.after(0), ten.after(9_999), ten.after(10_000)]).toEqual([10_000, 10_000, 20_000])
  expect(cron('*/5 * * * * *').after(5_000)).toBe(10_000)
  expect(cron('*/5 * * * * *').after(4_999)).toBe(5_000)
})

it.each<[When, string]>([
  [{}, 'either `cron`'],
  [{ cron: '* * * * *', every: '1s' }, 'either `cron`'],
  [{ every: '10s', zone: 'UTC' }, '`zone` goes with `cron`'],
  [{ every: '500ms' }, 'from 1 s'],
  [{ every: '400d' }, 'from 1 s'],
  [{ cron: '' }, 'five fields'],
  [{ cron: '2026-01-01T00:00:00' }, 'five fields'],
  [{ cron: `${'1,'.repeat(150)}1 * * * *` }, 'five fields'],
  [{ cron: 5 as unknown as string }, 'five fields'],
  [{ cron: '61 * * * *' }, 'Invalid value for minute: 61'],
  [{ cron: '* * * *' }, 'cannot be read'],
  [{ cron: '0 0 0 1 1 * 2030' }, 'cannot be read'],
  [{ cron: '@reboot' }, 'not supported'],
  [{ cron: '0 0 30 2 *' }, 'names no day that ever comes'],
  [{ cron: '* * * * *', zone: 'Europe/Berln' }, 'not known here'],
  [{ cron: '* * * * *', zone: '+02:00' }, 'not known here'],
])('%j is refused: %s', (when, why) => {
  expect(() => timing(when)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_SCHEDULE' }))
  expect(() => timing(when)).toThrow(why)
})

/** The local time in a zone, computed in another way than by the code under test. */
function shown(zone: string): (ms: number) => { wall: number; fields: number[] } {
  const format = new Intl.DateTimeFormat('sv-SE', { timeZone: zone, dateStyle: 'short', timeStyle: 'medium' })
  return (ms) => {
    const text = format.format(ms).replace(' ', 'T')
    const at = new Date(`${text}Z`)
    return {
      wall: at.getTime(),
      fields: [at.getUTCMinutes(), at.getUTCHours(), at.getUTCDate(), at.getUTCMonth() + 1, at.getUTCDay()],
    }
  }
}

/** A field as text, and the values that it means. */
const field = (low: number, high: number) => fc.oneof(anyOf(low), someOf(low, high))
const anyOf = (low: number) =>
  fc.oneof(
    fc.constant({ text: '*', has: () => true }),
    fc.integer({ min: 2, max: 7 }).map((n) => ({ text: `*/${n}`, has: (v: number) => (v - low) % n === 0 })),
  )
const someOf = (low: number, high: number) =>
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc
        .uniqueArray(fc.integer({ min: low, max: high }), { minLength: 1, maxLength: 3 })
        .map((list) => ({ text: list.join(','), has: (v: number) => list.includes(v) })),
    },
    fc
      .tuple(fc.integer({ min: low, max: high }), fc.integer({ min: low, max: high }))
      .map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const)
      .map(([a, b]) => ({ text: `${a}-${b}`, has: (v: number) => v >= a && v <= b })),
  )
const fields = fc.tuple(field(0, 59), fc.oneof(field(0, 23), someOf(1, 3)), field(1, 31), field(1, 12), field(0, 6))
type Fields = typeof fields extends fc.Arbitrary<infer F> ? F : never

/** Checks every minute. With named hours, a local minute counts when it first occurs, or is just skipped. */
function oracle(all: Fields, zone: string, fromMs: number, untilMs: number): number[] {
  const look = shown(zone)
  const matches = (values: number[]) => {
    const [minute, hour, day, month, weekday] = all.map((each, i) => each.has(values[i] ?? -1))
    const isAnyDay = all[2].text === '*' || all[4].text === '*'
    return minute && hour && month && (isAnyDay ? day && weekday : day || weekday)
  }
  const isAnyHour = all[1].text.startsWith('*')
  const found: number[] = []
  const begunMs = fromMs - 2 * hourMs
  let latest = look(begunMs).wall
  for (let ms = begunMs + 60_000; ms <= untilMs; ms += 60_000) {
    const { wall, fields: values } = look(ms)
    const isNew = wall > latest
    let is = isAnyHour ? matches(values) : isNew && matches(values)
    for (let lost = latest + 60_000; !isAnyHour && lost < wall; lost += 60_000) {
      const at = new Date(lost)
      is ||= matches([at.getUTCMinutes(), at.getUTCHours(), at.getUTCDate(), at.getUTCMonth() + 1, at.getUTCDay()])
    }
    latest = Math.max(latest, wall)
    if (is && ms > fromMs) found.push(ms)
  }
  return found
}

/** Times at which clocks of these zones change, and others. */
const moments: Record<string, string[]> = {
  'Europe/Berlin': ['2026-03-29T01:00Z', '2026-10-25T01:00Z', '2028-02-29T12:00Z'],
  'America/New_York': ['2026-03-08T07:00Z', '2026-11-01T06:00Z', '2026-12-31T23:00Z'],
  'Australia/Lord_Howe': ['2026-04-04T15:00Z', '2026-10-03T15:30Z', '2027-02-28T23:00Z'],
  'America/Nuuk': ['2026-03-29T01:00Z', '2026-10-25T01:00Z'],
  'Asia/Kolkata': ['2026-03-29T01:00Z', '2026-12-31T18:30Z'],
  UTC: ['2026-12-31T23:30Z', '2028-02-29T00:00Z'],
}

test.each(Object.entries(moments))(
  '%s: any expression has the instants that a check of every minute finds',
  (zone, at) => {
    forAll(25, fields, fc.constantFrom(...at), fc.integer({ min: -40, max: 5 }), (all, moment, hours) => {
      const expression = all.map(({ text }) => text).join(' ')
      const fromMs = Date.parse(moment) + hours * hourMs
      const untilMs = fromMs + 48 * hourMs
      let found: number[]
      try {
        found = instants(cron(expression, zone), fromMs, untilMs, 1e5)
      } catch (error) {
        // 31 February.
        expect(String(error)).toContain('names no day')
        found = []
      }
      expect(found).toEqual(oracle(all, zone, fromMs, untilMs))
      // With a field of seconds the result is the same, whatever stands before the hour.
      if (found.length > 0) expect(instants(cron(`0 ${expression}`, zone), fromMs, untilMs, 1e5)).toEqual(found)
      // From any time in between the next instant is the same.
      const someMs = fromMs + 13 * hourMs + 1_234
      const next = found.find((ms) => ms > someMs)
      if (next !== undefined) expect(cron(expression, zone).after(someMs)).toBe(next)
    })
  },
  120_000,
)

test('the newest instants of any span are the last of all its instants', () => {
  const whens = fc.constantFrom<When>(
    { every: '1s' },
    { every: '7m' },
    { cron: '0-59 4 * * *' },
    { cron: '* 2 2 * * *' },
    { cron: '0 0 1 * *' },
  )
  forAll(30, whens, fc.integer({ min: 0, max: 20_000 }), fc.integer({ min: 1, max: 30 }), (when, span, most) => {
    const untilMs = Date.UTC(2026, 3, 2, 5)
    const all = instants(timing(when), untilMs - span * 1_000, untilMs, 1e6)
    expect(newest(timing(when), untilMs - span * 1_000, untilMs, most)).toEqual(all.slice(-most))
  })
})

test('the newest seconds of a month are found without a check of each', () => {
  const untilMs = Date.UTC(2026, 3, 2)
  const found = newest(timing({ every: '1s' }), untilMs - 30 * 24 * hourMs, untilMs, 1_000)
  expect([found.length, found[0], found.at(-1)]).toEqual([1_000, untilMs - 999_000, untilMs])
})
