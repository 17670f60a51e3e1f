/** Options of events on RabbitMQ. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import { type QueueOptions, timeMaxMs } from './names.ts'

/** The transport of events; see the fields. */
export interface BusOptions {
  on: 'rabbitmq'
  /**
   * How failed events are kept in each service's archive: for how long (default '7d'), and how many (default 10,000); the oldest go
   * first. False: they are not kept.
   */
  archive?: false | { keep?: Duration | undefined; most?: number | undefined } | undefined
  /** Quorum queues, replicated in a cluster, from which retries go back at least once. Not for Python's Celery. Default false. */
  quorum?: boolean | undefined
  /** Takes JSON without an envelope as an event whose type is the routing key. Default true; false: such messages are archived. */
  plain?: boolean | undefined
  /**
   * Names and messages of Celery-AMQP-Events, for services that exchange events with Python: the same in all of them. Not with
   * `quorum`. Default false.
   */
  celery?: boolean | undefined
}

/** The options, checked. */
export interface BusSettings extends QueueOptions {
  readonly takesPlain: boolean
}

/** Returns the settings; undefined: the store carries events. @throws UsageError SLUICE_BAD_OPTION */
export function busSettings(given: string | BusOptions | undefined): BusSettings | undefined {
  if (given === undefined || given === 'store') return undefined
  const options = typeof given === 'string' ? { on: given } : given
  if (options?.on !== 'rabbitmq')
    throw bad(`\`events\` is "store", "rabbitmq", or { on: "rabbitmq", … }, not ${JSON.stringify(given)}`)
  checkFields('SLUICE_BAD_OPTION', '`events`', options, ['on', 'archive', 'quorum', 'plain', 'celery'])
  const { archive = {}, quorum = false, plain = true, celery = false } = options as BusOptions
  if (quorum && celery) throw bad('`events`: Celery cannot consume quorum queues, so give `quorum` or `celery`')
  return {
    isQuorum: quorum,
    isCelery: celery,
    takesPlain: plain,
    archive: archive === false ? undefined : boundsOf(archive),
  }
}

function boundsOf({ keep = '7d', most = 10_000 }: Exclude<BusOptions['archive'], false | undefined>) {
  const keepMs = durationMs(keep)
  // The server deletes at once what may be kept for no time.
  if (!(keepMs >= 1_000 && keepMs <= timeMaxMs))
    throw bad('`events.archive.keep` is 1 s to 49 days; false keeps nothing')
  if (!(Number.isInteger(most) && most >= 1 && most <= 10_000_000))
    throw bad('`events.archive.most` is a whole number from 1 to 10,000,000; false keeps nothing')
  return { keepMs, most }
}

function bad(text: string): UsageError {
  return new UsageError('SLUICE_BAD_OPTION', text)
}
