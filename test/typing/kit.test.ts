import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { type AnyTask, type CloudEvent, event, task } from '../../src/index.ts'
import type { Limited, Refused, TestSluice } from '../../src/testing/index.ts'

it('what the kit lists has the types of the task and the event that are given', () => {
  const read = task('read', { input: z.object({ at: z.string().transform(Number) }), run: () => undefined })
  const paid = event('orders.order.paid', z.object({ order: z.string().transform(Number) }))
  const use = (t: TestSluice) => {
    expectTypeOf(t.sent(read)).resolves.toEqualTypeOf<{ at: string }[]>()
    expectTypeOf(t.limited(read)).resolves.toEqualTypeOf<Limited<{ at: string }>[]>()
    expectTypeOf(t.refused(read)).resolves.toEqualTypeOf<Refused<{ at: string }>[]>()
    expectTypeOf(t.emitted(paid)).resolves.toEqualTypeOf<CloudEvent<{ order: string }>[]>()
    expectTypeOf(t.sent(read as AnyTask)).resolves.toEqualTypeOf<unknown[]>()
    expectTypeOf(t.sent<{ id: number }>({ name: 'sent-by-sql' })).resolves.toEqualTypeOf<{ id: number }[]>()
    expectTypeOf(t.emitted({ name: 'emitted.by.sql' })).resolves.toEqualTypeOf<CloudEvent<unknown>[]>()
  }
  expect(use).toBeTypeOf('function')
})
