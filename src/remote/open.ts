/** Connects an outlet of stock workers to their broker and their results. */
import { randomUUID } from 'node:crypto'
import { controlOver } from '../celery/remote.ts'
import { redisResults, rpcResults } from '../celery/results.ts'
import { carrierOver } from '../celery/transport.ts'
import { UsageError } from '../core/errors.ts'
import { addressOf } from '../redis/address.ts'
import { CeleryOutlet, type CeleryOutletOptions } from './celery-outlet.ts'

/** Parameters of `celeryOutlet`. */
export type CeleryOptions = Omit<CeleryOutletOptions, 'control' | 'results' | 'kin'>

/** Returns the outlet; the caller opens it. @throws UsageError SLUICE_BAD_OPTION; StoreError SLUICE_REDIS_UNREACHABLE */
export async function celeryOutlet(options: CeleryOptions): Promise<CeleryOutlet> {
  const { broker, store, backend } = options
  if (!/^(rpc:\/\/$|rediss?:)/.test(backend))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `the results of Celery workers are read from "rpc://" or "redis://…", not from "${backend.split(':')[0]}": give what \`result_backend\` of the workers names (celeryResults, CELERY_RESULT_BACKEND)`,
    )
  const carrier = carrierOver(broker)
  const control = await controlOver(carrier, store.log)
  const kin = kinOf(backend, await broker.identity())
  const how = { replyTo: `${kin}${randomUUID()}`, isKept: true }
  const results = await (backend === 'rpc://' ? rpcResults(carrier, store.log, how) : redisResults(backend, how))
  return new CeleryOutlet({ ...options, control, results, kin })
}

/**
 * Returns the prefix of the names of dispatchers that can take over from each other. A reader of other results would take
 * calls that have ended for calls that were not made. A Redis may have several names, so only its database counts.
 * @param backend where results are read @param broker its identity
 */
export function kinOf(backend: string, broker: string): string {
  return `sluice.celery.${backend === 'rpc://' ? '' : `redis.${addressOf(backend).db}.`}${broker}.`
}
