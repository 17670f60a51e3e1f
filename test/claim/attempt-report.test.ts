import { expect, it } from 'vitest'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import { encodeReport } from '../../src/claim/finish/attempt-report.ts'
import { hash64 } from '../../src/core/hash.ts'

const executor = { worker: '12', host: 'web-1', version: '0.1.0' }
const job = (more: Partial<ClaimedJob> = {}) =>
  ({ attempt: 1, buckets: ['crm:a1', 'total'], chargedBuckets: null, blocker: null, ...more }) as ClaimedJob
const report = (...args: Parameters<typeof encodeReport>) => JSON.parse(encodeReport(...args) ?? 'null')

it('a plain success at first try leaves nothing, nor does a job whose handler was not called', () => {
  expect(report(job(), { kind: 'done', tookMs: 5 }, executor)).toBeNull()
  expect(report(job({ attempt: 3 }), { kind: 'unused' }, executor)).toBeNull()
  expect(report(job({ attempt: 3 }), { kind: 'discard', tookMs: 0 }, executor)).toBeNull()
})

it('any other attempt leaves where it ran and which of its limits it waited for', () => {
  const ran = { ms: 5, w: 12, host: 'web-1', v: '0.1.0' }
  expect(report(job({ attempt: 2 }), { kind: 'done', tookMs: 5.2 }, executor)).toEqual([ran])
  const blocked = job({ blocker: hash64('total') })
  expect(report(blocked, { kind: 'retry', tookMs: 5 }, executor)).toEqual([{ ...ran, by: 1 }])
  // The limit is no longer one of the job's.
  expect(report(job({ blocker: '7' }), { kind: 'retry', tookMs: 5 }, executor)).toEqual([ran])
})

it('a success at first try leaves what the handler settled and reported', () => {
  const outcome = { kind: 'done', tookMs: 5, report: { settled: [null, 7], notes: '{"progress":[1,2]}' } }
  expect(report(job(), outcome, executor)).toMatchObject([{ settled: [null, 7] }, { progress: [1, 2] }])
})

it('another program that ran the attempt is named in place of the process that claimed the job', () => {
  const by = { worker: 'celery@host\u0000', host: 'h'.repeat(100), version: '5.5' }
  expect(report(job(), { kind: 'failed', tookMs: 5, report: { by } }, executor)).toEqual([
    { ms: 5, w: 'celery@host', host: 'h'.repeat(63), v: '5.5' },
  ])
  expect(report(job(), { kind: 'failed', tookMs: 5 }, undefined)).toEqual([{ ms: 5, host: '', v: '' }])
})
