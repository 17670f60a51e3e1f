/** Opening hours: compares the store with an oracle that knows zones by Intl and checks every minute. */
import { fn } from '../servers/fn.ts'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parseHours, writtenHours } from '../../src/core/hours.ts'
import { engines, openOn } from '../claim/engine.ts'
import type { Sluice } from '../../src/sluice.ts'
import { forAll, forAllInTime } from '../for-all.ts'
import { isLong } from '../long.ts'

const minuteMs = 60_000
const dayMs = 1_440 * minuteMs
/** Zones whose clocks are all changed by quarters of an hour. */
const quarterMs = 15 * minuteMs
const runs = isLong ? 400 : 60

interface Case {
  zone: string
  days: number[] | null
  from: number
  to: number
  atMs: number
}

const formats = new Map<string, Intl.DateTimeFormat>()

/** The local time: the day (1 is Monday) and the minute of it. */
function wall(zone: string, ms: number): { day: number; minute: number } {
  const format =
    formats.get(zone) ??
    new Intl.DateTimeFormat('en-GB', { timeZone: zone, weekday: 'short', hour: '2-digit', minute: '2-digit' })
  formats.set(zone, format)
  const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]))
  return {
    day: ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'].indexOf(part['weekday'] ?? '') + 1,
    minute: (Number(part['hour']) % 24) * 60 + Number(part['minute']),
  }
}

function isOpen({ from, to, days }: Case, { day, minute }: { day: number; minute: number }): boolean {
  const begins = (on: number) => days === null || days.includes(on)
  if (from < to) return minute >= from && minute < to && begins(day)
  return (minute >= from && begins(day)) || (minute < to && begins(day === 1 ? 7 : day - 1))
}

/** The first open minute from `atMs` on. */
function opening(one: Case): number | undefined {
  if (isOpen(one, wall(one.zone, one.atMs))) return one.atMs
  for (let ms = Math.floor(one.atMs / quarterMs) * quarterMs; ms < one.atMs + 16 * dayMs; ms += quarterMs) {
    const { day, minute } = wall(one.zone, ms)
    for (let i = 0; i < 15; i++) {
      const at = ms + i * minuteMs
      if (at > one.atMs && isOpen(one, { day, minute: minute + i })) return at
    }
  }
  return undefined
}

/** Days on which clocks change, forward or back, by an hour or half of one, at night or at midnight; and some without. */
const turns: [string, string[]][] = [
  ['Europe/Berlin', ['2025-03-30', '2025-10-26', '2024-02-29']],
  ['America/New_York', ['2025-03-09', '2025-11-02']],
  ['Australia/Lord_Howe', ['2025-04-06', '2025-10-05']],
  ['America/Havana', ['2025-03-09', '2025-11-02']],
  ['Asia/Kathmandu', ['2025-06-15']],
  ['UTC', ['2024-12-31']],
]

const anyMinute = fc.oneof(
  fc.integer({ min: 0, max: 1_439 }),
  fc.integer({ min: 0, max: 12 }).map((n) => n * 15),
)

const anyCase: fc.Arbitrary<Case> = fc.constantFrom(...turns).chain(([zone, dates]) =>
  fc
    .record({
      zone: fc.constant(zone),
      days: fc.option(fc.uniqueArray(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 7 })),
      from: anyMinute,
      to: fc.oneof(anyMinute, fc.constant(1_440)),
      // Within some days of the change, often right beside it.
      atMs: fc
        .tuple(
          fc.constantFrom(...dates).map((date) => Date.parse(date)),
          fc.oneof(
            fc.integer({ min: -4 * dayMs, max: 4 * dayMs }),
            fc.integer({ min: -24, max: 60 }).map((n) => n * 2 * quarterMs),
          ),
        )
        .map(([day, offset]) => day + offset),
    })
    .filter(({ from, to }) => from !== to),
)

describe.each(engines)('opening hours on $name', (engine) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await openOn(engine)
  })
  afterAll(() => sluice.close())

  it('hold by the wall clock, exactly, over days on which clocks are changed', async () => {
    const ask = async ({ zone, days, from, to, atMs }: Case) => {
      const [row] = await sluice.db.query<{ shut: boolean; ms: number | null }>(
        `select ${fn}.is_gate_closed(g, t.at) as shut, (extract(epoch from ${fn}.find_gate_opening(g, t.at)) * 1000)::float8 as ms
         from (select ('n', null, null, $1::text, $2::smallint[], $3::integer, $4::integer, 'r', 'b', to_timestamp(0), null)::sluice.gate as g) x,
              (select to_timestamp($5::float8 / 1000) as at) t`,
        [zone, days, from, to, atMs],
      )
      return row
    }
    let closed = 0
    await forAllInTime(runs, anyCase, async (one) => {
      const expected = opening(one)
      if (expected !== one.atMs) closed++
      expect(await ask(one)).toEqual({ shut: expected !== one.atMs, ms: expected ?? null })
    })
    expect(closed).toBeGreaterThan(runs / 4)
  })

  it('never begin in a gap: the gate opens when the clocks change, or on the day of the next week', async () => {
    const on = async (days: string, from: number, to: number, at: string) => {
      const [row] = await sluice.db.query<{ until: Date | null }>(
        `select ${fn}.find_gate_opening(('n', null, null, 'Europe/Berlin', $1::smallint[], $2::integer, $3::integer, 'r', 'b', to_timestamp(0), null)::sluice.gate, $4) as until`,
        [days, from, to, at],
      )
      return row?.until?.toISOString()
    }
    // 02:00 to 03:00 does not exist on 30 March 2025, and comes twice on 26 October.
    expect(await on('{7}', 150, 600, '2025-03-29T12:00:00Z')).toBe('2025-03-30T01:00:00.000Z')
    expect(await on('{7}', 130, 170, '2025-03-29T12:00:00Z')).toBe('2025-04-06T00:10:00.000Z')
    expect(await on('{7}', 120, 150, '2025-10-25T12:00:00Z')).toBe('2025-10-26T00:00:00.000Z')
    expect(await on('{7}', 120, 150, '2025-10-26T00:30:00Z')).toBe('2025-10-26T01:00:00.000Z')
    expect(await on('{1}', 480, 1_080, '2025-10-26T00:30:00Z')).toBe('2025-10-27T07:00:00.000Z')
  })
})

it('hours that are printed are read as the same hours', () => {
  const days = fc.subarray([1, 2, 3, 4, 5, 6, 7], { minLength: 1 })
  const [fromMin, toMin] = [fc.integer({ min: 0, max: 1_439 }), fc.integer({ min: 0, max: 1_440 })]
  forAll(fc.record({ fromMin, toMin, days, zone: fc.constant('UTC') }), (hours) => {
    fc.pre(hours.fromMin !== hours.toMin)
    expect(parseHours(writtenHours(hours))).toEqual(hours)
  })
  expect(writtenHours({ fromMin: 480, toMin: 1_440, days: [1, 2, 3, 6, 7], zone: 'UTC' })).toMatchObject({
    to: '24:00',
    days: 'Mon-Wed,Sat,Sun',
  })
})
