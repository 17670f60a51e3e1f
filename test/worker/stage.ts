/** A worker with one job at a time, a vendor that counts arrivals, a peer that shares the limits, and their sums. */
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import type { Db } from '../../src/db/db.ts'
import { storeOn } from '../../src/db/store.ts'
import { Rulebook } from '../../src/tasks/rule.ts'
import type { Context } from '../../src/tasks/context.ts'
import type { TaskOptions } from '../../src/tasks/task-options.ts'
import { task } from '../../src/tasks/task.ts'
import { type Limit, limit } from '../../src/limits/limit.ts'
import type { PeerDecision, PeerRequest, PeerLimiter } from '../../src/limits/peer.ts'
import type { Rule } from '../../src/index.ts'
import type { Sluice } from '../../src/sluice.ts'
import type { Worker } from '../../src/worker/worker.ts'
import { mainEngines, openOn } from '../claim/engine.ts'
import { until } from '../until.ts'
import { hold, roomOf } from '../limits/engine.ts'
import { makeWorker } from './made.ts'

/** Tokens that each job declares, and so each of its requests costs. */
export const cost = 1_000

/** An address on which nothing listens. */
export const closed = '127.0.0.1:1025'

type Input = { key: string; tokens: number }
const by = ({ key }: Input) => key
/** So slow that nothing drains, and nothing leaves a window, while a test runs. */
const limits: Limit<Input>[] = [
  limit('calls', { rate: '1000/h', burst: 1_000, by }),
  limit('tokens', { window: '100000/h', cost: 'tokens', by, shares: { other: 0.1 } }),
  limit('seats', { concurrency: 2, by }),
]

/** Another program that takes of the same limits, as a worker sees it through Redis. */
export class Peer implements PeerLimiter {
  /** Units that it believes are used, by limit. */
  readonly used = new Map<string, number>()
  /** The longest silence that it was sent, in ms. */
  heldMs = 0
  /** Its answer to the n-th call; undefined: all of it is granted. */
  answer: ((request: PeerRequest, n: number) => Partial<PeerDecision> | undefined) | undefined
  #requests = 0
  readonly isAway = false
  start() {}
  async waitUntilReady() {}
  isOpenFor = () => true
  onChange = () => () => {}

  async confirm(request: PeerRequest) {
    const answer = this.answer?.(request, ++this.#requests)
    const { wishes, sentMs } = request
    const decisions = wishes.map(({ buckets, units, count }) => {
      const granted = { granted: count, fromMs: sentMs, notBeforeMs: sentMs, waitMs: 0, lacking: undefined }
      const decision: PeerDecision = { ...granted, ...answer }
      for (let i = 0; i < decision.granted; i++) this.#add(buckets, units, 1)
      return decision
    })
    return { id: newId(), decisions }
  }

  settle(_: string, take: string, more: number) {
    this.#add([take], [more], 1)
  }

  async chargeAgain() {}

  refund(_: string, buckets: readonly string[], units: readonly number[]) {
    this.#add(buckets, units, -1)
  }

  async takePlaces() {
    return newId()
  }

  freePlaces(): void {}

  hold(_: readonly string[], ms: number) {
    this.heldMs = Math.max(this.heldMs, ms)
  }

  #add(buckets: readonly string[], units: readonly number[], sign: number) {
    for (const [i, bucket] of buckets.entries()) {
      const [name = ''] = bucket.split(':')
      this.used.set(name, (this.used.get(name) ?? 0) + sign * (units[i] ?? 0))
    }
  }
}

/** The values that a handler can use. */
export interface Turn {
  /** The number of this call of the handler, from 1. */
  n: number
  context: Context
  /** `ctx.fetch` of a path of the vendor's, see `vendorOf`. */
  fetch: (path: string, init?: RequestInit) => Promise<Response>
  stage: Stage
}

/** The course of one job. */
export interface Plot {
  task?: Partial<Pick<TaskOptions<z.ZodType<Input>, unknown>, 'retry' | 'mode' | 'timeout'>>
  rules?: readonly Rule[]
  /** Runs before each validation, which is before each call. */
  before?: (stage: Stage) => unknown
  /** The handler. */
  run?: (turn: Turn) => unknown
  /** The peer's answer to the n-th call; undefined: all of it is granted. */
  answer?: (request: PeerRequest, n: number, stage: Stage) => Partial<PeerDecision> | undefined
  /** Runs after each statement of the worker's, by its name. */
  after?: (stage: Stage, name: string) => unknown
  /** Sent by SQL, so that no process with the task's code has seen it. */
  isRaw?: boolean
  /** The state of the job in the end: one of these. */
  state: string | string[]
  /** True when nothing more will happen; default: its handler was called. */
  isOver?: (stage: Stage) => boolean
}

/** The usage of the buckets, by the ledger and by their state. */
export interface Sums {
  calls: number
  tokens: number
  /** Units that are left to jobs outside the share. */
  beside: number
  /** Tokens in use, as the next claim sees it. */
  inUse: number
  /** Places in use. */
  seats: number
  /** The longest hold, in ms. */
  heldMs: number
}

/** Longer than a grant of 100 ms lives. */
const lateMs = 150
/** Stops a worker's process for this long. */
export const late = (stage: Stage) => void (stage.aheadMs += lateMs)
/** Throws it. */
export const raise = (error: unknown) => {
  throw error
}
/** A vendor demands silence from another process: the job's buckets are held for `ms`. */
export async function silence({ stage }: Turn, ms: number): Promise<void> {
  stage.peer.hold([], ms)
  await hold(stage.sluice.db, [`calls:${stage.key}`], ms * 1_000)
}
/** Options of a task whose next attempt is far away, whatever its error demands. */
export const patient = { retry: { base: '1h', max: '1h' } } as const
/** Options of a task whose handler is called at most once. */
export const once = { mode: 'at-most-once' } as const
/** The code of a rejection, if there is one. */
export const codeOf = (asked: Promise<unknown>) =>
  asked.then(
    () => undefined,
    (error: { code?: unknown }) => error.code,
  )

/** One job's stage. */
export class Stage {
  readonly key = newId()
  readonly peer = new Peer()
  /** One for each call of the handler: whether it used `fetch`. */
  readonly calls: { hasFetched: boolean }[] = []
  /** Requests that reached the vendor. */
  arrivals = 0
  job = ''
  /** Milliseconds by which the worker's clock is ahead: the clock goes on by itself, too. */
  aheadMs = 0
  readonly abort = new AbortController()
  readonly sluice: Sluice
  readonly worker: Worker
  readonly #plot: Plot
  readonly #task

  constructor(sluice: Sluice, plot: Plot, url: string) {
    this.sluice = sluice
    this.#plot = plot
    const schema = z.object({ key: z.string(), tokens: z.number() }).refine(async () => {
      // Not when the job is sent.
      if (this.job !== '') await plot.before?.(this)
      return true
    })
    this.#task = task(`task-${this.key}`, {
      input: schema,
      limits,
      // These ports alone: whatever else listens on this machine, the test may not call it.
      allowPrivate: [new URL(url).host, closed],
      retry: { attempts: 3, base: 1, max: 1 },
      ...plot.task,
      run: (_, context) => {
        const call = { hasFetched: false }
        const n = this.calls.push(call)
        const fetch: Turn['fetch'] = (path, init) => {
          call.hasFetched = true
          return context.fetch(path.startsWith('http') ? path : `${url}/${this.key}${path}`, init)
        }
        return plot.run?.({ n, context, fetch, stage: this })
      },
    })
    const call: Db['call'] = async (name, sql, params) => {
      const rows = await sluice.db.call(name, sql, params)
      await plot.after?.(this, name)
      return rows as never
    }
    const db = new Proxy(sluice.db, {
      get(on, name) {
        const value: unknown = name === 'call' ? call : Reflect.get(on, name, on)
        return typeof value === 'function' ? value.bind(on) : value
      },
    })
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + this.aheadMs }
    const store = storeOn(db, { clock })
    this.worker = makeWorker({
      store,
      tasks: [this.#task],
      concurrency: 2,
      graceMs: 25_000,
      rulebook: new Rulebook(plot.rules),
      peer: this.peer,
    })
  }

  /** Sends the job; resolves to its task. */
  async send(): Promise<string> {
    const { sluice, key } = this
    const { isRaw = false, answer } = this.#plot
    const input = { key, tokens: cost }
    await sluice.define([this.#task])
    this.peer.answer = (request, n) => answer?.(request, n, this)
    if (isRaw) {
      const [row] = await sluice.db.query<{ id: string }>(`select sluice.send($1, $2) as id`, [this.#task.name, input])
      this.job = row?.id ?? ''
    } else this.job = await sluice.send(this.#task, input)
    return this.#task.name
  }

  /** Sends the job, lets the worker run until the job has come to its end, and resolves to the sums of the ledger. */
  async play(): Promise<Sums> {
    const { sluice } = this
    const { state } = this.#plot
    await this.send()
    const isOver = this.#plot.isOver ?? (() => this.calls.length > 0)
    try {
      await this.worker.start()
      await until(
        async () => isOver(this) && [state].flat().includes((await sluice.jobs.get(this.job))?.state ?? ''),
        `the job's state is ${String(state)}`,
      )
    } finally {
      await this.worker.stop()
    }
    return this.sums()
  }

  /** The worker's id in the store. */
  async member(): Promise<string> {
    const [row] = await this.sluice.db.query<{ id: string }>('select id from sluice.worker order by id desc limit 1')
    return row?.id ?? ''
  }

  /** Requests that left, or may have left: arrivals, and calls of handlers that made theirs without `ctx.fetch`, or none. */
  get left(): number {
    return this.arrivals + this.calls.filter(({ hasFetched }) => !hasFetched).length
  }

  async sums(): Promise<Sums> {
    const rows = await this.sluice.db.query<{ name: string; units: number; held: number; debt: number }>(
      `select b.name, l.units, l.held, (r.debt[1] / r.weight[1])::float8 as debt from sluice.bucket b
       cross join lateral (select sum(units)::float8 as units, max(case when hold > 0 then hold - at else 0 end)::float8 / 1000 as held
                           from sluice.ledger where bucket = b.id) l
       cross join lateral ${roomOf('array[b.id]')} r where b.key = $1`,
      [this.key],
    )
    const of = (name: string) => rows.find((row) => row.name === name)
    return {
      calls: of('calls')?.units ?? 0,
      tokens: of('tokens')?.units ?? 0,
      beside: of('tokens/')?.units ?? 0,
      inUse: of('tokens')?.debt ?? 0,
      seats: of('seats')?.debt ?? 0,
      heldMs: Math.max(0, ...rows.map(({ held }) => held ?? 0)),
    }
  }
}

/**
 * A vendor: `/` is answered 200, `/429` and `/503` so (`?after=` seconds), `/moved` redirects to `/`, `/cut` closes the
 * connection. Arrivals are counted for the stage whose key the path begins with.
 */
export async function vendorOf(stages: Map<string, Stage>): Promise<{ url: string; close(): void }> {
  const answers: Record<string, (response: ServerResponse, after: string | null) => void> = {
    moved: (response) => response.writeHead(302, { location: './' }).end(),
    cut: (response) => response.destroy(),
  }
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '', 'http://vendor')
    const [, key = '', what = ''] = url.pathname.split('/')
    const stage = stages.get(key)
    if (stage !== undefined) stage.arrivals++
    const after = url.searchParams.get('after')
    if (answers[what] !== undefined) return answers[what](response, after)
    response.writeHead(Number(what) || 200, after === null ? {} : { 'retry-after': after }).end('ok')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = () => {
    server.closeAllConnections()
    server.close()
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close }
}

/** One way in which an attempt ends, and its usage by docs/guarantees.md. */
export interface Way extends Plot {
  /** Requests that left, or may have left. */
  left: number
  /** Requests that were tried, and could not be connected. */
  tried?: number
  /** Units of `calls` that others used, and that are charged. */
  charged?: number
  /** Tokens, where the attempt settled; default: `cost` for each request. */
  tokens?: number
  /** Calls of the handler; default: any number. */
  calls?: number
  /** The longest hold; default 0. */
  heldMs?: number
  /** Attempts that count; default: each call of the handler. */
  attempts?: number
}

/** Plays each way, and compares the ledger, and the peer's sums, with it. */
export function play(ways: Record<string, Way>): void {
  describe.each(mainEngines)('an attempt on $name', (engine) => {
    let sluice: Sluice
    let vendor: Awaited<ReturnType<typeof vendorOf>>
    const stages = new Map<string, Stage>()
    beforeAll(async () => {
      sluice = await openOn(engine)
      vendor = await vendorOf(stages)
    })
    afterAll(async () => {
      await sluice.close()
      vendor.close()
    })

    it.each(Object.entries(ways))('%s', async (_, way) => {
      const { left, tried = 0, charged = 0, tokens = (left + tried) * cost, calls, heldMs = 0, attempts, ...plot } = way
      const stage = new Stage(sluice, plot, vendor.url)
      stages.set(stage.key, stage)
      const sums = await stage.play()
      expect(stage.left, 'requests').toBe(left)
      if (calls !== undefined) expect(stage.calls).toHaveLength(calls)
      const job = await sluice.jobs.get(stage.job)
      expect(job?.attempt, 'attempts').toBe(attempts ?? stage.calls.length)
      const used = left + tried
      expect(sums).toEqual({ calls: used + charged, tokens, beside: tokens, inUse: tokens, seats: 0, heldMs })
      const { peer } = stage
      const believed = { calls: peer.used.get('calls') ?? 0, tokens: peer.used.get('tokens') ?? 0, heldMs: peer.heldMs }
      expect(believed, 'as the peer has it').toEqual({ calls: used, tokens, heldMs })
    })
  })
}
