/** A task with a limit, and a schedule for it. */
import { z } from 'zod'
import { limit } from '../../src/limits/limit.ts'
import { type Schedule, schedule, type ScheduleOptions } from '../../src/schedule/schedule.ts'
import { task } from '../../src/tasks/task.ts'

/** Its limit. */
export const crm = limit('crm', { rate: '100/min', by: 'account' })
/** The task. */
export const sync = task('sync', { input: z.object({ account: z.string() }), limits: [crm], run: () => undefined })
/** A schedule with an instant each minute. */
export const minutely = (more: Partial<ScheduleOptions<{ account: string }>> = {}, name = 'minutely'): Schedule =>
  schedule(name, { task: sync, cron: '* * * * *', input: { account: 'a1' }, ...more })
