/** What claims leave out because they failed by its data: one job, lane or bucket does not stop the others. */
import type { Queryable } from '../db/db.ts'
import { statements } from '../generated/sql.ts'

/** One thing that is left out until it is released. */
export interface Parked {
  kind: 'job' | 'lane' | 'bucket'
  /** The job's id, `limit:key` of a bucket, `task in queue` of a lane. */
  name: string
  /** The database's error, by which the claim failed. */
  error: string
  /** Its SQLSTATE. */
  code: string | undefined
  since: Date
}

/** What operators do about it. */
export interface Parking {
  /** All that is left out, the oldest first. */
  parked(): Promise<Parked[]>
  /**
   * Has claims read it again, and wakes the workers: what fails them again is parked again. False when nothing of this name is
   * parked.
   */
  release(name: string): Promise<boolean>
}

/** What is parked in a store. */
export function parkingOn(db: Queryable, inSchema: (sql: string) => string): Parking {
  return {
    async parked() {
      const rows = await db.query<Row>(inSchema(statements['dispatch/parked'] as string))
      return rows.map(({ kind, name, error, code, at }) => ({ kind, name, error, code: code ?? undefined, since: at }))
    },
    async release(name) {
      const [row] = await db.query<{ was: boolean }>(inSchema('select engine.release_parked(null, $1) as was'), [name])
      return row?.was ?? false
    },
  }
}

type Row = Pick<Parked, 'kind' | 'name' | 'error'> & { code: string | null; at: Date }
