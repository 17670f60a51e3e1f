/** Parks jobs, lanes and buckets whose data make claims fail, so that these do not stop the others. */
import { AttemptError, codeOf } from '../../core/errors.ts'
import { type Parked, type ParkedRow, parkedOf } from '../../core/parked.ts'
import { hash64 } from '../../core/hash.ts'
import type { Sql, Store } from '../../db/store.ts'

/** How operators list and release parked things. */
export interface Parking {
  /** Everything that is parked, the oldest first. */
  parked(): Promise<Parked[]>
  /**
   * Lets claims read it again, unchanged, and wakes the workers. If it fails again, it is parked again. Returns false
   * when nothing of this name is parked.
   * @param name as `parked` lists it
   */
  release(name: string): Promise<boolean>
}

/** Returns the parking interface of a store. */
export function parkingOn(sql: Sql): Parking {
  const read = () => sql.run<ParkedRow>('claim/parking/read_parked')
  return {
    async parked() {
      return parkedOf(await read())
    },
    async release(name) {
      let is = false
      for (const one of await read()) {
        if (parkedOf([one])[0]?.name !== name) continue
        // One at a time, because each takes locks that have an order.
        const [row] = await sql.call<{ release_parked: boolean }>('release_parked', [one.kind, one.name])
        is ||= row?.release_parked ?? false
      }
      return is
    },
  }
}

/**
 * True if the database could not compute with its data, or an assertion failed; false for locks, timeouts and
 * connections, where a repeat may succeed.
 */
export function isDataError(error: unknown): boolean {
  return /^(22...|23...|P0004)$/.test(String(codeOf(error)))
}

/**
 * Parks those of these buckets (`limit:key`; undefined: all that workers' rounds read) whose data fails. Returns false if
 * there were none, or if the check itself failed.
 */
export async function parkBuckets(sql: Sql, buckets: readonly string[] | undefined): Promise<boolean> {
  if (buckets?.length === 0) return false
  const params = [buckets === undefined ? null : [...new Set(buckets)]]
  const [row] = await sql.call<{ park_buckets: string[] }>('park_buckets', params).catch(() => [])
  return (row?.park_buckets ?? []).length > 0
}

/** Parks a bucket, because another program has written under its key in Redis. */
export async function parkUnreadable(store: Store, bucket: string, key: string): Promise<void> {
  const error = `delete the key "${key}" in Redis, which another program has written, and the key of the epoch`
  await store.run('claim/parking/park_unreadable', [hash64(bucket), error])
  store.log.error('a limit is parked, because another program has written under its key in Redis', { key })
}

/**
 * Runs a write about these buckets (a settlement, a vendor's pause; undefined: as for `parkBuckets`). If it fails on their
 * data, the buckets are parked and it runs once more: a parked bucket keeps what is written until its release.
 */
export async function repeatAfterParking<T>(
  sql: Sql,
  buckets: readonly string[] | undefined,
  act: () => Promise<T>,
): Promise<T> {
  try {
    return await act()
  } catch (error) {
    if (!isDataError(error) || !(await parkBuckets(sql, buckets))) throw error
    return act()
  }
}

/**
 * Runs a request for a grant of these buckets. It fails with a coded error when one of them is parked, or fails on its
 * data and is parked now.
 * @throws AttemptError SLUICE_PARKED
 */
export async function failIfParked<T>(sql: Sql, buckets: readonly string[], act: () => Promise<T>): Promise<T> {
  try {
    return await act()
  } catch (error) {
    const isKnown = codeOf(error) === 'SLW04'
    if (!isKnown && !(isDataError(error) && (await parkBuckets(sql, buckets)))) throw error
    const what = buckets.length === 1 ? buckets[0] : `one of ${buckets.join(', ')}`
    const text = `nothing is granted of ${what}, which is parked because the database cannot compute with its data; \`sluice status\` names the error and what releases it`
    throw new AttemptError('SLUICE_PARKED', text, { retryable: true, cause: error })
  }
}
