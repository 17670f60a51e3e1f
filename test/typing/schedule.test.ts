import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  type AnyTask,
  type RetryPolicy,
  type Schedule,
  schedule,
  type ScheduleSpec,
  type Sluice,
  task,
  type Timing,
} from '../../src/index.ts'

// What must not compile is marked; tsc fails when a marked line does compile.
const sync = task('sync', { input: z.object({ account: z.string() }), run: () => 1 })

it('a schedule takes the options of its task, and one of two ways to define its instants', () => {
  const nightly = schedule('nightly', { task: sync, cron: '0 3 * * *', input: { account: 'a' } })
  expectTypeOf(nightly).toEqualTypeOf<Schedule>()
  expectTypeOf(nightly.spec).toEqualTypeOf<ScheduleSpec>()
  expectTypeOf(nightly.timing).toEqualTypeOf<Timing>()
  expectTypeOf(sync.retry).toEqualTypeOf<RetryPolicy>()
  const said = {
    cron: '0 3 * * *',
    zone: 'UTC',
    catchUp: 'last',
    overlap: 'allow',
    jitterMs: 0,
    input: { account: 'a' },
  }
  expect(nightly.spec).toEqual(said)
  schedule('each', { task: sync, every: '10s', input: (at) => ({ account: at.toISOString() }) })
  const misuse = (sluice: Sluice) => {
    // @ts-expect-error a field has another type
    schedule('x', { task: sync, every: '10s', input: { account: 1 } })
    // @ts-expect-error the function gives another type
    schedule('x', { task: sync, every: '10s', input: () => ({ account: 1 }) })
    // @ts-expect-error no such policy
    schedule('x', { task: sync, every: '10s', input: { account: 'a' }, catchUp: 'some' })
    // @ts-expect-error no such option of a job that is sent for an instant
    schedule('x', { task: sync, every: '10s', input: { account: 'a' }, delay: '1s' })
    void sluice.work([sync as unknown as AnyTask], { schedules: [nightly] })
  }
  expectTypeOf(misuse).toBeFunction()
})
