/** Reads now and then how many messages wait in queues of a RabbitMQ that others fill, too, for an alarm. */
import type { Broker } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { Alarms } from '../fleet/alarms.ts'

/** Parameters of `watchDepth`; see the fields. */
export interface DepthOptions {
  broker: Pick<Broker, 'use'>
  queues: Iterable<string>
  alarms: Pick<Alarms, 'evaluate'>
  clock: Clock
  log: Log
}

const lookEveryMs = 15_000

/** Looks until the signal is aborted. */
export async function watchDepth(options: DepthOptions, signal: AbortSignal): Promise<void> {
  const { broker, queues, alarms, clock, log } = options
  while (!signal.aborted) {
    for (const queue of queues)
      await broker
        .use((channel) => channel.checkQueue(queue))
        .then(({ messageCount }) => alarms.evaluate('depth', queue, messageCount))
        .catch((error: unknown) => log.debug('a queue of RabbitMQ could not be looked at', { queue, err: error }))
    await clock.sleep(lookEveryMs, signal, false)
  }
}
