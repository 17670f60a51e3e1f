import { expect, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  type AnyTask,
  type Context,
  type Failure,
  type FailureReason,
  failureReasons,
  limit,
  type Rate,
  remoteTask,
  type SendOptions,
  type Sluice,
  type SluiceEvents,
  type Task,
  task,
} from '../../src/index.ts'

// What must not compile is marked; tsc fails when a marked line does compile. The bodies also run: what misuse does
// in plain JavaScript leads to an error with a code.

const contact = z.object({
  accountId: z.string(),
  nested: z.object({ id: z.number() }),
  name: z.string().optional(),
  at: z.coerce.date(),
})
const crm = limit('crm', { rate: '100/min', by: 'accountId' })
const run = (): void => {}

it('send takes the input type of the schema, and the handler gets its output type', () => {
  const sync = task('sync', {
    input: contact,
    limits: [crm],
    run: (input) => ({ name: input.name, at: input.at.getTime() }),
  })
  expectTypeOf<Parameters<typeof sync.send>[0]>().toEqualTypeOf<z.input<typeof contact>>()
  expectTypeOf(sync).toExtend<Task<z.input<typeof contact>, { name: string | undefined; at: number }>>()
  task('sync', {
    input: contact,
    run(input, context) {
      expectTypeOf(input).toEqualTypeOf<z.output<typeof contact>>()
      expectTypeOf(context).toEqualTypeOf<Context>()
      // @ts-expect-error no such field of the input
      return input.missing
    },
  })
  const misuse = () => {
    // @ts-expect-error a field is missing
    void sync.send({ accountId: 'a', at: '2026-01-01' })
    // @ts-expect-error a field has another type
    void sync.send({ accountId: 1, nested: { id: 1 }, at: '2026-01-01' })
    // @ts-expect-error no such option
    void sync.send({ accountId: 'a', nested: { id: 1 }, at: '2026-01-01' }, { prio: 1 })
    // @ts-expect-error not a span of time
    void sync.send({ accountId: 'a', nested: { id: 1 }, at: '2026-01-01' }, { delay: '5 minutes' })
    // @ts-expect-error one of the rows lacks a field
    void sync.sendMany([{ accountId: 'a' }])
    void sync.sendMany([], { queue: ({ accountId }) => accountId })
    // @ts-expect-error no such field of the input
    void sync.sendMany([], { queue: ({ tenant }) => tenant })
    const sluice = {} as Sluice
    void sluice.send(sync, { accountId: 'a', nested: { id: 1 }, at: '2026-01-01' })
    // @ts-expect-error a field is missing
    void sluice.send(sync, { accountId: 'a' })
    // @ts-expect-error one of the rows lacks a field
    void sluice.sendMany(sync, [{ accountId: 'a' }])
    // Of any task only the schema knows what it takes.
    void sluice.send(sync as AnyTask, { accountId: 'a' })
  }
  expect(misuse).toBeTypeOf('function')
})

it('onFailed gets the input as it was sent, and no fetch', () => {
  task('told', {
    input: contact,
    run,
    onFailed({ input, reason }, context) {
      expectTypeOf(input).toEqualTypeOf<z.input<typeof contact>>()
      context.log.warn(reason)
      // @ts-expect-error no limit granted it anything
      return context.fetch
    },
  })
  // What is written for any handler still fits.
  const shared = task('shared', { run, onFailed: (failure: Failure, { log }: Context) => log.warn(failure.reason) })
  expect(shared.onFailed?.name).toBe('shared:failed')
})

it('a handler may be asynchronous, and its result is awaited', () => {
  const count = task('count', { input: z.object({}), run: async () => 3 })
  expectTypeOf(count).toExtend<Task<Record<string, never>, number>>()
  expect(count.name).toBe('count')
})

it('a task has either a handler here or a module that runs in a thread', () => {
  const thread = new URL('./work.ts', import.meta.url)
  const resize = task('resize', { input: contact, limits: [crm], fair: 'nested.id', thread })
  expectTypeOf<Parameters<typeof resize.send>[0]>().toEqualTypeOf<z.input<typeof contact>>()
  expectTypeOf(resize).toExtend<Task<z.input<typeof contact>>>()
  expect(resize.thread).toBe(thread)
  expect(() => resize.run({}, {} as Context)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_TASK' }))
  const bad = expect.objectContaining({ code: 'SLUICE_BAD_TASK' })
  // @ts-expect-error both
  expect(() => task('a', { input: contact, thread, run })).toThrow(bad)
  // @ts-expect-error a path: relative to what?
  expect(() => task('a', { input: contact, thread: './work.ts' })).toThrow(bad)
  expect(() => task('a', { input: contact, thread: new URL('https://example.org/work.ts') })).toThrow(bad)
  // @ts-expect-error the input has no field `tenant`
  task('wrong', { input: contact, limits: [limit('tenants', { rate: '5/s', by: 'tenant' })], thread })
})

it('a limit fits only inputs that have its key', () => {
  const deep = limit('deep', { rate: '5/s', by: 'nested.id' })
  const whole = limit('whole', { rate: ['5/s', '1000/day'] })
  const computed = limit('computed', { rate: '5/s', by: (input: { accountId: string }) => input.accountId.slice(0, 2) })
  task('fits', { input: contact, limits: [crm, deep, whole, computed], run })
  // @ts-expect-error the input has no field `tenant`
  task('wrong', { input: contact, limits: [limit('tenants', { rate: '5/s', by: 'tenant' })], run })
  // @ts-expect-error the input has no field `nested.key`
  task('wrong', { input: contact, limits: [limit('keys', { rate: '5/s', by: 'nested.key' })], run })
  // @ts-expect-error an object cannot be a key
  task('wrong', { input: contact, limits: [limit('objects', { rate: '5/s', by: 'nested' })], run })
  // @ts-expect-error a field that may be missing cannot be a key
  task('wrong', { input: contact, limits: [limit('names', { rate: '5/s', by: 'name' })], run })
  task('wrong', {
    input: contact,
    // @ts-expect-error the function needs another input
    limits: [limit('functions', { rate: '5/s', by: (input: { tenant: string }) => input.tenant })],
    run,
  })
  // @ts-expect-error one limit that does not fit among others that do
  task('wrong', { input: z.object({ id: z.string() }), limits: [whole, crm], run })
  expect(task('fits', { input: contact, limits: [whole], run }).limits).toEqual([whole])
})

it('a fair key is a field of the input', () => {
  expect(task('a', { input: contact, fair: 'nested.id', run }).fair).toBe('nested.id')
  // @ts-expect-error no such field
  task('a', { input: contact, fair: 'nope', run })
  // @ts-expect-error a field that may be missing
  task('a', { input: contact, fair: 'name', run })
})

it('wrong fields and malformed rates do not compile', () => {
  const rates = ['100/min', '5/s', '100/10s', '1/day', '10/m'] satisfies Rate[]
  expect(rates.map((rate) => limit('a', { rate }).rules.length)).toEqual([2, 1, 2, 1, 1])
  const bad = 'SLUICE_BAD_RATE'
  // @ts-expect-error no window
  expect(() => limit('a', { rate: '100' })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error no such unit
  expect(() => limit('a', { rate: '100/week' })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error no number
  expect(() => limit('a', { rate: 'many/min' })).toThrow(expect.objectContaining({ code: bad }))
  // To TypeScript a space is a number, so this compiles.
  expect(() => limit('a', { rate: '100 / min' })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error words
  expect(() => limit('a', { rate: '100 per minute' })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error a number is no rate
  expect(() => limit('a', { rate: 100 })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error one of several is malformed
  expect(() => limit('a', { rate: ['5/s', '5/fortnight'] })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error one of a window is malformed
  expect(() => limit('a', { window: ['5/s', '5/fortnight'] })).toThrow(expect.objectContaining({ code: bad }))
  // @ts-expect-error nothing is limited
  expect(() => limit('a', { burst: 5 })).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  // @ts-expect-error concurrency is a number
  expect(() => limit('a', { concurrency: '5' })).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  // @ts-expect-error no such field
  expect(() => limit('a', { rate: '5/s', bursts: 5 })).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_LIMIT' }))
  // @ts-expect-error a field path or a function
  expect(() => limit('a', { rate: '5/s', by: 5 }).keyOf({})).toThrow()
  // @ts-expect-error a key is a string, a number or a boolean
  expect(limit('a', { rate: '5/s', by: (input: { on: Date }) => input.on }).path).toBeUndefined()
})

it('tasks with something else as a schema, without a handler, or with unknown fields do not compile', () => {
  const input = z.object({})
  const bad = expect.objectContaining({ code: 'SLUICE_BAD_TASK' })
  expect(() => task('a', { run, input: {} as never })).toThrow(bad)
  // @ts-expect-error no handler
  expect(() => task('a', { input })).toThrow(bad)
  // @ts-expect-error not a schema
  expect(() => task('a', { input: { id: 'string' }, run })).toThrow(bad)
  const misuse = () => {
    // @ts-expect-error no such field
    task('a', { input, run, retries: 5 })
    // @ts-expect-error no such retry option
    task('a', { input, run, retry: { times: 3 } })
  }
  expect(misuse).toBeTypeOf('function')
})

it('a task without a schema has the input that its handler names', () => {
  const lookUp = task('look-up', {
    limits: [crm],
    run: async (input: { accountId: string; n?: number }) => input.n ?? 3,
  })
  expectTypeOf<Parameters<typeof lookUp.send>[0]>().toEqualTypeOf<{ accountId: string; n?: number }>()
  expectTypeOf(lookUp).toExtend<Task<{ accountId: string; n?: number }, number>>()
  const misuse = () => {
    // @ts-expect-error no such field
    void lookUp.send({ wrong: 1 })
    // @ts-expect-error one of the rows lacks a field
    void lookUp.sendMany([{ n: 1 }])
    // @ts-expect-error the input has no field that the limit needs
    task('a', { limits: [crm], run: (input: { tenant: string }) => input.tenant })
    // @ts-expect-error the handler needs another input than the schema gives
    task('a', { input: contact, run: (input: { tenant: string }) => input.tenant })
  }
  // What names no type takes anything.
  const free = task('free', { limits: [crm], fair: 'tenant', run: (input) => input.tenant })
  expectTypeOf<Parameters<typeof free.send>[0]>().toBeAny()
  expect(misuse).toBeTypeOf('function')
})

it('an input that may be {} is left out, and no other', () => {
  const free = task('free', { run: () => 1 })
  const empty = task('empty', { input: z.object({}), run: () => 1 })
  const optional = task('optional', { run: ({ n = 3 }: { n?: number }) => n })
  const remote = remoteTask('remote', { slots: 1 })
  const needy = task('needy', { input: contact, run })
  const several = task('several', { run: (all: string[]) => all.length })
  const use = async (sluice: Sluice, any: AnyTask) => {
    for (const id of [await free.send(), await empty.send(), await optional.send()])
      expectTypeOf((await sluice.waitFor(id)).result).toEqualTypeOf<number | null>()
    await remote.send()
    // @ts-expect-error fields are missing
    await needy.send()
    // @ts-expect-error a list is missing
    await several.send()
    // @ts-expect-error its input is not known
    await any.send()
    // @ts-expect-error the field has another type
    await optional.send({ n: 'three' })
    await optional.send({ n: 3 }, { delay: '1h' })
    return [free, empty, optional, remote] satisfies AnyTask[]
  }
  expectTypeOf<Parameters<typeof optional.send>[0]>().toEqualTypeOf<{ n?: number }>()
  expect(use).toBeTypeOf('function')
})

it('the reasons of failed jobs are a union', () => {
  expectTypeOf<Failure['reason']>().toEqualTypeOf<FailureReason>()
  expectTypeOf<SluiceEvents['exhausted']['reason']>().toEqualTypeOf<FailureReason>()
  expect(failureReasons).toContain('refused' satisfies FailureReason)
})

it('options that know no input fit every task, and leave its input checked', () => {
  const typed = task('a', { input: z.object({ id: z.string() }), run })
  const options: SendOptions = { delay: '1d', queue: () => 'bulk' }
  const use = async (sluice: Sluice) => {
    await typed.send({ id: 'a' }, options)
    await sluice.send(typed, { id: 'a' }, options)
    // @ts-expect-error the id is a string
    await sluice.send(typed, { id: 5 }, options)
  }
  expect(use).toBeTypeOf('function')
})
