/** A Sluice that is closed at any moment, while everything is under way: all calls end, and nothing is lost or left behind. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { limit, newId, Sluice, SluiceError, snooze, task } from '../../src/index.ts'
import { count } from '../claim/engine.ts'
import { forAllInTime } from '../for-all.ts'
import { cases } from '../long.ts'
import { freshDatabase } from '../servers/database.ts'
import { later } from '../until.ts'

const places = limit('places', { concurrency: 2 })
const paced = limit('paced', { rate: '100/s' })
const rare = limit('rare', { window: '1/h' })

/** One close. */
interface World {
  /** Open all the time. */
  readonly watcher: Sluice
  readonly sluice: Sluice
  /** Jobs that a send has acknowledged, and those whose handlers were called. */
  readonly sent: Set<string>
  readonly called: Set<string>
  /** Resolves some milliseconds from now. */
  pass(ms: number): Promise<unknown>
}
let world: World

const input = z.object({ ms: z.number(), hears: z.boolean() })
type Input = z.infer<typeof input>
const options = {
  input,
  retry: { attempts: 20, base: 50, max: 100 },
  async run({ ms, hears }: Input, { job, signal }: { job: { id: string }; signal: AbortSignal }) {
    const { called, pass } = world
    called.add(job.id)
    if (ms % 3 === 2) throw snooze(200)
    const aborted = later(
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
    )
    await Promise.race([pass(ms), ...(hears ? [aborted] : [])])
  },
}
const free = task('free', options)
const limited = task('limited', { ...options, limits: [places, paced] })
const once = task('once', { ...options, limits: [paced], mode: 'at-most-once' })
const tasks = [free, limited, once]

/** A call, with a number that decides about its details. */
type Act = (n: number, world: World) => Promise<unknown>
const rowOf = (n: number): Input => ({ ms: n % 300, hears: n % 2 === 0 })
const ends = async (taking: Promise<{ release(): Promise<void> }>, n: number, { pass }: World) => {
  const lease = await taking
  await pass(n % 100)
  if (n % 4 > 0) await lease.release()
}
const acts: Record<string, Act> = {
  async send(n, { sluice, sent }) {
    sent.add(await sluice.send(tasks[n % 3] ?? free, rowOf(n), n % 5 === 0 ? { delay: 100 } : {}))
  },
  sendMany: (n, { sluice }) =>
    sluice.sendMany(
      free,
      Array.from({ length: n % 100 }, () => rowOf(n)),
    ),
  async replace(n, { sluice, sent }) {
    sent.add(await sluice.send(free, rowOf(n), { idempotencyKey: 'key', replace: true }))
  },
  async transaction(n, { sluice, sent, pass }) {
    const id = newId()
    await sluice.transaction(async (tx) => {
      await sluice.send(free, rowOf(n), { id, tx })
      await pass(n % 50)
    })
    sent.add(id)
  },
  async waitFor(n, { sluice, sent }) {
    const [id] = sent
    if (id !== undefined) await sluice.waitFor(id, { timeout: n })
  },
  take: (n, own) => ends(own.sluice.takes.take(n % 3 === 0 ? rare : places), n, own),
  tryTake: (n, own) =>
    own.sluice.takes.tryTake(places).then(({ lease }) => lease && ends(Promise.resolve(lease), n, own)),
  async work(n, { sluice, pass }) {
    const worker = await sluice.work(tasks, { concurrency: 3, grace: n % 2 === 0 ? 0 : 300 })
    await pass(n % 200)
    if (n % 3 === 0) await worker.stop()
    else if (n % 3 === 1) await worker.abort()
  },
  dispatchOnce: (n, { sluice }) => sluice.dispatchOnce(tasks, { max: 20, grace: n % 300 }),
  cancelMany: (n, { sluice }) => sluice.jobs.cancelMany({ task: 'free', input: { ms: n % 300 } }),
  async pause(n, { sluice, pass }) {
    await sluice.pause({ task: 'limited*' }, { reason: 'test' })
    await pass(n % 50)
    await sluice.resume({ task: 'limited*' })
  },
}

const someActs = fc.array(fc.tuple(fc.constantFrom(...Object.keys(acts)), fc.nat(600)), { minLength: 8, maxLength: 25 })

test('a close at any moment ends all calls, loses no acknowledged job, and leaves no worker, place or taker behind', async () => {
  const close = async (before: [string, number][], after: [string, number][], closeMs: number) => {
    const { url } = await freshDatabase()
    const watcher = await Sluice.open({ store: url })
    const sluice = await Sluice.open({ store: url })
    const pass = (ms: number) => watcher.db.query('select pg_sleep($1)', [ms / 1_000])
    const own: World = (world = { watcher, sluice, sent: new Set(), called: new Set(), pass })
    const errors: unknown[] = []
    const call = async ([name, n]: [string, number]) => {
      try {
        await acts[name]?.(n, own)
      } catch (error) {
        if (!SluiceError.is(error)) errors.push(error)
      }
    }
    const calls = before.map(call)
    await pass(closeMs)
    const closing = sluice.close()
    calls.push(...after.slice(0, 5).map(call))
    await closing
    await Promise.all(calls)
    expect(errors).toEqual([])
    await check(own)
    await watcher.close()
  }
  await forAllInTime(cases(12), someActs, someActs, fc.nat(500), close)
})

async function check({ watcher, sent, called }: World): Promise<void> {
  const left = ['worker', 'lease', 'taker', 'job where claim is not null'].map((of) =>
    count(watcher.db, `sluice.${of}`),
  )
  expect(await Promise.all(left)).toEqual([0, 0, 0, 0])
  for (const id of sent) {
    const job = await watcher.jobs.get(id)
    expect(job, id).toBeDefined()
    if (!called.has(id))
      expect(job, 'a job whose handler was not called').toMatchObject({ attempt: 0, ambiguous: false })
  }
}
