/**
 * Every way in which an attempt ends, and its effect on the ledger. The oracle is docs/guarantees.md ("Which units count",
 * "Settle", "Retry-After"): one request that left, or may have left, is one grant; a handler that makes none through
 * `ctx.fetch` has used its one; unwritten requests are refunded; places are free when the attempt is over.
 */
import { describe, expect, it } from 'vitest'
import { fail, rateLimited, retryIn, rule, snooze, UsageError } from '../../src/index.ts'
import { claim, emptied, mainEngines } from '../claim/engine.ts'
import { takeCalls } from '../takes/engine.ts'
import { rescue } from '../fleet/engine.ts'
import { codeOf, cost, late, once, patient, play, raise, silence, Stage, type Turn } from './stage.ts'

/** The state of a job that may be claimed again at once. */
const back = ['scheduled', 'waiting']
const never = () => new Promise<never>(() => {})
const lose = async ({ stage }: Turn) => void (await rescue(stage.sluice.db, await stage.member()))
const denied = (lacking?: string) => ({ granted: 0, waitMs: 1, lacking })
/** Only the first call does this, the next ones do nothing. */
const first = (run: (turn: Turn) => unknown) => (turn: Turn) => (turn.n === 1 ? run(turn) : undefined)

play({
  // The handler was called, and made its request in a way that the worker does not see.
  done: { left: 1, state: 'done' },
  'throws, and is done at the second attempt': {
    left: 2,
    state: 'done',
    run: first(() => raise(new Error('as if'))),
    isOver: ({ calls }) => calls.length === 2,
  },
  'throws three times': { left: 3, state: 'failed', run: () => raise(new Error('as if')) },
  'throws what no retry cures': {
    left: 1,
    state: 'failed',
    run: () => raise(new UsageError('SLUICE_BAD_OPTION', 'as if')),
  },
  'returns what the store refuses': { left: 1, state: 'failed', run: () => '\u0000' },
  retryIn: { left: 1, state: 'scheduled', run: () => raise(retryIn('1h')) },
  fail: { left: 1, state: 'failed', run: () => raise(fail('no such customer')) },
  snooze: { left: 1, attempts: 0, state: 'scheduled', run: () => raise(snooze('1h')) },
  'times out': { left: 1, state: 'failed', task: { timeout: 300, retry: { attempts: 1 } }, run: never },
  'is cancelled while it runs': {
    left: 1,
    state: 'cancelled',
    run: ({ stage }) => stage.sluice.jobs.cancel(stage.job),
  },
  'is stopped at once': { left: 1, state: back, run: ({ stage }) => (void stage.worker.abort(), never()) },
  'loses its worker': { left: 2, state: 'done', run: first(lose) },
  'loses its worker three times': { left: 3, state: 'failed', run: lose },
  'in mode at-most-once throws': { left: 1, state: 'failed', task: once, run: () => raise(new Error('as if')) },
  'in mode at-most-once throws retryIn': {
    left: 2,
    state: 'done',
    task: once,
    run: first(() => raise(retryIn(1))),
    isOver: ({ calls }) => calls.length === 2,
  },
  'in mode at-most-once is stopped at once': {
    left: 1,
    state: 'failed',
    task: once,
    run: ({ stage }) => (void stage.worker.abort(), never()),
  },
  'in mode at-most-once loses its worker': { left: 1, state: 'failed', task: once, run: lose },

  'gets a 429 by an HTTP client of its own': {
    left: 1,
    state: 'scheduled',
    heldMs: expect.any(Number) as number,
    task: patient,
    run: () => raise(rateLimited(new Response(null, { status: 429 }))),
  },

  // The handler was not called.
  'is discarded by a rule': {
    left: 0,
    state: 'cancelled',
    isOver: () => true,
    rules: [rule('gone', { at: 'dispatch', do: { discard: 'as if' } })],
  },
  'is held by a rule': {
    left: 0,
    state: 'scheduled',
    isOver: () => true,
    rules: [rule('later', { at: 'dispatch', do: { hold: '1h' } })],
  },
  'is moved by a rule': {
    left: 1,
    state: 'done',
    rules: [rule('other', { at: 'dispatch', when: ({ queue }) => queue === 'default', do: { queue: 'other' } })],
  },
  'of a job from SQL is discarded by a rule': {
    left: 0,
    state: 'cancelled',
    isRaw: true,
    isOver: () => true,
    rules: [rule('gone', { do: { discard: 'as if' } })],
  },
  'of a job from SQL is moved to where it waits for its limits': { left: 1, state: 'done', isRaw: true },

  // Its grant grew old.
  'has an expired grant before its handler is called': {
    left: 1,
    state: 'done',
    before: (stage) => (stage.aheadMs === 0 ? late(stage) : undefined),
  },
  'is stopped while its input is checked': {
    left: 0,
    state: back,
    before: (stage) => (void stage.worker.abort(), never()),
    isOver: () => true,
  },
  'has an expired grant before its first request, and the next grant is far away': {
    attempts: 0,
    left: 0,
    state: back,
    heldMs: 3_600_000,
    run: async (turn) => {
      await silence(turn, 3_600_000)
      late(turn.stage)
      await turn.fetch('/')
    },
  },
  'has an expired grant before its first request, and takes another': {
    left: 1,
    state: 'done',
    run: async ({ fetch, stage }) => {
      late(stage)
      await fetch('/')
    },
  },
  'gets only further grants that are too old on arrival': {
    attempts: 1,
    left: 1,
    state: 'done',
    calls: 2,
    after: (stage, name) => {
      if (name === takeCalls.acquire && stage.calls.length === 1) late(stage)
    },
    run: async ({ n, fetch, stage }) => {
      if (n === 1) late(stage)
      await fetch('/')
    },
  },

  // Other limiters of the same limits must grant, too.
  'is denied by a limiter that shares its limits': {
    left: 1,
    state: 'done',
    answer: (_, n) => (n === 1 ? denied() : undefined),
  },
  'is denied because others used a bucket up, and its charge stands for their usage': {
    left: 1,
    charged: 1,
    state: 'done',
    answer: ({ wishes }, n) =>
      n === 1 ? denied(wishes[0]?.buckets.find((bucket) => bucket.startsWith('calls'))) : undefined,
  },
  'makes a further request that is denied once': {
    left: 2,
    state: 'done',
    answer: (_, n) => (n === 2 ? denied() : undefined),
    run: async ({ fetch }) => {
      await fetch('/')
      await fetch('/')
    },
  },
  'makes a further request that is denied for long, before anything was sent': {
    attempts: 1,
    left: 1,
    state: 'done',
    calls: 2,
    answer: (_, n) => (n === 2 ? { ...denied(), waitMs: 10_000 } : undefined),
    run: async ({ n, fetch, stage }) => {
      if (n === 1) late(stage)
      await fetch('/')
    },
  },
  'makes a further request that is denied, and gives it up': {
    left: 1,
    state: 'done',
    answer: ({ isFurther }, _, stage) => {
      if (isFurther !== true) return undefined
      stage.abort.abort()
      return denied()
    },
    run: async ({ fetch, stage }) => {
      await fetch('/')
      await codeOf(fetch('/', { signal: stage.abort.signal }))
    },
  },
})

describe.each(mainEngines)('a claim on $name', (engine) => {
  const at = emptied(engine)

  it('whose reply was lost, and which is returned when its worker signs off, has used nothing', async () => {
    const stage = new Stage(at.sluice, { state: 'waiting' }, 'http://127.0.0.1:1')
    const name = await stage.send()
    expect((await claim(at.db, at.worker, [name], 1)).jobs).toHaveLength(1)
    expect(await stage.sums()).toMatchObject({ calls: 1, tokens: cost, seats: 1 })
    await rescue(at.db, at.worker, 'shutdown')
    expect(await stage.sums()).toEqual({ calls: 0, tokens: 0, beside: 0, inUse: 0, seats: 0, heldMs: 0 })
  })
})
