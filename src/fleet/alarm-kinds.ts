/** The kinds of alarms: how each is set, how it reads, and what to do. */
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { many, span } from '../core/figures.ts'
import { quoted } from '../core/printable.ts'
import { type Duration, durationMs } from '../core/rate.ts'

/** When alarms are raised, and where they go. Give the same to every worker; `false` switches an alarm off. */
export interface AlarmOptions {
  /** Gets a POST with JSON for each alarm that is raised or over. Default: `SLUICE_ALARM_WEBHOOK`, else nobody. */
  webhook?: string | undefined
  /** Number of jobs that wait in a queue; default 100,000. */
  queueLength?: number | false | undefined
  /** Number of messages that wait in a Celery queue on RabbitMQ that is read or filled here; default 10,000. */
  depth?: number | false | undefined
  /** How long a queue has grown without being empty; at this rate it never will be. Default 10 min. */
  growing?: Duration | false | undefined
  /** How long the oldest job of a queue has waited; default 1 h. */
  oldestWait?: Duration | false | undefined
  /** How long a job has waited that no live worker can run; default 1 min. */
  noWorker?: Duration | false | undefined
  /** Age of a transaction that keeps dead rows from being cleaned; default 30 min. */
  snapshot?: Duration | false | undefined
  /** How long a vendor has rejected the credential of a key; default 1 s. */
  credential?: Duration | false | undefined
  /** How long the vendor of a limit has been down; default 1 min. */
  vendorDown?: Duration | false | undefined
  /** How long the vendor of a limit has refused requests; default 15 min. */
  refused?: Duration | false | undefined
  /** Number of deliveries of events to a service that wait for another attempt; default 1,000. */
  retries?: number | false | undefined
  /** Number of events that wait in RabbitMQ and that no service gets; default 100. */
  unrouted?: number | false | undefined
  /** How full a service's archive on RabbitMQ is in percent, by number or age; from 100 on the oldest are dropped; default 80. */
  archive?: number | false | undefined
  /** How long the store, or Redis, has been away; default 10 s. */
  away?: Duration | false | undefined
}

/** An alarm that was read. */
export interface Reading {
  alarm: keyof typeof kinds
  subject: string
  value: number
  detail: string | null
}

/** How each alarm is set, how it reads, and what to do. A new one: a row here, and its values in fleet/read_alarm_values.sql. */
export const kinds = {
  'queue-length': {
    option: 'queueLength',
    threshold: 100_000,
    text: ({ subject, value }: Reading) => `queue "${subject}" has ${many(Math.round(value), 'waiting job')}`,
    todo: 'look at what stops them (`sluice status`); if nothing does, start more workers',
  },
  depth: {
    option: 'depth',
    threshold: 10_000,
    text: ({ subject, value }: Reading) => `RabbitMQ's queue "${subject}" has ${many(Math.round(value), 'message')}`,
    todo: 'look whether its workers live (`sluice status`, `celery inspect ping`), and start more of them',
  },
  growing: {
    option: 'growing',
    threshold: '10min',
    text: ({ subject, value, detail }: Reading) =>
      value === 0
        ? `queue "${subject}" does not grow any more`
        : `queue "${subject}" has grown for ${span(value)} without being empty${detail === null ? '' : ` (${detail})`}`,
    todo: 'at this rate it will never be empty: start more workers, raise its limits, or send less; `sluice status` shows both rates',
  },
  'oldest-wait': {
    option: 'oldestWait',
    threshold: '1h',
    text: ({ subject, value }: Reading) => `the oldest job of queue "${subject}" has waited for ${span(value)}`,
    todo: 'look at what stops the queue (`sluice status`), or why the next job of a task waits (`sluice why --task <name>`)',
  },
  'no-worker': {
    option: 'noWorker',
    threshold: '1min',
    text: ({ subject, value }: Reading) => {
      const what = subject.replace(' in ', ' in queue ')
      return value === 0
        ? `no job of task ${what} waits without a worker`
        : `no live worker can run task ${what}; a job has waited for ${span(value)}`
    },
    todo: 'start a worker that has the task and serves the queue; `sluice tasks` lists who serves what',
  },
  snapshot: {
    option: 'snapshot',
    threshold: '30min',
    text: ({ value, detail }: Reading) =>
      value === 0
        ? 'no old transaction keeps dead rows'
        : `a transaction of ${span(value)}${detail === null ? '' : ` (${detail})`} keeps dead rows from being cleaned`,
    todo: 'end that transaction; `sluice doctor` prints the command',
  },
  credential: {
    option: 'credential',
    threshold: '1s',
    text: ({ subject, value, detail }: Reading) =>
      value === 0
        ? `the credential of limit ${subject} holds no jobs back any more`
        : `the vendor has rejected the credential of limit ${subject} for ${span(value)} (${detail})`,
    todo: 'correct the credential, then start its jobs by `sluice limits reset <limit> --key <key>`',
  },
  'vendor-down': {
    option: 'vendorDown',
    threshold: '1min',
    text: ({ subject, value, detail }: Reading) =>
      value === 0
        ? `the vendor of limit ${subject} holds no jobs back any more`
        : `the vendor of limit ${subject} has been down for ${span(value)} (${detail})`,
    todo: 'look at the vendor’s status page; its jobs wait, and go on by themselves when it is back',
  },
  refused: {
    option: 'refused',
    threshold: '15min',
    text: ({ subject, value, detail }: Reading) =>
      value === 0
        ? `the vendor of limit ${subject} refuses no requests any more`
        : `the vendor of limit ${subject} has refused requests for ${span(value)} (${detail})`,
    todo: 'look whether somebody else uses the account, and whether the limit is higher than what the vendor allows (`sluice limits show <limit>`); if the vendor accepts requests again, start its jobs by `sluice limits reset <limit>`',
  },
  retries: {
    option: 'retries',
    threshold: 1_000,
    text: ({ subject, value }: Reading) =>
      `service "${subject}" has ${many(Math.round(value), 'event')} whose handling failed and is to be retried`,
    todo: 'look at which handlers fail (`sluice events list`): retries are for exceptions, not for the normal flow',
  },
  unrouted: {
    option: 'unrouted',
    threshold: 100,
    text: ({ value }: Reading) =>
      `no service gets ${many(Math.round(value), 'event')} in RabbitMQ's queue of unrouted events`,
    todo: '`sluice events archive list sluice.unrouted` shows them; subscribe to them and replay them, or stop emitting them',
  },
  archive: {
    option: 'archive',
    threshold: 80,
    text: ({ subject, value }: Reading) =>
      `the archive of service "${subject}" is full to ${Math.round(value)} %; from 100 % on its oldest events are dropped`,
    todo: 'replay or discard them (`sluice events archive`), or give the archive larger bounds',
  },
  away: {
    option: 'away',
    threshold: '10s',
    text: ({ subject, value }: Reading) =>
      value === 0 ? `${names[subject]} answers again` : `${names[subject]} has not answered for ${span(value)}`,
    todo: 'start the server, or repair the network; this process goes on by itself',
  },
} as const satisfies Record<
  string,
  { option: keyof AlarmOptions; threshold: number | Duration; text: unknown; todo: string }
>

const names: Record<string, string> = { store: 'the database', redis: 'Redis' }

/** Returns what to do about an alarm; in a command, the names of its subject: a limit, or a key of one (`crm for a1`). */
export function remedyOf(kind: keyof typeof kinds, subject: string): string {
  const [limit = '', ...key] = subject.split(' for ')
  const what = key.length === 0 ? limit : `${limit} --key ${quoted(key.join(' for '))}`
  return kinds[kind].todo.replaceAll(/<limit>( --key <key>)?/g, (_, keyed?: string) =>
    keyed === undefined ? limit : what,
  )
}

/** Returns the bound of each alarm. @throws UsageError SLUICE_BAD_OPTION */
export function thresholdsOf(options: AlarmOptions): Map<string, number> {
  const fields = ['webhook', ...Object.values(kinds).map(({ option }) => option)]
  checkFields('SLUICE_BAD_OPTION', '`alarms`', options, fields)
  return new Map(
    Object.entries(kinds).map(([alarm, { option, threshold }]) => {
      const given = options[option] ?? threshold
      if (given === false) return [alarm, Infinity]
      const value = typeof threshold === 'number' ? given : durationMs(given as Duration)
      if (typeof value === 'number' && value > 0) return [alarm, value]
      throw new UsageError('SLUICE_BAD_OPTION', `alarms.${option} is "${given}"; it must be more than 0, or false`)
    }),
  )
}
