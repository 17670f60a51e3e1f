/** `sluice limits redis`: sets how many databases share limits in Redis. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { mustBeMigrated } from '../db/migrate.ts'
import { type Sql, sqlOn } from '../db/store.ts'
import { openRedis } from '../redis/connect.ts'
import { RedisLimiter } from '../redis/limiter.ts'
import { sharingOf } from '../redis/sharing.ts'
import { isWanted } from './bulk.ts'
import { lookAtWorkers } from './checks.ts'
import { many } from './output.ts'
import { type Settings, settingsOf, unlessIn, whole, withStore } from './settings.ts'

interface Flags {
  stores: number
  yes?: true
}

const closes = "limits with `published` close for as long as they look back, a month's quota until its end"
const stopsFirst = 'To lower the number, stop the workers of all these databases first'

/** `sluice limits redis`. */
export function redisCommand(): Command {
  return new Command('redis')
    .description(
      `set how many databases share limits in Redis (env REDIS_URL), and have workers begin its state anew: ${closes}. ${stopsFirst}`,
    )
    .requiredOption(
      '--stores <n>',
      'this one and n - 1 others; 0: no process of this one uses Redis any more',
      whole(0, 1_000),
    )
    .option('--yes', 'confirm in advance')
    .action(setStores)
}

async function setStores({ stores, yes }: Flags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out, schema } = settings
  const isLeft = stores === 0
  const what = isLeft ? 'the use of Redis by this database' : `the state of limits in Redis (${closes}. ${stopsFirst})`
  const act = isLeft ? { verb: 'end', done: 'ended' } : { verb: 'begin anew', done: 'begun anew' }
  if (!yes && !(await isWanted(out, act, what))) return
  const ended = await withStore(settings, { creates: false }, async ({ db }) => {
    await mustBeMigrated(db, schema)
    const sql = sqlOn(db, schema)
    if (!isLeft) await mustNotWork(sql, stores)
    // First what may fail: the number alone would change nothing for workers.
    const epoch = isLeft ? undefined : await endEpoch(settings)
    await sql.run('limits/redis/set_redis_stores', [stores])
    return epoch
  })
  if (out.json) return out.object({ stores, ...ended })
  const have = stores === 1 ? 'this database alone has' : `${many(stores, 'database')} share`
  out.line(
    ended === undefined
      ? 'the store alone decides limits from now on'
      : `${have} the limits under "${ended.prefix}" in this Redis; ${ended.stood ? '' : 'there was no epoch; '}the next worker begins their state anew`,
  )
  out.hint('`sluice doctor`')
}

/** @throws UsageError SLUICE_BAD_OPTION: the number would become lower while workers of this database count on it */
async function mustNotWork(sql: Sql, stores: number): Promise<void> {
  const [row] = await sql.run<{ stores: number }>('limits/redis/read_redis_epoch')
  if (row === undefined || row.stores <= stores) return
  const { all, silent } = await lookAtWorkers(sql)
  const live = all.filter((worker) => !silent.includes(worker))
  if (live.length > 0)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `${many(row.stores, 'database')} share the limits: before --stores ${stores}, stop the workers ${live.map(({ who }) => who).join(', ')}`,
    )
}

/** @throws UsageError SLUICE_BAD_OPTION without a Redis; its errors */
async function endEpoch({ redis, config }: Settings): Promise<{ prefix: string; stood: boolean }> {
  const connection = openRedis(redis)
  if (connection === undefined)
    throw new UsageError('SLUICE_BAD_OPTION', '--stores needs the Redis that has the limits: set REDIS_URL')
  const { prefix } = sharingOf({ redisPrefix: unlessIn('SLUICE_REDIS_PREFIX', config.fields.redisPrefix) })
  try {
    await connection.open()
    return { prefix, stood: await new RedisLimiter(connection, { prefix }).endEpoch() }
  } finally {
    await connection.close()
  }
}
