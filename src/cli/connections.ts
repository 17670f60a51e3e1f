/** Compares the connections that processes may open with what the servers allow, for `sluice doctor`. */
import { openBroker } from '../amqp/broker.ts'
import { codeOf } from '../core/errors.ts'
import { silent } from '../core/log.ts'
import { openRedis } from '../redis/connect.ts'
import { readLoad } from '../redis/server.ts'
import { ok, warn, type Finding } from './finding.ts'
import { many } from './output.ts'
import { has, type StorageAt } from './storage.ts'

/** How many a process of one worker opens at most (docs/deploying.md); to Redis: for limits, and for Celery's queues and results. */
const [perProcess, perProcessToRedis] = [18, 6]
/** Channels of a connection to RabbitMQ, beside one for each queue that a process reads: one that publishes, and those of commands. */
const channelsLeast = 16

const countProcesses = 'select count(distinct (host, pid))::int as n from sluice.worker'

/** Counts what the server, the database and the role allow, and what others use; undefined: the engine is embedded. */
export async function connections({ sql, isEmbedded }: StorageAt): Promise<Finding | undefined> {
  if (isEmbedded) return undefined
  const processes = (await has(sql, 'worker')) ? countProcesses : 'select 0'
  const [row] = await sql.query<{ most: number; others: number; processes: number }>(
    `select least(
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
        (select nullif(datconnlimit, -1) from pg_database where datname = current_database()),
        (select nullif(rolconnlimit, -1) from pg_roles where rolname = current_user)) as most,
      (select count(*) from pg_stat_activity
        where datid is not null and coalesce(backend_type, 'client backend') = 'client backend'
          and coalesce(application_name, '') not like 'sluice%')::int as others,
      (${processes}) as processes`,
  )
  const { most = 0, others = 0, processes: count = 0 } = row ?? {}
  const text = `the server accepts ${many(most, 'connection')}; ${many(count, 'program')} with workers may open ${count * perProcess}, other programs have ${others}`
  if (count * perProcess + others < most) return ok(text)
  return warn(`${text}: raise max_connections, lower \`connections\`, or use a pooler (docs/deploying.md)`)
}

/**
 * Compares what Redis accepts with the larger one of what is connected and of what workers may open: their clients are among the
 * former. Undefined: there is no Redis, it does not show that, or it is away, which another check reports.
 */
export async function redisClients({ sql }: StorageAt, url: string | undefined): Promise<Finding | undefined> {
  const redis = openRedis(url)
  if (redis === undefined) return undefined
  try {
    await redis.open()
    const { connected, most } = await readLoad(redis)
    if (connected === undefined || most === undefined) return undefined
    const [row] = (await has(sql, 'worker')) ? await sql.query<{ n: number }>(countProcesses) : []
    const count = row?.n ?? 0
    const text = `Redis accepts ${many(most, 'client')}, and has ${connected}, those of workers among them; ${many(count, 'program')} with workers may open ${count * perProcessToRedis}`
    if (Math.max(connected, count * perProcessToRedis) < most) return ok(text)
    return warn(`${text}: raise maxclients`)
  } catch (error) {
    if (codeOf(error) === 'SLUICE_REDIS_UNREACHABLE') return undefined
    throw error
  } finally {
    await redis.close()
  }
}

/**
 * Checks that a RabbitMQ takes another connection, and how many channels that may have; undefined: none is known.
 * @throws the errors of `openBroker`
 */
export async function channels(amqp: string | undefined): Promise<Finding | undefined> {
  if (amqp === undefined) return undefined
  // Limits of connections, of a user or a virtual host, are only shown by a refusal.
  const broker = await openBroker({ url: amqp, name: 'sluice doctor', log: silent })
  try {
    const most = await broker.channelsMax()
    const text = `RabbitMQ accepts ${many(most, 'channel')} a connection`
    if (most >= channelsLeast) return ok(text)
    return warn(
      `${text}, and a process needs up to ${channelsLeast}, and one for each queue that it reads: raise channel_max`,
    )
  } finally {
    await broker.close()
  }
}
