/** What claims leave out because they failed by its data: one job, lane or bucket does not stop the others. */
import type { Sql } from '../db/store.ts'

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
export function parkingOn(sql: Sql): Parking {
  return {
    async parked() {
      const rows = await sql.run<Row>('dispatch/parked')
      return rows.map(({ at_ms: atMs, code, ...row }) => ({ ...row, code: code ?? undefined, since: new Date(atMs) }))
    },
    async release(name) {
      const [row] = await sql.call<{ release_parked: boolean }>('release_parked', [null, name])
      return row?.release_parked ?? false
    },
  }
}

type Row = Pick<Parked, 'kind' | 'name' | 'error'> & { code: string | null; at_ms: number }
