/** `sluice limits redis`: sets how many databases share limits in Redis. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { mustBeMigrated } from '../db/migrate.ts'
import { sqlOn } from '../db/store.ts'
import { openRedis } from '../redis/connect.ts'
import { RedisLimiter } from '../redis/limiter.ts'
import { sharingOf } from '../redis/peer.ts'
import { isWanted } from './bulk.ts'
import { many } from './output.ts'
import { type Settings, settingsOf, unlessIn, whole, withStore } from './settings.ts'

interface Flags {
  stores: number
  yes?: true
}

/** `sluice limits redis`. */
export function redisCommand(): Command {
  return new Command('redis')
    .description('set how many databases share limits in Redis (env REDIS_URL), and have workers begin its state anew')
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
  const what = isLeft ? 'the use of Redis by this database' : 'the state of limits in Redis'
  const act = isLeft ? { verb: 'end', done: 'ended' } : { verb: 'begin anew', done: 'begun anew' }
  if (!yes && !(await isWanted(out, act, what))) return
  await withStore(settings, { creates: false }, async ({ db }) => {
    await mustBeMigrated(db, schema)
    // First what may fail: the number alone would change nothing for workers.
    if (!isLeft) await endEpoch(settings)
    await sqlOn(db, schema).run('limits/redis/set_redis_stores', [stores])
  })
  if (out.json) return out.object({ stores })
  out.line(
    isLeft
      ? 'the store alone decides limits from now on'
      : `${stores === 1 ? 'this database alone has' : `${many(stores, 'database')} share`} the limits in this Redis; the next worker begins their state anew`,
  )
  out.hint('`sluice doctor`')
}

/** @throws UsageError SLUICE_BAD_OPTION without a Redis; its errors */
async function endEpoch({ redis, config }: Settings): Promise<void> {
  const connection = openRedis(redis)
  if (connection === undefined)
    throw new UsageError('SLUICE_BAD_OPTION', '--stores needs the Redis that has the limits: set REDIS_URL')
  const { prefix } = sharingOf({ redisPrefix: unlessIn('SLUICE_REDIS_PREFIX', config.fields.redisPrefix) })
  try {
    await connection.open()
    await new RedisLimiter(connection, { prefix }).endEpoch()
  } finally {
    await connection.close()
  }
}
