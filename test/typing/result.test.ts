import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { type AnyTask, type Job, type JobId, type Sluice, type Stored, task } from '../../src/index.ts'
import type { TestSluice } from '../../src/testing/index.ts'

const read = task('read', {
  input: z.object({ id: z.string() }),
  run: async ({ id }) => ({ id, at: new Date(), note: undefined as string | undefined }),
})
const count = task('count', { run: () => 3 })
interface Kept {
  id: string
  at: string
  note: string | undefined
}

it('an id has the type of the result with it, as JSON keeps that', () => {
  const use = async (sluice: Sluice, t: TestSluice) => {
    const id = await read.send({ id: 'a' })
    const sent = await sluice.send(read, { id: 'a' })
    expectTypeOf((await sluice.waitFor(sent)).result).toEqualTypeOf<Kept | null>()
    const ids = await read.sendMany([{ id: 'a' }])
    expectTypeOf(await sluice.sendMany(read, [{ id: 'a' }])).toEqualTypeOf(ids)
    const job = await sluice.waitFor(id)
    expectTypeOf(job.result).toEqualTypeOf<Kept | null>()
    if (job.state === 'done') expectTypeOf(job.result).toEqualTypeOf<Kept>()
    else expectTypeOf(job.result).toEqualTypeOf<null>()
    for (const each of ids) expectTypeOf((await sluice.jobs.get(each))?.result).toEqualTypeOf<Kept | null | undefined>()
    expectTypeOf((await t.waitFor(id)).result).toEqualTypeOf<Kept | null>()
    await sluice.sendRows(read, ['a'], {
      read: (id) => ({ input: { id } }),
      onProgress: (_, each) => expectTypeOf([...each]).toEqualTypeOf(ids),
    })
    // It is a text, and a text will do.
    const text: string = id
    expectTypeOf((await sluice.waitFor(text)).result).toEqualTypeOf<unknown>()
    const again: JobId<{ n: number }> = text
    expectTypeOf((await sluice.waitFor(again)).result).toEqualTypeOf<{ n: number } | null>()
    const other = await count.send({})
    for (const each of [id, other])
      expectTypeOf((await sluice.waitFor(each)).result).toEqualTypeOf<Kept | number | null>()
    const any = await sluice.send(read as AnyTask, {})
    expectTypeOf((await sluice.waitFor(any)).result).toEqualTypeOf<unknown>()
    // @ts-expect-error the id of a job with another result
    const wrong: JobId<{ n: number }> = id
    return [again, wrong]
  }
  expect(use).toBeTypeOf('function')
  expectTypeOf<Job['result']>().toEqualTypeOf<unknown>()
})

it('results are typed as JSON keeps them', () => {
  expectTypeOf<Stored<void>>().toEqualTypeOf<null>()
  expectTypeOf<Stored<Response>>().toEqualTypeOf<null>()
  expectTypeOf<Stored<Date[]>>().toEqualTypeOf<string[]>()
  expectTypeOf<Stored<[number, Date]>>().toEqualTypeOf<[number, string]>()
  expectTypeOf<Stored<'a' | 5 | null | undefined>>().toEqualTypeOf<'a' | 5 | null>()
  expectTypeOf<Stored<{ a?: Date; b: { c: URL }[] }>>().toEqualTypeOf<{ a?: string; b: { c: string }[] }>()
  expectTypeOf<Stored<unknown>>().toEqualTypeOf<unknown>()
  expectTypeOf<Stored<never>>().toEqualTypeOf<never>()
  // oxlint-disable-next-line typescript/no-explicit-any -- what a handler without types returns
  expectTypeOf<Stored<any>>().toBeAny()
  expect(read.name).toBe('read')
})
