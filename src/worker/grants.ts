/** The grants of one attempt: the one it was claimed with, and further ones for further requests. */
import type { Clock, StoreClock } from '../core/clock.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import { hash64, newId } from '../core/hash.ts'
import type { Db } from '../db/db.ts'
import { type Handout, isTransient } from '../dispatch/claim.ts'
import type { Grants } from '../http/allowance.ts'
import type { Grant } from '../http/gate.ts'

export { uncalledCode } from '../http/allowance.ts'

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
}

function jobLost(): AttemptError {
  return new AttemptError('SLUICE_JOB_LOST', 'the job was taken from this worker; no further calls are made', {
    retryable: false,
  })
}

/** Grants of a job from the store. */
export function storeGrants(options: GrantsOptions): Grants {
  const { db, clock, storeClock, schema, job, grantMs } = options
  const takeSql = `select * from ${schema}.further_v1($1,$2,$3,$4,$5,$6)`
  const takes = job.takes ?? []
  const own: StoreGrant | undefined =
    grantMs === undefined ? undefined : { id: job.claim, deadlineMs: job.grantedMs + grantMs }
  const ask = async (grant: string, back: string | null): Promise<Answer> => {
    const [row] = await db.call<Answer>('further', takeSql, [
      grant,
      job.id,
      job.claim,
      takes,
      back,
      storeClock.cap(clock.monotonicMs()),
    ])
    if (row === undefined) throw new StoreError('SLUICE_STORE_UNREACHABLE', 'a grant was answered without a row')
    return row
  }
  return {
    own,
    async take(signal, beforeWait, unused): Promise<StoreGrant | undefined> {
      if (grantMs === undefined) return undefined
      let back = (unused as StoreGrant | undefined)?.id ?? null
      let grant: StoreGrant | undefined
      for (let failures = 0; ;) {
        signal.throwIfAborted()
        // Its life counts from before it was first asked for; so only a lost reply is asked for again under the same id.
        grant ??= { id: newId(), deadlineMs: clock.monotonicMs() + grantMs }
        let answer: Answer
        try {
          answer = await ask(grant.id, back)
        } catch (error) {
          if (isTransient(error)) grant = undefined
          else if (error instanceof StoreError) back = null
          else throw error
          await clock.sleep(Math.min(1_000, 20 * 2 ** failures++) * (0.5 + clock.random() / 2), signal)
          continue
        }
        failures = 0
        // Given back at most once: after a lost reply nobody knows whether it was.
        back = null
        if (answer.lost) throw jobLost()
        if (answer.granted && clock.monotonicMs() < grant.deadlineMs) return grant
        if (answer.granted) {
          back = grant.id
        } else {
          const waitMs = Math.max(1, Number(answer.wait_us ?? 1_000) / 1_000)
          beforeWait(waitMs)
          await clock.sleep(waitMs, signal)
        }
        grant = undefined
      }
    },
    async giveBack(unused) {
      const { id } = unused as StoreGrant
      // It is charged already: asked for again it takes nothing, and what remains of the request is to give it back.
      await ask(id, id)
    },
    async hold(ms) {
      if (takes.length === 0) return
      await db.query(`select ${schema}.hold_v1($1, $2, $3)`, [
        [...new Set(takes.map(hash64))],
        Math.ceil(ms * 1_000),
        storeClock.cap(clock.monotonicMs()),
      ])
    },
  }
}
