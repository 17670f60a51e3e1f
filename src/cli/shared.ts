/** Limits that are shared in Redis, as `sluice doctor` and `sluice status` tell of them. */
import { openRedis } from '../redis/connect.ts'
import { lookAtServer } from '../redis/server.ts'
import type { Finding } from './finding.ts'
import { has, type StorageAt } from './storage.ts'

interface Row {
  at_ms: number
  away_ms: number | null
  away: string | null
}

/** Whether Redis answers those who work; undefined: limits are not shared. */
export async function shared({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'shared'))) return undefined
  const [row] = await sql.query<Row>(
    'select extract(epoch from at)::float8 * 1000 as at_ms, extract(epoch from away_at)::float8 * 1000 as away_ms, away from sluice.shared',
  )
  if (row === undefined) return undefined
  if (row.away_ms === null)
    return {
      status: 'ok',
      text: `limits are shared in Redis, whose state is whole since ${new Date(row.at_ms).toISOString()}`,
    }
  const text = `Redis, where limits are shared, was not there for a worker or a taker since ${new Date(row.away_ms).toISOString()} (${row.away}): those limits wait, but for those with onStoreError 'open'`
  return { status: 'fail', text }
}

/** What the server itself tells. */
export async function redisServer(url: string | undefined): Promise<Finding | undefined> {
  const connection = openRedis(url)
  if (connection === undefined) return undefined
  try {
    await connection.open()
    const { findings } = await lookAtServer(connection)
    if (findings.length === 0) return { status: 'ok', text: 'Redis is fit to keep limits' }
    const isError = findings.some((finding) => finding.isError)
    return { status: isError ? 'fail' : 'warn', text: findings.map(({ text }) => text).join('; ') }
  } finally {
    await connection.close()
  }
}
