import { expect, it } from 'vitest'
import { output } from '../../src/cli/output.ts'
import { redactJob } from '../../src/cli/record.ts'
import { writeJob } from '../../src/cli/show.ts'
import type { Job, JobAttempt } from '../../src/index.ts'

const at = (second: number) => new Date(Date.UTC(2030, 0, 1, 12, 0, second))
const attempt = (n: number, more: Partial<JobAttempt> = {}): JobAttempt => ({
  attempt: n,
  startedAt: at(n),
  endedAt: new Date(at(n).getTime() + 120),
  outcome: 'retried',
  error: { message: 'crm said 503' },
  waitedMs: 3_200,
  waitedFor: 'crm:a1',
  retryInMs: 1_000,
  units: [{ limit: 'crm:a1', charged: 1, settled: null }],
  worker: '12',
  host: 'worker-7d9',
  version: '0.1.0',
  ...more,
})
const job: Job = {
  id: '01a20690-51ca-739f-b492-c35359209b9c',
  state: 'failed',
  reason: 'exhausted',
  task: 'sync-contact',
  queue: 'default',
  priority: 0,
  attempt: 45,
  throttled: 0,
  failed: 45,
  crashes: 0,
  ambiguous: false,
  createdAt: at(0),
  dueAt: null,
  dispatchedAt: at(5),
  startedAt: at(5),
  finishedAt: at(50),
  limits: ['crm:a1'],
  tags: [],
  input: { accountId: 'a1', password: 'hunter2' },
  result: null,
  error: {
    message: 'crm said 503',
    stack: 'Error: crm said 503\n    at run (tasks.ts:1)',
    cause: { message: 'reset' },
  },
  weight: 1,
  expiresAt: null,
  ruled: [],
  worker: null,
  attempts: [attempt(1), attempt(2), attempt(45, { outcome: 'failed', retryInMs: null, waitedFor: null })],
  progress: { done: 120, total: 400 },
  log: {
    lines: [{ at: at(5), level: 'warn', message: 'late', details: { authorization: 'x'.repeat(20) } }],
    omitted: 3,
  },
}

/** The lines that the command writes about a job. */
function linesOf(of: Job): string {
  const lines: string[] = []
  const out = { ...output({ color: false }), line: (text: string) => void lines.push(text.trimEnd()) }
  out.table = (rows) => rows.forEach((row) => out.line(row.join(' | ')))
  writeJob(redactJob(of), out, at(60).getTime())
  return lines.join('\n')
}

it('a record is written for people, without secrets', () => {
  expect(linesOf(job)).toBe(`sync-contact 01a20690-51ca-739f-b492-c35359209b9c failed (exhausted)
queue     default
limits    crm:a1
sent      2030-01-01 12:00:00Z (60 s ago)
progress  30 % (120 of 400)
ended     2030-01-01 12:00:50Z (10 s ago)
failures  45 of 45 attempts

ATTEMPT | BEGAN | TOOK | WAITED | OUTCOME | WHERE | ERROR
1 | 2030-01-01 12:00:01Z | 120 ms | 3.2 s for crm:a1 | retried in 1 s | worker-7d9 #12 0.1.0 | crm said 503
2 | 2030-01-01 12:00:02Z | 120 ms | 3.2 s for crm:a1 | retried in 1 s | worker-7d9 #12 0.1.0 | crm said 503
…
45 | 2030-01-01 12:00:45Z | 120 ms | 3.2 s | failed | worker-7d9 #12 0.1.0 | crm said 503

last error
  Error: crm said 503
      at run (tasks.ts:1)
  caused by
  Error: reset

log of the last attempt (3 earlier lines were not kept)
  12:00:05.000 warn  late {"authorization":"[redacted]"}

input
  {
    "accountId": "a1",
    "password": "[redacted]"
  }`)
})

it('a running job is written with where it runs, and units only if they are more than one for a call', () => {
  const units = [{ limit: 'tpm', charged: 900, settled: 812 }]
  const text = linesOf({
    ...job,
    state: 'running',
    reason: null,
    error: null,
    finishedAt: null,
    worker: { id: '7', host: 'web-1', pid: 42, version: '0.1.0' },
    attempts: [attempt(1, { outcome: 'running', endedAt: null, waitedMs: null, units })],
  })
  expect(text).toContain('running   since 2030-01-01 12:00:05Z (55 s ago) on web-1, pid 42, worker 7 (0.1.0)')
  expect(text).toContain('| tpm 900 settled 812 |')
})
