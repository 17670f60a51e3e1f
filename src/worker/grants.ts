/** The grants of one attempt: the one it was claimed with, and further ones for further requests. */
import type { Clock, StoreClock } from '../core/clock.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import { hash64, newId } from '../core/hash.ts'
import { againMs } from '../core/retry.ts'
import type { Db } from '../db/db.ts'
import { type Handout, isTransient } from '../dispatch/claim.ts'
import { type Grants, StaleGrantError } from '../http/allowance.ts'
import type { Grant } from '../http/gate.ts'

/** What grants need. */
export interface GrantsOptions {
  db: Db
  clock: Clock
  storeClock: StoreClock
  schema: string
  job: Handout
  /** Life of a grant in ms; undefined when the job has no limits. */
  grantMs: number | undefined
}

interface StoreGrant extends Grant {
  /** As the ledger knows it. */
  readonly id: string
}

interface Answer {
  granted: boolean
  wait_us: string | null
  lost: boolean
  waited_us: string
}

function jobLost(): AttemptError {
  return new AttemptError('SLUICE_JOB_LOST', 'the job was taken from this worker; no further calls are made', {
    retryable: false,
  })
}

/** The limit may be changed, or what it held back set free, while an attempt waits: it asks again after so long. */
const askMs = 5_000

/** How many grants in a row may be too old when they arrive. */
const lateMax = 5

/** Grants of a job from the store. */
export function storeGrants(options: GrantsOptions): Grants {
  return new StoreGrants(options)
}

class StoreGrants implements Grants {
  readonly own: StoreGrant | undefined
  readonly #options: GrantsOptions
  readonly #takes: readonly string[]

  constructor(options: GrantsOptions) {
    const { job, grantMs } = options
    this.#options = options
    this.#takes = job.holds ?? job.takes ?? []
    this.own = grantMs === undefined ? undefined : { id: job.claim, deadlineMs: job.grantedMs + grantMs }
  }

  async take(
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused?: Grant,
  ): Promise<StoreGrant | undefined> {
    const { clock, grantMs } = this.#options
    if (grantMs === undefined) return undefined
    let back = (unused as StoreGrant | undefined)?.id ?? null
    for (let late = 0; late < lateMax; late++) {
      const grant = await this.#untilGranted(grantMs, signal, beforeWait, back)
      if (clock.monotonicMs() < grant.deadlineMs) return grant
      back = grant.id
      // Too busy to hear of a grant in time: asking again at once would keep it so.
      await clock.sleep(clock.random() * grantMs * 2 ** late, signal)
    }
    if (back !== null) await this.#ask(back, back).catch(() => {})
    const why = `${lateMax} grants in a row were too old when they arrived; this machine, or the way to the store, is too slow for a grant of ${grantMs} ms`
    throw new StaleGrantError(`no request was sent: ${why}. Another attempt may succeed.`)
  }

  async giveBack(unused: Grant): Promise<void> {
    const { id } = unused as StoreGrant
    // It is charged already: asked for again it takes nothing, and what remains of the request is to give it back.
    await this.#ask(id, id)
  }

  async hold(ms: number): Promise<void> {
    const { db, clock, storeClock, schema } = this.#options
    if (this.#takes.length === 0) return
    await db.query(`select ${schema}.hold_v1($1, $2, $3)`, [
      [...new Set(this.#takes.map(hash64))],
      Math.ceil(ms * 1_000),
      storeClock.cap(clock.monotonicMs()),
    ])
  }

  /** Asks until something is granted; it may be too old by then. */
  async #untilGranted(
    grantMs: number,
    signal: AbortSignal,
    beforeWait: (waitMs: number) => void,
    unused: string | null,
  ): Promise<StoreGrant> {
    const { clock } = this.#options
    let back = unused
    let grant: StoreGrant | undefined
    for (let failures = 0; ;) {
      signal.throwIfAborted()
      // Its life counts from before it was first asked for; so only a lost reply is asked for again under the same id.
      const isFirst = grant === undefined
      const sentMs = clock.monotonicMs()
      grant ??= { id: newId(), deadlineMs: sentMs + grantMs }
      let answer: Answer
      try {
        answer = await this.#ask(grant.id, back)
      } catch (error) {
        if (isTransient(error)) grant = undefined
        else if (error instanceof StoreError) back = null
        else throw error
        await clock.sleep(againMs(failures++, clock.random()), signal)
        continue
      }
      failures = 0
      // Given back at most once: after a lost reply nobody knows whether it was.
      back = null
      if (answer.lost) throw jobLost()
      if (answer.granted) {
        // The wait for the buckets' locks came before the decision. Longer than the whole call it was a step of the clock.
        const waitedMs = Number(answer.waited_us) / 1_000
        const isKnown = isFirst && waitedMs <= clock.monotonicMs() - sentMs
        return isKnown ? { ...grant, deadlineMs: grant.deadlineMs + waitedMs } : grant
      }
      const waitMs = Math.max(1, Number(answer.wait_us ?? 1_000) / 1_000)
      beforeWait(waitMs)
      await clock.sleep(Math.min(waitMs, askMs), signal)
      grant = undefined
    }
  }

  async #ask(grant: string, back: string | null): Promise<Answer> {
    const { db, clock, storeClock, schema, job } = this.#options
    const [row] = await db.call<Answer>('further', `select * from ${schema}.further_v1($1,$2,$3,$4,$5,$6)`, [
      grant,
      job.id,
      job.claim,
      this.#takes,
      back,
      storeClock.cap(clock.monotonicMs()),
    ])
    if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a grant was answered without a row')
    return row
  }
}
