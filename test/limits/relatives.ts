/** Rules that are almost the same: which of them a changed limit keeps is decided in Redis, in SQL and in TypeScript. */
import fc from 'fast-check'
import { pacedRules, type Rule } from '../../src/limits/rule.ts'
import { level, places, quota, second, sliding } from './oracle.ts'

/** Calendars that differ, though most of their periods are the same; only Kathmandu's hours are others. */
const calendars = [
  ['UTC', null],
  ['Europe/London', null],
  ['America/Los_Angeles', null],
  ['Asia/Kathmandu', null],
  ['UTC', Date.UTC(2026, 0, 1) * 1_000],
  ['Europe/London', Date.UTC(2026, 0, 1) * 1_000],
] as const
const quotas = (['minute', 'hour', 'day'] as const).flatMap((unit) =>
  calendars.flatMap(([zone, anchorUs]) => [4, 8].map((s) => [quota(9, { unit, zone, anchorUs }, s * second)])),
)
const [bucket, pace] = pacedRules('a', { rate: '30/s', units: 30, windowUs: second }, 0) as [Rule, Rule]
/** Rules that are almost the same, or the same and written differently. */
const relatives: Rule[][] = [
  [level(1, 2 * second, 5)],
  [level(5, 10 * second, 5)],
  [level(5, 10 * second, 4)],
  [{ ...level(5, 10 * second, 5), classic: true }],
  [{ ...level(5, 10 * second, 5), classic: false }],
  [bucket],
  [bucket, pace],
  [bucket, { ...pace, drain: pace.drain + 1 }],
  [bucket, { ...pace, partUs: pace.partUs + 1 }],
  [sliding(9, second / 10)],
  [sliding(9, second / 5)],
  [sliding(8, second / 5)],
  [places(3)],
  [places(4)],
]
/** Rules of one limit, of which some may be the same, or almost. */
export const anyRelatives = fc
  .array(fc.oneof(fc.constantFrom(...relatives), fc.constantFrom(...quotas)), { minLength: 1, maxLength: 3 })
  .map((list) => list.flat())
