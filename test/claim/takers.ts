/** Takes outside of jobs in a random history: those that hold units, and those that wait in line. */
import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import { newId } from '../../src/core/hash.ts'
import type { Queryable } from '../../src/db/db.ts'
import type { Limit } from '../../src/limits/limit.ts'
import { acquire, endTakes, leaveLine } from '../takes/engine.ts'
import { bucketOf } from './setting.ts'
import type { Time, Witness } from './witness.ts'

const second = 1_000_000
const lifeUs = 15 * second

/** What they need of their world; see the fields. */
interface TakersOptions {
  db: Queryable
  time: Time
  witness: Witness
  /** Returns the limit of a bucket, as it is defined now. */
  limitOf(take: string): Limit
  count(what: string): void
}

type Lease = { id: string; take: string; untilUs: number }

/** Takers of one world. */
export class Takers {
  readonly #options: TakersOptions
  readonly #leases: Lease[] = []
  readonly #lines: { take: string; cost: number; line: string }[] = []

  constructor(options: TakersOptions) {
    this.#options = options
  }

  /** Takes units of a limit; `how` chooses the bucket and in which way. */
  async take(limit: Limit, how: number): Promise<void> {
    const { db, time, witness, count } = this.#options
    const name = bucketOf(limit, how)
    const waiting = this.#lines[how % Math.max(1, this.#lines.length)]
    // Some takers wait in line, and repeat their take.
    const again = how % 4 === 0 ? waiting : undefined
    if (again !== undefined && !this.#isMember(again.take)) {
      // Since the pool was defined anew, no process names this member.
      this.#lines.splice(this.#lines.indexOf(again), 1)
      return leaveLine(db, again.line)
    }
    const { take, cost, line } = again ?? { take: name, cost: 1 + (how % 2), line: how % 4 === 1 ? newId() : undefined }
    const grant = randomUUID()
    const wait = line === undefined ? {} : { line, waitUs: 9 * second }
    const asked = { grant, cost, holder: grant, lifeMs: lifeUs / 1_000, ...wait }
    const { granted, lifeMs } = await acquire(db, take, asked)
    count(granted ? 'take' : 'take denied')
    if (!granted && line !== undefined && again === undefined) this.#lines.push({ take, cost, line })
    if (!granted) return
    if (again !== undefined) this.#lines.splice(this.#lines.indexOf(again), 1)
    if (line !== undefined) count('take in line')
    this.#leases.push({ id: grant, take, untilUs: time.us + lifeUs })
    const { rules } = this.#options.limitOf(take)
    const units = rules.every(({ kind }) => kind === 'concurrency') ? 1 : cost
    const who = lifeMs === undefined ? [] : [grant]
    witness.granted([{ bucket: take, of: grant, units, who, untilUs: time.us + lifeUs }])
    // A take whose reply is lost is repeated.
    if (how % 3 === 0) expect(await acquire(db, take, asked)).toMatchObject({ granted: true })
  }

  /** Ends one take; `how` chooses whether as unused. */
  async yield(which: number, how: number): Promise<void> {
    const [lease] = this.#leases.splice(which % Math.max(1, this.#leases.length), 1)
    if (lease !== undefined) await this.#end(lease, how % 2 === 0 && lease.untilUs > this.#options.time.us)
  }

  /** Ends all takes, and all lines. */
  async leave(): Promise<void> {
    for (const lease of this.#leases.splice(0)) await this.#end(lease, false)
    for (const { line } of this.#lines.splice(0)) await leaveLine(this.#options.db, line)
  }

  #isMember(take: string): boolean {
    const { pool } = this.#options.limitOf(take)
    return pool === undefined || pool.some(({ key }) => take.endsWith(`:${key}`))
  }

  async #end({ id, take }: Lease, isUnused: boolean): Promise<void> {
    const { db, witness, count } = this.#options
    const units = witness.unitsOf(take, id) // no more than these are refunded, whatever the process reports
    await endTakes(db, [id], [take], [isUnused ? units + 1 : 0])
    witness.ended(take, id)
    if (isUnused) witness.givenBack(take, id, units)
    count(isUnused ? 'given back' : 'yield')
  }
}
