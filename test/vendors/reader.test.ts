import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { Answer } from '../../src/vendors/answer.ts'
import { profiles } from '../../src/vendors/profiles.ts'
import { readerOf } from '../../src/vendors/reader.ts'
import { fixtures } from './fixtures.ts'

const answer = (status: number, headers: Record<string, string> = {}, body?: unknown): Answer => ({
  status,
  headers: new Headers(headers),
  body,
})
const general = readerOf([])

test.each(fixtures)('the reader reads $of', ({ vendor, status, headers, body, reading }) => {
  expect(readerOf([vendor]).read(answer(status, headers, body))).toEqual(reading)
})

test.each(fixtures.filter(({ body }) => body !== undefined))(
  'the reader opens the body for $of only if it matters',
  (given) => {
    const { vendor, status, headers, body } = given
    const reader = readerOf([vendor])
    if (reader.needsBody(answer(status, headers))) return
    expect(reader.read(answer(status, headers))).toEqual(reader.read(answer(status, headers, body)))
  },
)

test('a success whose headers show what remains is not opened', () => {
  const calls = (used: number) => answer(200, { 'x-shopify-shop-api-call-limit': `${used}/40` })
  expect(readerOf(['shopify']).needsBody(calls(32))).toBe(false)
  expect(readerOf(['shopify']).needsBody(calls(40))).toBe(true)
  expect(readerOf(['shopify']).needsBody(answer(200))).toBe(true)
  expect(readerOf(['github']).needsBody(answer(200, { 'x-ratelimit-remaining': '7' }))).toBe(false)
  for (const status of [200, 403, 429]) expect(general.needsBody(answer(status))).toBe(false)
})

test('every profile names the page that it follows, is documented, and has a fixture', () => {
  const docs = readFileSync('docs/vendors.md', 'utf8')
  for (const [name, { page }] of Object.entries(profiles)) {
    expect(docs).toContain(`| \`${name}\` | [`)
    expect(docs).toContain(`](${page})`)
    expect(fixtures.some(({ vendor }) => vendor === name)).toBe(true)
  }
})

test('a refusal waits as long as the longest of what is stated, and at least a second', () => {
  const wait = (headers: Record<string, string>) => general.read(answer(429, headers)).refused?.waitMs
  expect(wait({ 'retry-after': '7' })).toBe(7_000)
  expect(wait({ 'retry-after': '0' })).toBe(1_000)
  expect(wait({ 'retry-after': 'soon' })).toBeUndefined()
  expect(wait({ 'retry-after': '7', 'x-ratelimit-retry-after': '9' })).toBe(9_000)
  expect(wait({ 'retry-after': '7', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '90' })).toBe(7_000)
  for (const after of ['soon', '0', '-5'])
    expect(wait({ 'retry-after': after, 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '90' })).toBe(90_000)
  expect(wait({ 'x-ratelimit-remaining': '3', 'x-ratelimit-reset': '90' })).toBeUndefined()
  expect(wait({ 'x-ratelimit-reset': '90' })).toBe(90_000)
  expect(wait({ 'x-ratelimit-remaining-minute': '0', 'x-ratelimit-reset-minute': '20' })).toBe(20_000)
  expect(wait({ 'x-ratelimit-remaining': '5, 0', 'x-ratelimit-reset': '20, 90' })).toBe(90_000)
})

test('401 and 403 that refuse nothing concern the credential', () => {
  expect(general.read(answer(401))).toEqual({ counts: [], credential: 'rejected' })
  expect(general.read(answer(403))).toEqual({ counts: [], credential: 'forbidden' })
  expect(general.read(answer(404))).toEqual({ counts: [] })
  expect(readerOf(['github']).read(answer(403, { 'retry-after': '5' }))).not.toHaveProperty('credential')
})

test('a call under limits of two vendors is read by both profiles, and waits for the longer one', () => {
  const both = readerOf(['openai', 'github', 'openai', undefined])
  const headers = { 'retry-after-ms': '90000', 'x-ratelimit-remaining': '3', 'x-ratelimit-remaining-tokens': '0' }
  const { refused, counts } = both.read(answer(429, headers))
  expect(refused).toEqual({ waitMs: 90_000, policy: 'tokens', reason: '429 (tokens)' })
  expect(counts).toEqual([
    { policy: 'tokens', unit: 'tokens', remaining: 0 },
    { unit: 'requests', remaining: 3, isFixed: true },
  ])
})

test('a function adds a refusal, a longer wait and counts, beside the profile', () => {
  const own = readerOf([
    'slack',
    ({ status, body }) => ({
      ...(body === 'busy' || status === 429
        ? { refused: { waitMs: 5_000.2, policy: 'seats', reason: 'all busy' } }
        : {}),
      counts: [{ unit: 'requests', limit: 10, remaining: 12 }],
    }),
  ])
  expect(own.needsBody(answer(200))).toBe(true)
  expect(own.read(answer(200, {}, 'busy'))).toEqual({
    refused: { waitMs: 5_001, policy: 'seats', reason: 'all busy' },
    counts: [{ unit: 'requests', limit: 10, remaining: 10 }],
  })
  expect(own.read(answer(429, { 'retry-after': '30' })).refused?.waitMs).toBe(30_000)
  expect(own.read(answer(429, { 'retry-after': '3' })).refused?.waitMs).toBe(5_001)
  expect(own.read(answer(200))).not.toHaveProperty('refused')
})

test('a negative zero is a zero', () => {
  const own = readerOf([() => ({ counts: [{ unit: 'tokens', remaining: -0, resetMs: -0 }] })])
  expect(own.read(answer(200)).counts).toEqual([{ unit: 'tokens', remaining: 0, resetMs: 0 }])
})
