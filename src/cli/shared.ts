/** Checks of limits that are shared in Redis, for `sluice doctor` and `sluice status`. */
import { openRedis } from '../redis/connect.ts'
import { checkServer } from '../redis/server.ts'
import { fail, ok, type Finding } from './finding.ts'
import { has, type StorageAt } from './storage.ts'

interface Row {
  at_ms: number
  away_ms: number | null
  away: string | null
}

/** Checks whether Redis answers workers and takers; undefined: limits are not shared. */
export async function shared({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'shared'))) return undefined
  const [row] = await sql.query<Row>(
    'select extract(epoch from at)::float8 * 1000 as at_ms, extract(epoch from away_at)::float8 * 1000 as away_ms, away from sluice.shared',
  )
  if (row === undefined) return undefined
  // `sluice limits redis` has set the number, and no worker has begun an epoch yet.
  if (row.away_ms === null && !Number.isFinite(row.at_ms))
    return ok('limits are shared in Redis; the next worker that has Redis begins their state')
  if (row.away_ms === null)
    return ok(`limits are shared in Redis; its state is complete since ${new Date(row.at_ms).toISOString()}`)
  const text = `Redis, where limits are shared, has not answered a worker or a taker since ${new Date(row.away_ms).toISOString()} (${row.away}): jobs and takes of processes that have Redis wait, except for limits with onStoreError 'open'. If no process uses Redis any more, run \`sluice limits redis --stores 0\``
  return fail(text)
}

/** Checks the settings of the Redis server itself. */
export async function redisServer(url: string | undefined): Promise<Finding | undefined> {
  const connection = openRedis(url)
  if (connection === undefined) return undefined
  try {
    await connection.open()
    const { findings } = await checkServer(connection)
    if (findings.length === 0) return ok('Redis is fit to keep limits')
    const isError = findings.some((finding) => finding.isError)
    return { status: isError ? 'fail' : 'warn', text: findings.map(({ text }) => text).join('; ') }
  } finally {
    await connection.close()
  }
}
