/** A small world for random histories: tasks under limits of all kinds, workers of two hosts, and events that happen to them. */
import { expect } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { newId } from '../../src/core/hash.ts'
import type { UsageError } from '../../src/core/errors.ts'
import { defineLimit, defineShareBuckets, recordSource } from '../../src/claim/definitions/define.ts'
import type { ClaimedJob } from '../../src/claim/claimed-job.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import type { Limit } from '../../src/limits/limit.ts'
import type { Sluice } from '../../src/sluice.ts'
import { rescue } from '../fleet/engine.ts'
import { hold as holdBuckets } from '../limits/engine.ts'
import { type Act, type Held, hosts, keysOf, tenants, limitAt, rowsOf, type Setting, tasksOf } from './setting.ts'
import { claim, count, endOverdue, enter, finish, sendClaimed, settle } from './engine.ts'
import { Takers } from './takers.ts'
import { type Grant, Witness } from './witness.ts'
import { WorldClock } from './world-clock.ts'

const second = 1_000_000
const dayUs = 86_400 * second
let histories = 0

type Claim = { id: string; worker: string; tasks: string[]; want: number }

/** Carries out an event in the store, and lets a witness judge the replies. */
export class World {
  readonly counts: Record<string, number> = {}
  readonly witness: Witness
  readonly #clock: WorldClock
  readonly #sluice: Sluice
  readonly #run: number
  readonly #limits: Limit[]
  readonly #tasks: AnyTask[]
  readonly #setting: Setting
  readonly #hands = new Map<string, Held>()
  readonly #over = new Set<string>()
  readonly #digests = new Map<string, string>() // those that the Sluice records when it sends
  readonly #claims: Claim[] = []
  readonly #takers: Takers
  readonly #paused: { limit: string; key?: string }[] = []
  #workers: { id: string; host: string }[] = []
  #sent = 0

  constructor(sluice: Sluice, setting: Setting, startUs: number) {
    this.#sluice = sluice
    this.#setting = setting
    this.#clock = new WorldClock(sluice.db, startUs)
    this.witness = new Witness(this.#clock)
    this.#run = ++histories
    this.#takers = new Takers({
      db: sluice.db,
      time: this.#clock,
      witness: this.witness,
      limitOf: (take) => this.witness.limitOf(take),
      count: (what) => this.#count(what),
    })
    this.#limits = setting.numbers.map((numbers, i) => limitAt(this.#run, i, numbers, setting))
    this.#tasks = tasksOf(this.#run, setting, this.#limits)
  }

  async begin(): Promise<void> {
    await this.#clock.show()
    for (const one of this.#limits) await this.#define(one)
    // From now on this process reports nothing of these jobs.
    for (const one of this.#tasks) await this.#sluice.sendMany(one as never, [])
    for (const host of hosts) this.#workers.push({ id: await enter(this.#sluice.db, this.#names(), { host }), host })
  }

  async act(act: Act): Promise<void> {
    await this[act.kind](act)
  }

  /** Ends everything, going from wake-up time to wake-up time; fails when something waits for ever. */
  async drain(): Promise<void> {
    const { db } = this.#sluice
    for (const what of this.#paused.splice(0)) await this.#resume(what)
    await this.#takers.leave()
    let idle = 0
    for (const beginUs = this.#clock.us; ;) {
      await this.#end([...this.#hands.values()], 'done')
      let [wakeUs, hasSome] = [Infinity, false]
      for (const worker of this.#workers) {
        const answer = await this.#look(worker, this.#names(), 40)
        if (answer.granted > 0) hasSome = true
        wakeUs = Math.min(wakeUs, answer.wakeUs ?? Infinity)
      }
      if (hasSome || (await this.#round())) {
        idle = 0
        continue
      }
      const left = await count(db, 'sluice.job')
      if (left === 0) break
      this.#count('waited')
      expect(wakeUs, `${left} jobs wait, and nobody is told until when`).toBeLessThan(dayUs)
      expect(++idle, `${left} jobs wait, and are told in vain when to look`).toBeLessThan(100)
      expect(this.#clock.us - beginUs, `${left} jobs wait for a day`).toBeLessThan(dayUs)
      await this.#clock.pass(Math.max(1, wakeUs))
    }
    expect((await count(db, 'sluice.done')) + (await count(db, 'sluice.failed'))).toBe(this.#sent)
  }

  async send(act: Act): Promise<void> {
    const { which, how, us } = act
    const of = this.#tasks[which % this.#tasks.length] as AnyTask
    const { rows, options, isShare } = rowsOf(act, this.#setting.tasks[which % this.#tasks.length]?.limits ?? [])
    try {
      if (how % 2 === 0 && (await this.#sendAlone(of, { tenant: tenants[us % 2], n: 1 }, us))) return
      await this.#sluice.sendMany(of as never, rows as never, options)
      this.#sent += rows.length
      this.#count(isShare ? 'send of a share' : 'send')
    } catch (error) {
      if ((error as UsageError).code !== 'SLUICE_COST_ABOVE_CAPACITY') throw error
      this.#count('refused')
    }
  }

  /** Sends as a process with an idle worker does. False: the job is no ordinary one, and was not sent. */
  async #sendAlone(of: AnyTask, row: unknown, us: number): Promise<boolean> {
    const { id: worker } = this.#workers[us % this.#workers.length] as { id: string }
    const one = { id: newId(), worker, tasks: [of.name], want: 1 }
    const jobs = await sendClaimed(this.#sluice.db, one.id, worker, of, row)
    if (jobs !== undefined) this.#sent++
    if (jobs !== undefined) this.#count(jobs.length === 0 ? 'sent alone' : 'sent and claimed')
    this.#handed(one, jobs ?? [])
    return jobs !== undefined
  }

  async claim({ which, how }: Act): Promise<void> {
    const worker = this.#workers[which % this.#workers.length] as { id: string }
    const names = this.#names()
    const tasks = how % 3 === 0 ? [names[how % names.length] as string] : names
    await this.#look(worker, tasks, 1 + (how % 8))
  }

  async end({ which, how, us }: Act): Promise<void> {
    const jobs = [...this.#hands.values()]
    if (jobs.length === 0) return
    const from = which % jobs.length
    const outcome = ['done', 'done', 'done', 'failed', 'retry', 'unused', 'unused', 'return'][how % 8] as string
    await this.#end(jobs.slice(from, from + 1 + (how % 4)), outcome, us % (3 * second))
  }

  async settle({ which, how }: Act): Promise<void> {
    const jobs = [...this.#hands.values()]
    const job = jobs[which % jobs.length]
    if (job === undefined) return
    const names = job.holds.map((hold) => hold.replace(/[/:].*$/s, ''))
    const name = names[how % names.length] as string
    if (job.settled.has(name)) return
    job.settled.add(name)
    const units = job.costs?.[names.indexOf(name)] ?? 1
    const actual = how % 4 === 0 ? units + 1 + (how % 3) : how % Math.max(1, units)
    this.#count(actual > units ? 'settled above' : 'settled below')
    expect(await settle(this.#sluice.db, job, name, actual, { units })).toBe(false)
    if (actual >= units) return
    for (const hold of job.holds.filter((one) => one.replace(/[/:].*$/s, '') === name))
      this.witness.givenBack(hold, job.claim, units - actual)
  }

  async kill({ which }: Act): Promise<void> {
    const at = which % this.#workers.length
    const { id, host } = this.#workers[at] as { id: string; host: string }
    await rescue(this.#sluice.db, id)
    for (const job of this.#hands.values()) if (job.worker === id) this.#free(job)
    this.#workers[at] = { id: await enter(this.#sluice.db, this.#names(), { host }), host }
    this.#count('kill')
  }

  async hold({ which, us }: Act): Promise<void> {
    const holds = [...this.#hands.values()].flatMap((job) => job.holds.filter((one) => !one.includes('/')))
    const hold = holds[which % holds.length]
    if (hold === undefined) return
    const forUs = 1 + (us % (4 * second))
    await holdBuckets(this.#sluice.db, [hold], forUs)
    this.witness.hold(hold, forUs)
    this.#count('hold')
  }

  async redefine({ which, how, numbers }: Act): Promise<void> {
    const at = which % this.#limits.length
    // A job that a send accepted must not be impossible.
    const made = limitAt(this.#run, at, numbers, this.#setting, 2 + (which % 2))
    const keys = keysOf(made)
    const key = keys[Math.trunc(how / 2) % keys.length]
    if (key !== undefined && how % 2 === 0) return this.#redefineKey(made, key, how % 8 === 6)
    await this.#define((this.#limits[at] = made))
    this.#count('redefine')
  }

  /** Gives a key numbers of its own, or takes them from it. */
  async #redefineKey(made: Limit, key: string, isGone: boolean): Promise<void> {
    const sql = sqlOn(this.#sluice.db)
    await recordSource(sql, made.name, {
      source: 'stored',
      key,
      limit: isGone ? null : made,
      reason: 'test',
    })
    await defineShareBuckets(sql, made.name)
    if (isGone) this.witness.undefine(made.name, key)
    else this.witness.define(made, key)
    this.#count('redefine of a key')
  }

  async pause({ which, how }: Act): Promise<void> {
    const { name, pool } = this.#limits[which % this.#limits.length] as Limit
    const key = pool?.[how % pool.length]?.key
    const what = { limit: name, ...(key === undefined ? {} : { key }) }
    await this.#sluice.pause(what, { reason: 'test' })
    this.#paused.push(what)
    this.witness.pause(key === undefined ? name : `${name}:${key}`)
    this.#count('pause')
  }

  async resume(): Promise<void> {
    const what = this.#paused.shift()
    if (what !== undefined) await this.#resume(what)
  }

  async take({ which, how }: Act): Promise<void> {
    await this.#takers.take(this.#limits[which % this.#limits.length] as Limit, how)
  }

  async yield({ which, how }: Act): Promise<void> {
    await this.#takers.yield(which, how)
  }

  async replay({ which }: Act): Promise<void> {
    const one = this.#claims.at(-1 - (which % 3))
    if (one === undefined || !this.#workers.some(({ id }) => id === one.worker)) return
    const has = [...this.#hands.values()].filter(({ claim }) => claim === one.id).map(({ id }) => id)
    if (has.length === 0) return
    const { jobs } = await this.#ask(one)
    expect(jobs.map((job) => job.id).toSorted()).toEqual(has.toSorted())
    this.#count('replay')
  }

  async cancel({ which }: Act): Promise<void> {
    const jobs = [...this.#hands.values()]
    const job = jobs[which % jobs.length]
    if (job === undefined) return
    await this.#sluice.jobs.cancel(job.id)
    this.#over.add(job.id)
    this.#free(job)
    this.#count('cancel')
  }

  async pass({ which, us }: Act): Promise<void> {
    await this.#clock.pass(us)
    if (which % 2 === 0) await this.#round()
    this.#count('pass')
  }

  async back({ us }: Act): Promise<void> {
    await this.#clock.back(3 * second + (us % (90 * second)))
    this.#count('back')
  }

  #names(): string[] {
    return this.#tasks.map(({ name }) => name)
  }

  #count(what: string, n = 1): void {
    this.counts[what] = (this.counts[what] ?? 0) + n
  }

  async #define(one: Limit): Promise<void> {
    this.#digests.set(one.name, await defineLimit(sqlOn(this.#sluice.db), one, this.#digests.get(one.name)))
    this.witness.define(one)
  }

  /** Ends what has expired, as workers do every 2 s; resolves to whether there was something. */
  async #round(): Promise<boolean> {
    this.#count('set aside', await count(this.#sluice.db, `sluice.job where due_at = 'infinity'`))
    const n = await endOverdue(this.#sluice.db)
    this.#count('expired', n)
    return n !== 0
  }

  async #ask({ id, worker, tasks, want }: Claim, isWide = false) {
    const answer = await claim(this.#sluice.db, worker, tasks, want, id, { idle: true, isWide })
    return { ...answer, jobs: answer.jobs as ClaimedJob[] }
  }

  /** Claims as a worker does, until a claim finds nothing more. */
  async #look(
    worker: { id: string },
    tasks: string[],
    want: number,
  ): Promise<{ granted: number; wakeUs?: number | undefined }> {
    for (let granted = 0, looks = 0, isWide = false; ; looks++) {
      expect(looks, 'claims that say again').toBeLessThan(200)
      const one = { id: newId(), worker: worker.id, tasks, want: want - granted }
      const { again, wakeUs, jobs } = await this.#ask(one, isWide)
      isWide = again && jobs.length === 0
      this.#count('claim')
      this.#handed(one, jobs)
      const late = 'select id from sluice.job where claim = $1 and expires_at <= dispatched_at'
      expect(await this.#sluice.db.query(late, [one.id]), 'expired jobs that a claim took').toEqual([])
      granted += jobs.length
      if (granted === want) return { granted, wakeUs: 0 }
      if (jobs.length > 0 || again) continue
      // A claim that got nothing and lets its worker sleep for more than a second has overlooked nothing.
      if ((wakeUs ?? Infinity) > second) {
        const next = await this.#ask({ ...one, id: newId() })
        expect(next.jobs, 'what the claim before overlooked').toEqual([])
      }
      await this.#denied(tasks)
      return { granted, wakeUs }
    }
  }

  #handed(one: Claim, jobs: readonly ClaimedJob[]): void {
    const { id, worker } = one
    if (jobs.length > 0) this.#claims.push(one)
    const grants = new Map<string, Grant>()
    for (const { seq, id: job, buckets, costs, chargedBuckets } of jobs) {
      const holds = chargedBuckets ?? buckets ?? []
      expect(this.#hands.get(job)?.claim, `who has ${job}`).toBe(undefined)
      expect(this.#over, 'what has ended').not.toContain(job)
      this.#hands.set(job, { id: job, seq, claim: id, worker, holds, costs, settled: new Set() })
      this.#count(costs === null ? 'granted' : 'granted with costs')
      for (const [i, hold] of holds.entries()) {
        const grant = grants.get(hold) ?? { bucket: hold, of: id, units: 0, who: [] }
        grant.units += costs?.[i] ?? 1
        grant.who.push(job)
        grants.set(hold, grant)
      }
    }
    this.witness.granted([...grants.values()])
  }

  /** Jobs of the share that have no other limit wait for it. */
  async #denied(tasks: string[]): Promise<void> {
    const rows = await this.#sluice.db.query<{ own: string }>(
      `select distinct buckets[1] as own from sluice.job where claim is null and due_at is null and task = any ($1)
       and cardinality(buckets) = 2 and buckets[2] like '%/interactive%'`,
      [tasks],
    )
    for (const { own } of rows) this.witness.denied(own)
  }

  async #end(jobs: Held[], outcome: string, delayUs = 0): Promise<void> {
    if (jobs.length === 0) return
    // A job that has settled has made a call.
    const outcomeOf = (job: Held) => (outcome === 'unused' && job.settled.size > 0 ? 'return' : outcome)
    const endings = jobs.map((job) => ({ job, outcome: outcomeOf(job) }))
    const refused = await finish(
      this.#sluice.db,
      endings.map(({ job, outcome: how }) => ({ job: job as never, outcome: how, delayUs })),
      [],
    )
    expect(refused).toEqual([])
    this.#count('end')
    for (const { job, outcome: how } of endings) {
      this.#count(how)
      if (how === 'done' || how === 'failed') this.#over.add(job.id)
      this.#free(job)
      if (how !== 'unused') continue
      for (const [i, hold] of job.holds.entries()) this.witness.givenBack(hold, job.claim, job.costs?.[i] ?? 1)
    }
  }

  #free(job: Held): void {
    this.#hands.delete(job.id)
    for (const hold of job.holds) this.witness.ended(hold, job.id)
  }

  async #resume(what: { limit: string; key?: string }): Promise<void> {
    await this.#sluice.resume(what)
    this.witness.resume(what.key === undefined ? what.limit : `${what.limit}:${what.key}`)
    this.#count('resume')
  }
}
