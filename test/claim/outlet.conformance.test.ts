/**
 * Requirements for every outlet, on a real store, with whole workers: the outlet of this process, and a remote one that
 * reports late, twice, in any order, or never.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it, type TestContext } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { OutletFor } from '../../src/claim/outlet.ts'
import { openBroker } from '../../src/amqp/broker.ts'
import { AmqpWire } from '../../src/outlet/amqp-wire.ts'
import { BorrowedStore } from '../../src/outlet/borrowed-store.ts'
import { FleetWorker } from '../../src/outlet/fleet-worker.ts'
import { BrokerOutlet } from '../../src/outlet/broker-outlet.ts'
import { TaskSet } from '../../src/worker/task-set.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import { type AnyTask, task } from '../../src/tasks/task.ts'
import { Sluice } from '../../src/sluice.ts'
import type { Worker } from '../../src/worker/worker.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { freshDatabase } from '../servers/database.ts'
import { closeStock, makeStock } from '../remote/made.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'
import { rescueAll } from '../fleet/engine.ts'
import { makeWorker } from '../worker/made.ts'
import { Remote } from './remote.ts'
import { type Ending, finish } from './engine.ts'

/** The behaviour of a job; see play.mjs. `isLost`: its first attempt is never reported. */
const input = z.object({
  gate: z.string().optional(),
  held: z.number().optional(),
  fails: z.number().optional(),
  isLost: z.boolean().optional(),
})
type Input = z.infer<typeof input>
/** Behaves as the input defines. */
type Play = (input: Input, context: { attempt: number }) => Promise<unknown>

/** An outlet that the suite creates. */
interface Made {
  /** Undefined: this process. */
  outlet?: OutletFor
  close?(): Promise<void>
}

const { default: plays } = (await import(new URL('play.mjs', import.meta.url).href)) as { default: Play }
const play: Play = (planned, context) =>
  planned.isLost && context.attempt === 1 ? new Promise(() => {}) : plays(planned, context)

/** An outlet with this number of places, two of them for the task `few`; it records each job that begins. */
type Make = (
  places: number,
  began: (job: Pick<ClaimedJob, 'id' | 'attempt'>) => void,
  tasks: AnyTask[],
  db: Db,
) => Made | Promise<Made>

const elsewhere: Make = (places, began) => {
  let remote: Remote | undefined
  return {
    outlet: (reports) => (remote = new Remote(places, ['few'], began, reports)),
    close: async () => remote?.close(),
  }
}
/** Over a broker, with one worker in this process, which has a store, or has none. */
const overBroker =
  (hasStore: boolean): Make =>
  async (concurrency, _began, tasks, db) => {
    const own = storeOn(db)
    const { clock, log } = own
    const lender = hasStore ? 'test' : new BorrowedStore(own)
    const store = typeof lender === 'string' ? own : lender.store
    const broker = await openBroker({ url: (await freshBroker()).url, name: 'test', log })
    const wire = new AmqpWire(broker)
    const rulebook = new Rulebook()
    const names = new TaskSet(tasks, {}).describeTasks(rulebook).tasks
    const lent = { name: 'test', sql: own }
    const dispatcher = new BrokerOutlet({ wire, fleet: 'test', store: lent, tasks: names, clock, log })
    const worker = new FleetWorker({
      store,
      wire,
      fleet: 'test',
      lender,
      tasks,
      labels: {},
      concurrency,
      graceMs: 25_000,
      rulebook,
      peer: undefined,
      allowPrivate: [],
      renew: async () => {},
      ended: async () => {},
    })
    await dispatcher.open()
    await worker.start()
    return {
      outlet: dispatcher.for,
      async close() {
        await worker.abort()
        await dispatcher.close()
        await broker.close()
      },
    }
  }
/** `isAlone`: all its tests share one pool of processes, which those that wait would take from each other. */
const outlets: { name: string; make: Make; isAlone?: boolean }[] = [
  { name: 'the outlet in this process', make: () => ({}) },
  { name: 'an outlet elsewhere', make: elsewhere },
  { name: 'the outlet over a broker', make: overBroker(true) },
  { name: 'the outlet over a broker with a worker without a store', make: overBroker(false) },
  { name: 'the outlet of stock Celery workers', make: makeStock, isAlone: true },
]

afterAll(closeStock)

/** A store, its workers with outlets of one kind, and what began there, for one test. */
async function openStage({ onTestFinished }: TestContext, make: Make) {
  const at = { began: [] as string[], aheadMs: 0 }
  const began = (id: string, attempt: number) => void at.began.push(`${id} ${attempt}`)
  const options = { input, retry: { attempts: 3, base: 1, max: 1 }, timeout: '10s' } as const
  const many = task('many', {
    ...options,
    run(planned, { job, attempt }) {
      began(job.id, attempt)
      return play(planned, { attempt })
    },
  })
  const few = task('few', { ...options, thread: new URL('play.mjs', import.meta.url) })
  const both: AnyTask[] = [many, few]
  const folder = await mkdtemp(join(tmpdir(), 'outlet-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  await sluice.define(both)

  /** A worker of both tasks that begins to claim. */
  async function work(concurrency: number): Promise<Worker> {
    const made = await make(concurrency, (job) => began(job.id, job.attempt), both, sluice.db)
    onTestFinished(() => made.close?.())
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + at.aheadMs }
    const store = storeOn(sluice.db, { clock })
    const worker = makeWorker({
      store,
      tasks: both,
      concurrency,
      graceMs: 25_000,
      ...(made.outlet === undefined ? {} : { outlet: made.outlet }),
    })
    onTestFinished(() => worker.abort())
    await worker.start()
    return worker
  }
  const count = async (sql: string) => {
    const [row] = await sluice.db.query<{ n: number }>(`select count(*)::int as n from sluice.${sql}`)
    return row?.n ?? 0
  }
  const stateOf = async (id: string) => (await sluice.jobs.get(id))?.state
  let gates = 0
  return {
    at,
    sluice,
    many,
    few,
    work,
    /** A file for which jobs wait. */
    gate: () => join(folder, String(++gates)),
    open: (path: string) => writeFile(path, ''),
    count,
    stateOf,
    isDone: (id: string) => until(async () => (await stateOf(id)) === 'done', 'the job is done'),
    /** The workers have no jobs in hand any more. */
    isOver: () => until(async () => (await count('claim')) === 0, 'no claim is left'),
  }
}

describe.each(outlets)('$name', ({ make, isAlone }) => {
  const test = isAlone ? it : it.concurrent

  test('starts each attempt once, reports each end, and keeps no place', async (context) => {
    const { sluice, at, many, work, count, isOver } = await openStage(context, make)
    const worker = await work(20)
    const inputs = Array.from({ length: 300 }, (_, n) => ({ fails: n % 5 === 0 ? 1 : 0 }))
    await sluice.sendMany(many, inputs)
    await until(async () => (await count('done')) === 300, 'all are done')
    await isOver()
    expect(worker.running).toBe(0)
    await until(() => at.began.length >= 360, 'all is reported')
    expect(new Set(at.began).size).toBe(360)
    expect(at.began.length).toBe(360)
  })

  test('is given no more jobs than it has places, in all and for each kind of task', async (context) => {
    const { sluice, many, few, work, gate, open, count, isOver } = await openStage(context, make)
    const path = gate()
    const worker = await work(8)
    const held = (n: number) => copies(n, { gate: path })
    await sluice.sendMany(few, held(5))
    await sluice.sendMany(many, [{}, {}, {}])
    await until(async () => (await count('done')) === 3, 'the others are done')
    // The worker sleeps, and would start more jobs of the other kind.
    await until(async () => (await count(`idle where tasks = '{many}'`)) === 1, 'it sleeps without them')
    expect(await count(`job where task = 'few' and claim is not null`)).toBe(2)
    await sluice.sendMany(many, held(9))
    await until(() => worker.running === 8, 'it is full')
    await open(path)
    await until(async () => (await count('done')) === 17, 'all are done')
    await isOver()
    expect(worker.running).toBe(0)
  })

  test('leaves jobs of a full kind of task to a worker with room', async (context) => {
    const { sluice, few, work, gate, open, count, isOver } = await openStage(context, make)
    const path = gate()
    await work(8)
    await sluice.sendMany(few, [{ gate: path }, { gate: path }])
    await until(async () => (await count(`idle where tasks = '{many}'`)) === 1, 'the first is full')
    await work(8)
    await until(async () => (await count('idle')) === 2, 'both sleep')
    await sluice.sendMany(few, copies(6))
    await until(async () => (await count('done')) === 6, 'the second has done them')
    expect(await count(`job where task = 'few' and claim is not null`)).toBe(2)
    await open(path)
    await isOver()
  })

  test('lets an attempt without any report end by its time-out, and the job goes on', async (context) => {
    const { sluice, at, many, work, isDone, isOver } = await openStage(context, make)
    const worker = await work(1)
    const id = await sluice.send(many, { isLost: true })
    await until(() => at.began.length === 1, 'it began')
    // A timer of this process ends it, after its ten seconds.
    at.aheadMs += 20_000
    await isDone(id)
    expect(await sluice.jobs.get(id)).toMatchObject({ result: { attempt: 2 } })
    await isOver()
    expect(worker.running).toBe(0)
  })

  test('ignores reports of a claim that was given up, and keeps no place for it', async (context) => {
    const { sluice, at, many, work, gate, open, isDone, isOver } = await openStage(context, make)
    const path = gate()
    const worker = await work(1)
    const id = await sluice.send(many, { gate: path, held: 1 })
    await until(() => at.began.length === 1, 'it began')
    await rescueAll(sluice.db)
    // By the same worker, which has one place, after its new registration.
    await isDone(id)
    await open(path)
    const next = await sluice.send(many, {})
    await isDone(next)
    await isOver()
    expect(await sluice.jobs.get(id)).toMatchObject({ result: { attempt: 2 } })
    // An outlet may report the beginning after the end.
    await until(() => at.began.length >= 3, 'all is reported')
    expect(at.began.length).toBe(3)
    expect(worker.running).toBe(0)
  })

  test('goes on with a job of which an older attempt is still in hand, when that is given up', async (context) => {
    const { sluice, at, many, work, gate, open, isDone } = await openStage(context, make)
    const path = gate()
    const worker = await work(4)
    const id = await sluice.send(many, { gate: path })
    await until(() => at.began.length === 1, 'it began')
    // As after a failover that lost the first claim.
    const rows = await sluice.db.query<Ending['job']>('select seq, id, claim from sluice.job')
    const endings = rows.map((job) => ({ job, outcome: 'retry', beganUs: 0, delayUs: 0 }))
    await finish(sluice.db, endings, [])
    await until(() => at.began.length === 2, 'it began again')
    await until(() => worker.running === 1, 'the first attempt is given up')
    await open(path)
    await isDone(id)
    expect(await sluice.jobs.get(id)).toMatchObject({ result: { attempt: 2 } })
    expect(at.began.length).toBe(2)
  })

  test('keeps no place for a job that was cancelled', async (context) => {
    const { sluice, at, many, work, gate, stateOf, isDone, isOver } = await openStage(context, make)
    const worker = await work(1)
    const id = await sluice.send(many, { gate: gate() })
    await until(() => at.began.length === 1, 'it began')
    await sluice.jobs.cancel(id)
    await isDone(await sluice.send(many, {}))
    await isOver()
    expect(worker.running).toBe(0)
    expect(await stateOf(id)).toBe('cancelled')
  })

  test('lets a stopping worker wait for the jobs in hand', async (context) => {
    const { sluice, at, many, work, gate, open, count } = await openStage(context, make)
    const path = gate()
    const worker = await work(4)
    await sluice.sendMany(many, [{ gate: path }, { gate: path }])
    await until(() => at.began.length === 2, 'both began')
    const stopping = worker.stop()
    await open(path)
    await stopping
    expect(await count('done')).toBe(2)
    expect(await count('worker')).toBe(0)
  })
})
