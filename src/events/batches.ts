/** Writes a stream of events in batches. */
import { statementCharsMax } from '../core/payload.ts'
import type { EventRow } from './row.ts'
import type { EventRows } from './transport.ts'

/** Events in one statement, at most. */
export const batchRows = 500

/**
 * Writes rows in order; resolves to their number. One batch is written while the next is made; with `isAlone`, which a
 * caller's transaction needs, nothing is made meanwhile. If the rows end with an error, those before it are written.
 */
export async function inBatches(
  rows: EventRows,
  write: (batch: readonly EventRow[]) => Promise<unknown>,
  isAlone: boolean,
): Promise<number> {
  let count = 0
  let batch: EventRow[] = []
  let chars = 0
  let writing: Promise<unknown> = Promise.resolve()
  const begin = async () => {
    await writing
    writing = write(batch)
    batch = []
    chars = 0
    writing.catch(() => {})
    if (isAlone) await writing
  }
  try {
    for await (const row of rows) {
      count++
      batch.push(row)
      chars += row.text.length
      if (batch.length === batchRows || chars >= statementCharsMax) await begin()
    }
  } finally {
    if (batch.length > 0) await begin()
    await writing
  }
  return count
}
