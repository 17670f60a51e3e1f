import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Answer, Reading } from '../../src/vendors/answer.ts'
import { profiles, type VendorName } from '../../src/vendors/profiles.ts'
import { type Answers, readerOf } from '../../src/vendors/reader.ts'
import { minWaitMs } from '../../src/vendors/time.ts'
import { fixtures } from './fixtures.ts'
import { forAll } from '../for-all.ts'
import { cases } from '../long.ts'

const capMs = 600_000
const names = Object.keys(profiles) as VendorName[]
const vendors: (VendorName | undefined)[] = [undefined, ...names]

/** Header names that some row reads, and some that none does. */
const headerNames = [
  ...new Set([
    ...fixtures.flatMap(({ headers }) => Object.keys(headers)),
    'date',
    'retry-after',
    'retry-after-ms',
    'x-ratelimit-retry-after',
    'x-ratelimit-reset-day',
    'x-unknown',
  ]),
]
const bodies = fixtures.flatMap(({ body }) => (body === undefined ? [] : [body]))

const number = fc.oneof(
  fc.integer(),
  fc.double(),
  fc.constantFrom(-1, 0, 0.5, 1e9, 1e11, 1e14, 2 ** 53, 2 ** 63, Number.MAX_VALUE, Number.MIN_VALUE),
)
const text = fc.oneof(
  fc.string(),
  number.map(String),
  fc.stringMatching(/^\d{1,400}$/),
  fc.stringMatching(/^[-"\w;=,: .?@*%&\\/()]{0,80}$/),
  fc.tuple(number, number).map(([used, limit]) => `${used}/${limit}`),
  fc.tuple(number, number, number).map(([r, t, w]) => `"a";r=${r};t=${t};q=${r};w=${w}`),
  fc.tuple(number, number, number).map(([l, r, t]) => `limit=${l}, remaining=${r}, reset=${t}`),
  fc.constantFrom(...fixtures.flatMap(({ headers }) => Object.values(headers))),
)
const headerText = text.map((value) => value.replaceAll(/[^ -~]/g, ''))
const headers = fc.dictionary(fc.constantFrom(...headerNames), headerText, { maxKeys: 12 })
const status = fc.oneof(fc.constantFrom(200, 400, 401, 403, 429, 503, 529), fc.integer({ min: 200, max: 599 }))

/** A copy of a documented body in which any of the values is replaced. */
const body = fc.oneof(
  fc.anything(),
  fc
    .tuple(fc.constantFrom(...bodies), fc.func(fc.option(fc.oneof(number, text, fc.anything()))))
    .map(([from, by]) => JSON.parse(JSON.stringify(from), (name, value: unknown) => by(name, value) ?? value)),
)
const options = fc.record({ wallMs: fc.oneof(number, fc.constant(Date.UTC(2026, 10, 21))), capMs: fc.constant(capMs) })

const answerOf = (code: number, fields: Record<string, string>, content?: unknown): Answer => ({
  status: code,
  headers: new Headers(fields),
  body: content,
})

/** Holds a reading to what later steps rely on. */
function expectSound({ refused, counts }: Reading) {
  if (refused !== undefined) expect(refused.reason).toMatch(/^[ -~]{1,110}$/)
  if (refused?.waitMs !== undefined) {
    expect(Number.isInteger(refused.waitMs)).toBe(true)
    expect(refused.waitMs).toBeGreaterThanOrEqual(minWaitMs)
    expect(refused.waitMs).toBeLessThanOrEqual(capMs)
  }
  for (const { limit, remaining, resetMs, windowMs } of counts) {
    for (const figure of [limit, remaining, resetMs, windowMs])
      expect(figure === undefined || (Number.isSafeInteger(figure) && figure >= 0 && !Object.is(figure, -0))).toBe(true)
    expect(limit ?? 1).toBeGreaterThanOrEqual(1)
    expect(windowMs ?? 1).toBeGreaterThanOrEqual(1)
    expect(remaining ?? 0).toBeLessThanOrEqual(limit ?? Infinity)
    expect(resetMs ?? 0).toBeLessThanOrEqual(capMs)
  }
}

test.each(vendors)('a thousand malformed answers of %s: nothing is thrown, and every figure can be used', (vendor) => {
  const reader = readerOf([vendor])
  forAll(cases(1_000), status, headers, body, options, (code, fields, content, times) => {
    const answer = answerOf(code, fields, content)
    reader.needsBody(answer)
    const reading = reader.read(answer, times)
    expectSound(reading)
    expect(reader.read(answer, times)).toEqual(reading)
    if (code === 429) expect(reading.refused).toBeDefined()
  })
})

test.each(fixtures.filter(({ reading }) => reading.refused !== undefined))(
  'whatever else stands in it, it stays a refusal and waits no less: $of',
  ({ vendor, status: code, headers: fields, body: content }) => {
    const reader = readerOf([vendor])
    const plain = reader.read(answerOf(code, fields, content), { capMs }).refused
    const junk = headers.map((more) => ({ ...more, ...fields }))
    forAll(junk, (all) => {
      // Where the answer states no time of its own, another header may state one; that is no junk.
      const { refused } = reader.read(answerOf(code, all, content), { capMs })
      expect(refused).toBeDefined()
      if (fields['retry-after'] !== undefined) expect(refused?.waitMs).toBeGreaterThanOrEqual(plain?.waitMs ?? 0)
    })
  },
)

test('a function that is wrong in any way loosens nothing: its result is checked', () => {
  const { proxy } = Proxy.revocable({}, {})
  const wrong: fc.Arbitrary<Answers> = fc.oneof(
    fc.func(fc.anything()),
    fc.func(fc.record({ refused: fc.anything(), counts: fc.anything(), credential: fc.anything() })),
    fc.func(
      fc.record({
        refused: fc.record({ waitMs: number, policy: fc.string(), reason: fc.string() }, { requiredKeys: [] }),
        counts: fc.array(fc.record({ unit: fc.string(), limit: number, remaining: number, resetMs: number })),
      }),
    ),
    fc.constant(() => {
      throw new Error('a bug')
    }),
    fc.constant(() => Promise.reject(new Error('not awaited')).catch(() => {})),
    fc.constant(() => proxy),
  ) as fc.Arbitrary<never>
  forAll(
    cases(1_000),
    fc.constantFrom(...vendors),
    wrong,
    status,
    headers,
    body,
    (vendor, own, code, fields, content) => {
      const answer = answerOf(code, fields, content)
      const alone = readerOf([vendor]).read(answer, { capMs })
      const reading = readerOf([vendor, own]).read(answer, { capMs })
      expectSound(reading)
      if (alone.refused === undefined) return
      expect(reading.refused?.waitMs ?? 0).toBeGreaterThanOrEqual(alone.refused.waitMs ?? 0)
      expect(reading.refused).toBeDefined()
    },
  )
})

test('a body with more figures than a call may have arguments is read', () => {
  const details = Array.from({ length: 300_000 }, (_, n) => ({ retryDelay: `${n % 60}s` }))
  const { refused } = readerOf(['google']).read(answerOf(429, {}, { error: { details } }))
  expect(refused?.waitMs).toBe(59_000)
})
