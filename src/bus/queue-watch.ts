/** Reads how full a service's queues are, now and then, for alarms. */
import type { Broker } from '../amqp/broker.ts'
import type { Store } from '../db/store.ts'
import type { Alarms } from '../fleet/alarms.ts'
import { QueueArchive } from './archive.ts'
import type { Republisher } from './republisher.ts'
import { unrouted } from '../events/names.ts'
import type { ServiceNames } from './names.ts'

/** Parameters of `watchQueues`; see the fields. */
export interface QueueWatchOptions {
  store: Pick<Store, 'clock' | 'log'>
  broker: Broker
  names: ServiceNames
  republisher: Republisher
  alarms: Pick<Alarms, 'evaluate'>
  /** Is called before each look. */
  look(): void
}

const lookEveryMs = 15_000

/** Reads them every 15 s until the signal is aborted. */
export async function watchQueues(options: QueueWatchOptions, signal: AbortSignal): Promise<void> {
  const { clock, log } = options.store
  while (!signal.aborted) {
    options.look()
    await readQueues(options).catch((error: unknown) => log.debug('queues could not be looked at', { err: error }))
    await clock.sleep(lookEveryMs, signal, false)
  }
}

/** Reads them once, and evaluates the alarms. */
export async function readQueues({ store, broker, names, republisher, alarms }: QueueWatchOptions): Promise<void> {
  const { service, options } = names
  /** A queue that was not used for long is gone. */
  const count = async (queue: string) => (await broker.findQueue(queue).catch(() => undefined))?.messageCount ?? 0
  let retrying = 0
  for (const queue of republisher.steps) retrying += await count(queue)
  alarms.evaluate('retries', service, retrying)
  if (options.archive === undefined) return
  if (!options.isCelery) alarms.evaluate('unrouted', '', await count(unrouted))
  const { keepMs, most } = options.archive
  const archive = new QueueArchive({ broker: async () => broker, queue: names.archive, clock: store.clock })
  const [oldest] = await archive.list({}, 1)
  // The time of a message that RabbitMQ has given up, or that another program archived, is not known.
  const nowMs = store.clock.wallMs()
  const ageMs = nowMs - (oldest?.at.getTime() || nowMs)
  const share = Math.max((await archive.count()) / most, ageMs / keepMs)
  alarms.evaluate('archive', service, Math.min(100, share * 100))
}
