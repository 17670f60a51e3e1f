/**
 * Sends and claims that got no reply. Their request may still be on its way: after a partition of the network it arrives seconds
 * later than its repetition, and if the jobs have ended by then, nothing in the store shows that it was made before. A send would
 * be recorded again. A claim would hand out other jobs under the old id, whose end may be on its way, too.
 */
import type pg from 'pg'
import type { Clock } from '../core/clock.ts'
import { isLost } from './connection-error.ts'

/** A session of the server. A later one may have the same number, but began at another time. */
export interface ServerSession {
  readonly pid: number
  readonly since: string
}

const endSql = `select count(pg_terminate_backend(a.pid))::integer as n
  from unnest($1::integer[], $2::text[]) s (pid, since)
  join pg_stat_activity a on a.pid = s.pid and extract(epoch from a.backend_start)::text = s.since
  where not $3::boolean or a.wait_event_type = 'Client'`

/** How long to wait for a session to end, in ms. If it takes longer, it has begun the request, and others see its locks. */
const endMs = 2_000
const lookMs = 20

/** The sessions whose last request got no reply. */
export class LateRequests {
  readonly #clock: Clock
  readonly #sparesBegun: boolean
  readonly #sessions = new Set<ServerSession>()

  /**
   * @param sparesBegun a session that works on its request is left alone, because the repetition finds what it does: a
   * request that takes longer than its answer is awaited would otherwise never be carried out
   */
  constructor(clock: Clock, sparesBegun: boolean) {
    this.#clock = clock
    this.#sparesBegun = sparesBegun
  }

  /** Notes a session; undefined: it cannot be ended, because a pooler stands before it. */
  add(session: ServerSession | undefined): void {
    if (session !== undefined) this.#sessions.add(session)
  }

  /** Ends the sessions, so that the server carries out nothing more that arrives for them. Call it before a request is repeated. */
  async end(client: pg.ClientBase): Promise<void> {
    const all = [...this.#sessions]
    const params = [all.map(({ pid }) => pid), all.map(({ since }) => since), this.#sparesBegun]
    const untilMs = this.#clock.monotonicMs() + endMs
    while (all.length > 0 && this.#clock.monotonicMs() < untilMs) {
      const n = await client.query<{ n: number }>(endSql, params).then(
        ({ rows }) => rows[0]?.n ?? 0,
        (error: unknown) => {
          if (isLost(error)) throw error
          // The server does not allow it.
          return 0
        },
      )
      if (n === 0) break
      await this.#clock.sleep(lookMs)
    }
    for (const session of all) this.#sessions.delete(session)
  }
}
