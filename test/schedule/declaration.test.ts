/** Schedules as code declares them: what is accepted, and what is refused at once. */
import { expect, it } from 'vitest'
import { schedule, scheduledFor } from '../../src/schedule/schedule.ts'
import { task } from '../../src/tasks/task.ts'
import { sync } from './stage.ts'

it('a schedule needs a name, a task, valid policies, and an input that fits', () => {
  const refused = (how: object, name = 'x') => {
    try {
      schedule(name, { task: sync, every: '1h', input: { account: 'a' }, ...how })
    } catch (error) {
      return `${(error as { code?: string }).code} ${(error as Error).message}`
    }
    return 'taken'
  }
  expect(refused({})).toBe('taken')
  expect(refused({}, 'no spaces')).toMatch(/^SLUICE_BAD_SCHEDULE .*its name must be/)
  expect(refused({}, 'x'.repeat(81))).toMatch(/^SLUICE_BAD_SCHEDULE/)
  expect(refused({ task: undefined })).toMatch(/^SLUICE_BAD_SCHEDULE .*needs `task`/)
  expect(refused({ catchUp: 'some' })).toMatch(/^SLUICE_BAD_SCHEDULE .*'none', 'last' or 'all'/)
  expect(refused({ overlap: 'never' })).toMatch(/^SLUICE_BAD_SCHEDULE .*'allow' or 'skip'/)
  expect(refused({ pattern: '* * * * *' })).toMatch(/^SLUICE_BAD_SCHEDULE .*no "pattern"; here it is `cron`; there are/)
  expect(refused({ tz: 'Europe/Berlin' })).toMatch(/^SLUICE_BAD_SCHEDULE .*no "tz"; here it is `zone`; there are/)
  expect(refused({ jitter: '25h' })).toMatch(/^SLUICE_BAD_SCHEDULE .*24 h at most/)
  expect(refused({ tags: Array.from({ length: 18 }, String) })).toMatch(/^SLUICE_BAD_SCHEDULE .*17 texts/)
  expect(refused({ input: { account: 5 } })).toMatch(
    /^SLUICE_INVALID_INPUT input of schedule "x" does not fit the schema of task "sync"/,
  )
  expect(refused({ input: { account: 5n } })).toMatch(/^SLUICE_BAD_PAYLOAD/)
  expect(scheduledFor({ tags: ['mine'] })).toBe(undefined)
})

it('an input that only an asynchronous schema can check is accepted, and checked when a worker starts', async () => {
  const slow = { version: 1, vendor: 'test', validate: () => Promise.reject(new Error('asked later')) } as const
  const strange = task('strange', { input: { '~standard': slow }, run: () => undefined })
  const taken = schedule('strange', { task: strange, every: '1h', input: 5 as never })
  expect(taken.inputAt(new Date('2026-06-01T12:00:30Z'))).toBe(5)
})
