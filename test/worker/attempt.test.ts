/** The meaning of an attempt's error, and when its job is retried. */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { z } from 'zod'
import {
  type AnyTask,
  AttemptError,
  type Context,
  limit,
  rateLimited,
  StoreError,
  task,
  UsageError,
} from '../../src/index.ts'
import { type Store, storeOn } from '../../src/db/store.ts'
import { silent } from '../../src/core/log.ts'
import { watch } from '../../src/core/test-points.ts'
import { readMoment, StoreClock, systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { Outcome } from '../../src/claim/finish/outcome.ts'
import { createAgent, type GuardedAgent } from '../../src/http/agent.ts'
import { Guard } from '../../src/http/guard.ts'
import { marginsOf } from '../../src/claim/definitions/margins.ts'
import { Attempt } from '../../src/worker/attempt.ts'
import { createAttemptParts } from '../../src/worker/grant-source.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { GiveBackCounter } from '../../src/worker/give-backs.ts'
import { NoteBook } from '../../src/worker/notes.ts'
import { StuckHandlers } from '../../src/worker/stuck.ts'
import { httpServer } from '../http/bench.ts'
import { until } from '../until.ts'
import { patient } from './patience.ts'
import { freshSluice } from '../servers/sluice.ts'

let copy: { rateLimited: typeof rateLimited }
const errors: Record<string, () => unknown> = {
  plain: () => new Error('as a handler throws it'),
  store: () => new StoreError('SLUICE_STORE_UNREACHABLE', 'a follow-up could not be recorded'),
  // A second copy of the package, as a dependency may bring it: its classes are not ours.
  copied: () => copy.rateLimited(100),
  odd: () => Object.assign(new Error(), { name: undefined, message: { no: 'text' }, stack: 7 }),
  unreadable: () =>
    new Proxy(new Error(), {
      get: () => {
        throw new Error('no')
      },
    }),
  cut: () => new Error(`${'x'.repeat(2_047)}\u{1f600}\u0000`),
  ...Object.fromEntries(
    [NaN, -Infinity].map((retryAfterMs) => [
      `after ${retryAfterMs}`,
      () => new AttemptError('SLUICE_RATE_LIMITED', 'as if', { retryable: true, retryAfterMs }),
    ]),
  ),
  usage: () => new UsageError('SLUICE_INVALID_INPUT', 'a follow-up that no repetition makes valid'),
}
/** The worker has claimed, found nothing, and sleeps until something happens. */
let isIdle = false
let fail: (kind: string) => unknown
const failing = task('failing', {
  input: z.object({ kind: z.string() }),
  retry: { attempts: 2, base: 1, max: 1 },
  run: async ({ kind }, { attempt }) => {
    if (attempt === 1) throw await fail(kind)
  },
})
const outside = { checkOutside() {} } as unknown as Db
const rulebook = new Rulebook()
const on = (store: Store) => createAttemptParts({ store, storeClock: new StoreClock(), peer: undefined, rulebook })
const around = {
  ...on(storeOn(outside)),
  agent: {} as GuardedAgent,
  patience: new GiveBackCounter(),
  rulebook,
  stuck: new StuckHandlers({ clock: systemClock, log: silent, most: 1, changed() {} }),
  notes: new NoteBook(),
}
const handout = (job: Partial<ClaimedJob>) =>
  ({
    id: 'a',
    claim: 'c',
    grantedMs: systemClock.monotonicMs(),
    buckets: null,
    input: {},
    failed: 0,
    admitted: 0,
    ...job,
  }) as ClaimedJob

const sluice = await freshSluice({ clock: patient() })
beforeAll(async () => {
  const path = '../../dist/index.js'
  copy = (await import(path)) as typeof copy
  watch((point) => {
    if (point === 'idle' || point === 'claim.sent') isIdle = point === 'idle'
  })
  await sluice.work([failing])
})
afterAll(async () => {
  watch(undefined)
})

test.each(Object.keys(errors).filter((kind) => kind !== 'usage'))(
  'a handler that throws a %s error is retried, as soon as the retry is due',
  async (kind) => {
    // A job with a tag is left to a claim, after which the worker idles again.
    fail = async (which) => {
      await until(() => isIdle, 'the worker idles')
      return errors[which]?.()
    }
    const job = await sluice.send(failing, { kind }, { tags: [kind.replaceAll(' ', '-')] })
    await expect.poll(async () => (await sluice.jobs.get(job))?.state).toBe('done')
    // A vendor's refusal is no failure.
    const counts = kind === 'copied' ? { failed: 0, throttled: 1 } : { failed: 1, throttled: 0 }
    expect(await sluice.jobs.get(job)).toMatchObject({ attempt: 2, ...counts })
  },
)

test('an error that no retry can help ends the job', async () => {
  fail = (which) => errors[which]?.()
  const job = await sluice.send(failing, { kind: 'usage' })
  await expect.poll(async () => (await sluice.jobs.get(job))?.state).toBe('failed')
  expect(await sluice.jobs.get(job)).toMatchObject({ reason: 'refused', attempt: 1 })
})

/** What a handler, or a client library in it, makes of an error of `fetch`. */
const rethrows: Record<string, (error: unknown) => unknown> = {
  'when its handler rethrows the error': (error) => error,
  'when its handler throws another error with this cause': (cause) => new Error('Connection error.', { cause }),
  'when its handler throws an error that no retry cures': () => new UsageError('SLUICE_INVALID_INPUT', 'as if'),
}

test.each(Object.keys(rethrows))('an attempt that could send nothing in time is returned uncalled, %s', async (how) => {
  const seen: unknown[] = []
  const url = await httpServer((request, response) => {
    seen.push(request.url)
    response.end()
  })
  // A machine so slow that every grant is old before it can be used. What it waits for passes at once.
  const sleep = (ms: number) => {
    nowMs += ms
    return new Promise<void>((resolve) => setImmediate(resolve))
  }
  const clock = { ...systemClock, sleep, monotonicMs: () => (nowMs += 20) }
  let nowMs = 0
  let granted = true
  const call = async () => {
    nowMs += 60
    return [{ ord: 1, granted, wait_us: granted ? null : '60000000', now_us: '0', waited_us: '0', lost: false }]
  }
  const calling = task('calling', {
    input: z.object({}),
    limits: [limit('calls', { rate: '100/min' })],
    run: async (_, { fetch }) => {
      nowMs += 1_000
      await fetch(url).catch((error: unknown) => {
        throw rethrows[how]?.(error)
      })
    },
  }) as unknown as AnyTask
  const agent = createAgent(new Guard(['127.0.0.1']))
  const own = {
    ...around,
    ...on(storeOn({ ...outside, call: call as unknown as Db['call'] }, { clock })),
    agent,
    patience: new GiveBackCounter(),
    rulebook: new Rulebook(),
    opens: async () => undefined,
  }
  // What a process measures begins with its first attempt, and this clock counts that as time.
  marginsOf(own.store)
  const run = () => new Attempt(handout({ grantedMs: nowMs, buckets: ['calls'] }), calling, own).run()
  const outcomes: Outcome[] = []
  for (let i = 0; i < 12; i++) outcomes.push(await run())
  expect(outcomes.map(({ kind }) => kind)).toEqual([...Array.from({ length: 10 }, () => 'return'), 'retry', 'return'])
  expect(outcomes[10]).toMatchObject({ error: expect.stringContaining('SLUICE_GRANT_STALE') as string })
  // Where the next grant is far away the job waits in the store, as often as needed.
  granted = false
  for (let i = 0; i < 12; i++) expect(await run()).toEqual({ kind: 'return' })
  await agent.close()
  expect(seen).toEqual([])
})

test('code that a handler leaves running sends nothing, even if it gets its signal and calls fetch only then', async () => {
  const seen: unknown[] = []
  const url = await httpServer((request, response) => {
    seen.push(request.url)
    response.end()
  })
  const agent = createAgent(new Guard(['127.0.0.1']))
  let context: Context | undefined
  const leaving = task('leaving', {
    input: z.object({}),
    run: (_, given) => void (context = given),
  }) as unknown as AnyTask
  expect(await new Attempt(handout({}), leaving, { ...around, agent }).run()).toMatchObject({ kind: 'done' })
  await expect(context?.fetch(url)).rejects.toMatchObject({
    code: 'SLUICE_ATTEMPT_OVER',
    message: expect.stringContaining('await every call'),
  })
  expect(context?.signal.aborted).toBe(true)
  expect(seen).toEqual([])
  await agent.close()
})

test('a wait that a vendor demands is a year at most', async () => {
  const asking = task('asking', {
    input: z.object({}),
    run: () => {
      throw new AttemptError('SLUICE_RATE_LIMITED', 'as if', { retryable: true, retryAfterMs: Infinity })
    },
  }) as unknown as AnyTask
  expect(await new Attempt(handout({}), asking, around).run()).toMatchObject({ delayMs: 366 * 86_400_000 })
})

test.each(['late', 'never'])('a schema that returns %s starts no handler, and keeps no slot', async (how) => {
  let nowMs = 0
  let timeOut: (() => void) | undefined
  const after = (_: number, then: () => void) => {
    timeOut = then
    return () => {}
  }
  const clock = { ...systemClock, monotonicMs: () => nowMs, after }
  const validateNow = (value: unknown) => {
    nowMs += 700
    return how === 'late' ? Promise.resolve({ value }) : new Promise<never>(() => timeOut?.())
  }
  let runs = 0
  const checked = task('checked', {
    input: { '~standard': { version: 1 as const, vendor: 'test', validate: validateNow } },
    limits: [limit('calls', { rate: '100/min' })],
    run: () => runs++,
  }) as unknown as AnyTask
  const attempt = new Attempt(handout({ grantedMs: 0, buckets: ['calls'] }), checked, {
    ...around,
    ...on(storeOn(outside, { clock })),
  })
  expect(await attempt.run()).toMatchObject(
    how === 'late' ? { kind: 'unused' } : { kind: 'retry', error: expect.stringContaining('SLUICE_TIMEOUT') as string },
  )
  expect(runs).toBe(0)
})

test('a program may replace the global Promise', async () => {
  const seen: unknown[] = []
  const checked = task('checked', {
    input: { '~standard': { version: 1 as const, vendor: 'test', validate: async (value: unknown) => ({ value }) } },
    run: (input) => void seen.push(input),
  }) as unknown as AnyTask
  vi.stubGlobal('Promise', class<T> extends Promise<T> {})
  const outcome = new Attempt(handout({ input: { n: 1 } }), checked, around).run()
  expect(await outcome.finally(() => vi.unstubAllGlobals())).toMatchObject({ kind: 'done' })
  expect(seen).toEqual([{ n: 1 }])
})

test('a worker that claimed a job and was then stopped does not begin it, because others may have it, whatever its limits', async () => {
  let [nowMs, wallMs] = [1_000_000, 0]
  const clock = { ...systemClock, monotonicMs: () => nowMs, wallMs: () => wallMs, bootMs: () => 0 }
  let runs = 0
  const counting = task('counting', { input: z.object({}), run: () => void runs++ }) as unknown as AnyTask
  const claimed = () =>
    new Attempt(handout({ grantedMs: nowMs, requestedAt: readMoment(clock) }), counting, {
      ...around,
      ...on(storeOn(outside, { clock })),
    })
  const early = claimed()
  nowMs += 4_000
  expect(await early.run()).toMatchObject({ kind: 'done' })
  // The worker was stopped by a signal, or its event loop was busy.
  const stopped = claimed()
  nowMs += 9_999
  expect(await stopped.run()).toEqual({ kind: 'unused' })
  // The machine slept.
  const slept = claimed()
  wallMs += 9_999
  expect(await slept.run()).toEqual({ kind: 'unused' })
  expect(runs).toBe(1)
})
