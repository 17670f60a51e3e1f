/** Schedules as they are stored. */
import type { Sql } from '../db/store.ts'
import type { ScheduleSpec } from './schedule.ts'

/** A stored schedule. Times are in ms since 1970. */
export interface StoredSchedule {
  /** `Timing.text` of its definition. */
  timing: string
  spec: ScheduleSpec
  paused: boolean
  nextMs: number
  /** The last instant that was handled; null: none yet. */
  lastMs: number | null
}

type Row = StoredSchedule & { nowMs: number; name: string | null }

/** Reads the stored schedules with these names, and the store's clock. */
export async function readStored(
  sql: Sql,
  names: readonly string[],
): Promise<{ nowMs: number; stored: Map<string, StoredSchedule> }> {
  const rows = await sql.run<Row>('schedule/read_stored_schedules', [names])
  const known = rows.flatMap(({ name, ...row }): [string, StoredSchedule][] => (name === null ? [] : [[name, row]]))
  return { nowMs: Number(rows[0]?.nowMs), stored: new Map(known) }
}
