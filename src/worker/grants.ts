/** The grants of one attempt: the one it was claimed with, and further ones for further requests. */
import type { Clock, StoreClock } from '../core/clock.ts'
import { AttemptError, StoreError } from '../core/errors.ts'
import { hash64, newId } from '../core/hash.ts'
import type { Db } from '../db/db.ts'
import type { Handout } from '../dispatch/claim.ts'
import type { Grants } from '../http/fetch.ts'
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

/** An attempt that has sent nothing waits so long for another grant; beyond it the job waits in the store, not in a slot. */
const patienceMs = 250

/** The code of the error by which an attempt gives its job back uncalled. */
export const uncalledCode = 'SLUICE_UNCALLED'

function uncalled(waitMs: number): AttemptError {
  const text = `the grant ran out before the request could be written, and the next one is ${Math.ceil(waitMs)} ms away; the job goes back uncalled`
  return new AttemptError(uncalledCode, text, { retryable: true })
}

interface StoreGrant extends Grant {
  /** As the ledger knows it. */
  readonly id: string
}

/** Grants of a job from the store. */
export function storeGrants(options: GrantsOptions): Grants {
  const { db, clock, storeClock, schema, job, grantMs } = options
  const takeSql = `select * from ${schema}.further_v1($1,$2,$3,$4,$5,$6)`
  const takes = job.takes ?? []
  const own: StoreGrant | undefined =
    grantMs === undefined ? undefined : { id: job.claim, deadlineMs: job.grantedMs + grantMs }
  return {
    own,
    async take(signal, unsent, unused): Promise<StoreGrant | undefined> {
      if (grantMs === undefined) return undefined
      let back = (unused as StoreGrant | undefined)?.id ?? null
      for (let grant = newId(); ;) {
        signal.throwIfAborted()
        const sentMs = clock.monotonicMs()
        const [row] = await db
          .call<{ granted: boolean; wait_us: string | null; lost: boolean }>('further', takeSql, [
            grant,
            job.id,
            job.claim,
            takes,
            back,
            storeClock.cap(sentMs),
          ])
          .catch((error: unknown) => {
            // Asked again under the same id: a grant whose reply was lost is not charged twice.
            if (error instanceof StoreError) return [{ granted: false, wait_us: '100000', lost: false }]
            throw error
          })
        // Given back at most once: after a lost reply nobody knows whether it was.
        back = null
        if (row?.lost)
          throw new AttemptError('SLUICE_JOB_LOST', 'the job was taken from this worker; no further calls are made', {
            retryable: false,
          })
        if (row?.granted) {
          if (clock.monotonicMs() < sentMs + grantMs) return { id: grant, deadlineMs: sentMs + grantMs }
          back = grant
          grant = newId()
          continue
        }
        const waitMs = Math.max(1, Number(row?.wait_us ?? 1_000) / 1_000)
        if (unsent && waitMs > patienceMs) throw uncalled(waitMs)
        await clock.sleep(waitMs, signal)
      }
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
