/** What reports of stock workers mean, without any of them. */
import * as fc from 'fast-check'
import { expect, it } from 'vitest'
import type { TaskResult } from '../../src/celery/result.ts'
import { CeleryTaskError } from '../../src/celery/result.ts'
import { type Call, type Meaning, readMeaning } from '../../src/remote/call.ts'
import { answerIn } from '../../src/remote/answer.ts'
import { errorOf, messageOf, pythonError, resultOf } from '../../src/remote/job-message.ts'
import { Skew } from '../../src/remote/skew.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { task } from '../../src/tasks/task.ts'
import { forAll } from '../for-all.ts'

const result = (state: string, value: unknown = null): TaskResult => ({ id: 'a', state, value, traceback: undefined })
const began = (pid: number) => result('STARTED', { pid, hostname: 'celery@here' })
const failed = (type: string) => result('FAILURE', { type, module: 'm', args: [] })
const revoked = (why: string) => result('REVOKED', { type: 'TaskRevokedError', module: 'm', args: [why] })
const all = (...results: TaskResult[]): Meaning[] => {
  const call: Call = { by: undefined, retry: undefined }
  return results.map((one) => readMeaning(call, one))
}

it.each([
  ['a success', [began(1), result('SUCCESS', 5)], ['begun', 'done']],
  ['a success of which the start was not seen', [result('SUCCESS', 5)], ['done']],
  ['an error', [began(1), failed('ValueError')], ['begun', 'failed']],
  ['one that expired before it began', [result('REVOKED')], ['uncalled']],
  ['one that no worker knows', [failed('NotRegistered')], ['uncalled']],
  ['one that was delivered again after its time', [began(1), revoked('expired')], ['begun', 'back']],
  [
    'one that goes on, though its worker was cut off',
    [began(1), revoked('expired'), result('SUCCESS', 5)],
    ['begun', 'back', 'done'],
  ],
  ['one whose process was ended', [began(1), revoked('terminated')], ['begun', 'lost']],
  ['one that was delivered again in time', [began(1), began(2)], ['begun', 'begun again']],
  ['a start that is reported twice', [began(1), began(1)], ['begun', 'nothing']],
  ['one whose process died', [began(1), failed('WorkerLostError')], ['begun', 'lost']],
  ['one whose reports cannot be read', [result('UNREADABLE'), result('UNREADABLE')], ['begun', 'nothing']],
  ['its own retry, stopped', [began(1), result('RETRY'), result('REVOKED')], ['begun', 'retries', 'retried']],
  ['its own retry, not stopped', [began(1), result('RETRY'), began(1)], ['begun', 'retries', 'ungranted']],
])('a dispatcher knows what became of %s', (_what, results, meanings) => {
  expect(all(...results)).toEqual(meanings)
})

it('a dispatcher never takes a call that was begun for one that was not made', () => {
  const some = fc.constantFrom(
    result('UNREADABLE'),
    began(1),
    began(2),
    result('RETRY'),
    result('REVOKED'),
    revoked('expired'),
    failed('NotRegistered'),
    failed('E'),
  )
  forAll(fc.array(some, { maxLength: 8 }), (results) => {
    const at = all(...results).indexOf('uncalled')
    const begun = results.slice(0, at < 0 ? 0 : at).filter(({ state }) => ['STARTED', 'UNREADABLE'].includes(state))
    expect(begun).toEqual([])
  })
})

it('a dispatcher finds how far a clock is off from the events that took least, within what these took', () => {
  const event = fc.record({ everyMs: fc.nat(3_000), tookMs: fc.nat(500) })
  forAll(fc.integer({ min: -5_000, max: 5_000 }), fc.array(event, { minLength: 1 }), (offMs, events) => {
    const skew = new Skew()
    let nowMs = 1_000_000
    for (const { everyMs, tookMs } of events) {
      const sentMs = (nowMs += everyMs)
      nowMs += tookMs
      skew.recordEvent(sentMs + offMs, { wallMs: nowMs, monotonicMs: nowMs - 777 })
    }
    const least = Math.min(...events.slice(-3).map(({ tookMs }) => tookMs))
    expect(skew.aheadMs({ wallMs: nowMs + 9, monotonicMs: nowMs - 768 })).toBe(offMs - least)
  })
})

it('a dispatcher does not know how far a clock is off from when its own is set until the next event', () => {
  const skew = new Skew()
  expect(skew.aheadMs({ wallMs: 1_000, monotonicMs: 0 })).toBe(undefined)
  skew.recordEvent(1_000, { wallMs: 1_001, monotonicMs: 1 })
  expect(skew.aheadMs({ wallMs: 2_000, monotonicMs: 1_000 })).toBe(-1)
  expect(skew.aheadMs({ wallMs: 7_000, monotonicMs: 1_000 })).toBe(undefined)
  skew.recordEvent(3_000, { wallMs: 8_001, monotonicMs: 2_001 })
  expect(skew.aheadMs({ wallMs: 8_001, monotonicMs: 2_001 })).toBe(-5_001)
})

it('a dispatcher gives Python the input as its arguments, and tells it of the job', () => {
  const sync = task('shop.sync', { run: () => undefined, timeout: '90s' })
  const job = { id: 'j', attempt: 2, ambiguous: true, priority: 7, admitted: 0 } as ClaimedJob
  const of = (input: unknown) => messageOf(job, sync, input, { id: 'c', expiresMs: 5, replyTo: 'r' })
  expect(of({ a: 1 })).toMatchObject({
    args: [],
    kwargs: { a: 1 },
    task: 'shop.sync',
    id: 'c',
    rootId: 'j',
    expiresMs: 5,
    priority: 7,
  })
  expect(messageOf({ ...job, priority: -3 }, sync, 1, { id: 'c', expiresMs: 5, replyTo: 'r' }).priority).toBe(0)
  expect(of([1, 2])).toMatchObject({ args: [1, 2], kwargs: {} })
  expect(of('one')).toMatchObject({ args: ['one'], kwargs: {} })
  expect(of(null)).toMatchObject({ args: [], kwargs: {}, softLimitS: 90, hardLimitS: 92 })
  expect(of(null).headers).toEqual({ sluice_job: 'j', sluice_attempt: 2, sluice_ambiguous: true })
})

it('a dispatcher passes on the time limit of the message that a job comes from, which is final', () => {
  const sync = task('shop.sync', { timeout: '90s', run: () => undefined })
  const job = { id: 'j', attempt: 2, ambiguous: true, priority: 7 } as ClaimedJob
  const sent = (timeoutMs: number) => ({ task: sync, id: 'c', job: { ...job, admitted: [{ timeoutMs }] } })
  const limits = ({ job: limited }: { job: ClaimedJob }) =>
    messageOf(limited, sync, null, { id: 'c', expiresMs: 5, replyTo: 'r' })
  const late = failed('SoftTimeLimitExceeded')
  expect(limits(sent(29_500))).toMatchObject({ softLimitS: 30, hardLimitS: 32 })
  expect(errorOf(sent(29_500), late)).toMatchObject({ code: 'SLUICE_TIMEOUT', retryable: false })
  expect(limits(sent(100_000))).toMatchObject({ softLimitS: 90, hardLimitS: 92 })
  expect(errorOf(sent(100_000), late)).toMatchObject({ code: 'SLUICE_TIMEOUT', retryable: true })
})

it('a dispatcher keeps every result of Python, and the end of a traceback', () => {
  const any = task('any', { run: () => undefined })
  expect(resultOf({ big: 2n ** 60n, nan: Number.NaN, text: 'a\u0000b', list: [null, 1.5] }, any)).toBe(
    '{"big":"1152921504606846976","nan":"NaN","text":"a\ufffdb","list":[null,1.5]}',
  )
  expect(resultOf(null, any)).toBe(null)
  const traceback = `${'x'.repeat(5_000)}KeyError: 7`
  const error = new CeleryTaskError('a', { type: 'KeyError', args: [7] }, { isRevoked: false, traceback })
  expect(pythonError(error)).toMatchObject({ name: 'KeyError', message: '7', code: 'SLUICE_CELERY_FAILED' })
  expect(pythonError(error).stack).toMatch(/^x+KeyError: 7$/)
  const deep = Array.from({ length: 50_000 }).reduce<unknown>((inner) => [inner], 1)
  const odd = new CeleryTaskError('a', { type: 'KeyError', args: [deep, 7n] }, { isRevoked: false })
  expect(pythonError(odd).message).toBe('(nested too deep), "7"')
})

it.each([
  [
    'of the documented class',
    [429, { 'Retry-After': '7', 'X-N': 3 }],
    '',
    { status: 429, headers: { 'Retry-After': '7', 'X-N': '3' } },
  ],
  ['with an object', ['no', { status_code: 503, headers: { a: 'b' } }], '', { status: 503, headers: { a: 'b' } }],
  [
    'of urllib',
    [],
    'Traceback …\nurllib.error.HTTPError: HTTP Error 429: Too Many Requests\n',
    { status: 429, headers: {} },
  ],
  ['of requests', ['429 Client Error: Too Many Requests for url: https://x'], '', { status: 429, headers: {} }],
  ['of httpx', ["Client error '429 Too Many Requests' for url 'https://x'"], '', { status: 429, headers: {} }],
  [
    'of aiohttp',
    [],
    "Traceback …\naiohttp.client_exceptions.ClientResponseError: 401, message='no', url='x'",
    { status: 401, headers: {} },
  ],
  ['about something else', ['no such row', 7, 200, {}, 'error 429'], 'Traceback …\nLookupError: 429', undefined],
])('a dispatcher reads the answer of the vendor in an exception %s', (_what, args, traceback, answer) => {
  expect(answerIn({ args, traceback })).toEqual(answer)
})
