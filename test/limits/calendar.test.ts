import { fn } from '../servers/fn.ts'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Calendar, type CalendarUnit, periodOf } from '../../src/core/calendar.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const hour = 3_600_000_000
const us = (iso: string): number => Date.parse(iso) * 1_000
const iso = (at: number): string => new Date(at / 1_000).toISOString().replace(':00.000Z', 'Z')
const of = (unit: CalendarUnit, zone: string, anchor?: string): Calendar => ({
  unit,
  zone,
  anchorUs: anchor === undefined ? null : us(anchor),
})
const seen = (calendar: Calendar, at: string): string => {
  const { startUs, endUs } = periodOf(calendar, us(at))
  return `${iso(startUs)} ${iso(endUs)} ${(endUs - startUs) / hour}h`
}

/** Clocks that change in the night, at midnight, over midnight, by half an hour; offsets of quarters; no changes; a day left out. */
const zones = [
  'UTC',
  'America/Los_Angeles',
  'America/New_York',
  'America/Sao_Paulo',
  'America/Santiago',
  'America/Havana',
  'America/St_Johns',
  'Australia/Lord_Howe',
  'Asia/Kathmandu',
  'Asia/Beirut',
  'Africa/Cairo',
  'Africa/Casablanca',
  'America/Nuuk',
  'Europe/Berlin',
  'Pacific/Apia',
]
const anyCalendar: fc.Arbitrary<Calendar> = fc.record({
  unit: fc.constantFrom('minute', 'hour', 'day', 'week', 'month'),
  zone: fc.constantFrom(...zones),
  anchorUs: fc.oneof(
    fc.constant(null),
    fc.integer({ min: us('2015-01-01'), max: us('2026-01-01') }).map((at) => Math.floor(at / 1_000) * 1_000),
    fc.constantFrom(...['2024-01-31T23:30:00Z', '2024-02-29T00:00:00Z', '2023-03-12T10:30:00Z'].map(us)),
  ),
})
// No later: decisions of governments reach the machines' lists of zones at different times.
const anyTime = fc.integer({ min: us('2005-01-01'), max: us('2026-01-01') })

describe('periods of the calendar', () => {
  it.each([
    [of('day', 'America/Los_Angeles'), '2026-11-01T12:00Z', '2026-11-01T07:00Z 2026-11-02T08:00Z 25h'],
    [of('day', 'America/Los_Angeles'), '2026-03-08T12:00Z', '2026-03-08T08:00Z 2026-03-09T07:00Z 23h'],
    [of('month', 'America/Los_Angeles'), '2028-02-20T12:00Z', '2028-02-01T08:00Z 2028-03-01T08:00Z 696h'],
    [of('week', 'UTC'), '2026-11-21T12:00Z', '2026-11-16T00:00Z 2026-11-23T00:00Z 168h'],
    // Midnight does not exist, and comes twice.
    [of('day', 'Asia/Beirut'), '2024-03-31T12:00Z', '2024-03-30T22:00Z 2024-03-31T21:00Z 23h'],
    [of('day', 'America/Sao_Paulo'), '2018-02-17T12:00Z', '2018-02-17T02:00Z 2018-02-18T03:00Z 25h'],
    // The clock goes back at 00:01: the day has begun by then.
    [of('day', 'America/St_Johns'), '2010-11-07T02:45Z', '2010-11-07T02:30Z 2010-11-08T03:30Z 25h'],
    // The 30th did not exist.
    [of('day', 'Pacific/Apia'), '2011-12-30T11:00Z', '2011-12-30T10:00Z 2011-12-31T10:00Z 24h'],
    [of('hour', 'Asia/Kathmandu'), '2026-11-21T12:00Z', '2026-11-21T11:15Z 2026-11-21T12:15Z 1h'],
    [of('hour', 'Australia/Lord_Howe'), '2024-04-07T13:20Z', '2024-04-07T13:00Z 2024-04-07T13:30Z 0.5h'],
    [of('month', 'UTC', '2024-01-31T09:00Z'), '2024-03-01T00:00Z', '2024-02-29T09:00Z 2024-03-31T09:00Z 744h'],
    [of('month', 'UTC', '2024-01-31T09:00Z'), '2023-11-30T08:59Z', '2023-10-31T09:00Z 2023-11-30T09:00Z 720h'],
    [of('week', 'Europe/Berlin', '2024-03-27T11:00Z'), '2024-04-01T00:00Z', '2024-03-27T11:00Z 2024-04-03T10:00Z 167h'],
    [of('hour', 'Europe/Berlin', '2024-03-27T11:20Z'), '2024-02-01T00:00Z', '2024-01-31T23:20Z 2024-02-01T00:20Z 1h'],
  ])('of %j at %s are %s', (calendar, at, expected) => expect(seen(calendar, at)).toBe(expected))

  it('follow one another, so that each instant is in exactly one', () => {
    forAll(cases(500), anyCalendar, anyTime, (calendar, at) => {
      const one = periodOf(calendar, at)
      expect(one.startUs <= at && at < one.endUs).toBe(true)
      expect(periodOf(calendar, one.endUs).startUs).toBe(one.endUs)
      expect(periodOf(calendar, one.startUs)).toEqual(one)
      expect(periodOf(calendar, one.endUs - 1)).toEqual(one)
      expect(periodOf(calendar, one.startUs - 1).endUs).toBe(one.startUs)
    })
  })
})

/** Times around both ends of each day that has not 24 hours. */
function jumps(): { at: number; zone: string }[] {
  return zones.flatMap((zone) => {
    const oddDays = (fromUs: number, toUs: number, steps: readonly CalendarUnit[]): number[] => {
      const [unit, ...finer] = steps
      if (unit === undefined) return [fromUs, toUs]
      const found: number[] = []
      for (let atUs = fromUs; atUs < toUs;) {
        const { startUs, endUs } = periodOf(of(unit, zone), atUs)
        if ((endUs - startUs) % (24 * hour) !== 0) found.push(...oddDays(startUs, endUs, finer))
        atUs = endUs
      }
      return found
    }
    const ends = oddDays(us('2009-01-01'), us('2026-01-01'), ['month', 'day'])
    return ends.flatMap((at) => [-1, 0, 1.5 * hour].map((by) => ({ at: at + by, zone })))
  })
}

describe.each(['PostgreSQL', 'PGlite'])('the store has the same periods: %s', (engine) => {
  let sluice: Sluice
  beforeAll(async () => {
    sluice = await Sluice.open({ store: engine === 'PGlite' ? 'memory:' : (await freshDatabase()).url })
  })
  afterAll(() => sluice.close())

  it('around every change of clocks', async () => {
    const some = fc.sample(fc.tuple(anyCalendar, anyTime), { numRuns: cases(800), seed: 2_026 })
    const units = ['minute', 'hour', 'day', 'week', 'month'] as const
    const asked = [
      ...some.map(([calendar, at]) => ({ calendar, at })),
      ...jumps().map(({ zone, at }, i) => ({ calendar: of(units[i % 5] ?? 'day', zone), at })),
    ]
    const rows = await sluice.db.query<{ found: [number, number] }>(
      `select json_build_array(p.starts, p.ends) as found
       from unnest($1::jsonb[], $2::bigint[]) with ordinality u (calendar, at, o)
       cross join lateral ${fn}.calendar_period(u.calendar, u.at) p order by o`,
      [asked.map(({ calendar }) => JSON.stringify(calendar)), asked.map(({ at }) => at)],
    )
    const told = asked.map(({ calendar, at }, i) => ({ calendar, at: iso(at), found: rows[i]?.found.map(iso) }))
    expect(told).toEqual(
      asked.map(({ calendar, at }) => {
        const { startUs, endUs } = periodOf(calendar, at)
        return { calendar, at: iso(at), found: [iso(startUs), iso(endUs)] }
      }),
    )
  })
})
