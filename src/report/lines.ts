/** How each event reads in the log: its level, its text, and which lines are equal. */
import { limitOf } from '../core/bucket.ts'
import { span } from '../core/figures.ts'
import type { Level } from '../core/log.ts'
import type { AttemptEvent, EventName, RecordedError, SluiceEvents } from './events.ts'

/** A line of the log, before it is written. */
export interface Line {
  level: Level
  message: string
  details: Record<string, unknown> | undefined
  /** Lines of one kind are equal, and folded. */
  kind: string
  /** Details that equal lines have in common; the others are left out where a line stands for several. */
  common: readonly string[]
  /** It is the end of something that other lines are about. */
  isEnd?: boolean
}

function isEnd(name: EventName, event: object): boolean {
  return name === 'recovered' || ('isLost' in event && !event.isLost) || ('isRaised' in event && !event.isRaised)
}

type Formatters = { [Name in EventName]: (event: SluiceEvents[Name]) => Line }

/** Returns the line of an event. */
export function lineOf<Name extends EventName>(name: Name, event: SluiceEvents[Name]): Line {
  const line = formatters[name](event)
  return { ...line, kind: `${name} ${line.kind}`, isEnd: isEnd(name, event) }
}

/** Returns a line that is no event's. */
export function plainLine(level: Level, message: string, details: Record<string, unknown> | undefined): Line {
  return { level, message, details, kind: `${level} ${generalised(message)}`, common: Object.keys(details ?? {}) }
}

// The end of a line at `warn` or above is logged at `warn`, so that a log at `warn` has the whole story.
const formatters: Formatters = {
  started: (event) => line('info', 'started', detailsOf(event), [event.task]),
  done: (event) => line('info', `done in ${span(event.tookMs)}`, detailsOf(event), [event.task]),
  failed: ({ error, retryInMs, ...event }) =>
    line(
      'warn',
      `attempt failed, next ${retryInMs > 0 ? `in ${span(retryInMs)}` : 'at once'}: ${error.message}`,
      { ...detailsOf(event), err: error },
      [event.task, sortOf(error)],
    ),
  throttled: ({ error, retryInMs, ...event }) =>
    line(
      'warn',
      `not served by the vendor, next ${retryInMs > 0 ? `in ${span(retryInMs)} at the earliest` : 'when its limits allow it'}: ${error.message}`,
      { ...detailsOf(event), err: error },
      [event.task, sortOf(error)],
    ),
  exhausted: ({ reason, error, jobs, ...event }) =>
    line(
      'error',
      `${jobs === 1 ? 'job' : `${jobs} jobs`} failed for good (${ends[reason] ?? reason}${event.attempt === undefined ? '' : `, attempt ${event.attempt}`}): ${error.message}`,
      { task: event.task, job: event.job, attempt: event.attempt, worker: event.worker, reason, err: error },
      [event.task, reason, sortOf(error)],
      ['task', 'reason', 'worker'],
    ),
  recovered: ({ failures, forMs, ...rest }) =>
    line('warn', `"${rest.task}" works again, after ${failures} failures in ${span(forMs)}`, { ...rest, failures }),
  rescued: (event) =>
    line(
      'warn',
      `worker ${event.worker} (${event.host}, process ${event.pid}) is lost; ${event.jobs === 0 ? 'it had no jobs' : `${event.jobs === 1 ? 'its job runs' : `its ${event.jobs} jobs run`} again, marked \`ambiguous\``}`,
      { ...event, worker: undefined, lost: event.worker },
    ),
  limit: ({ before, after, ...event }) =>
    line(
      'warn',
      `limit "${event.limit}"${event.key === undefined ? '' : ` for ${event.key}`} is now ${numbers(after)}; it was ${numbers(before)} (${event.source}, by ${event.by}${event.reason === null ? '' : `: ${event.reason}`})`,
      { ...event, before, after },
    ),
  held: (event) =>
    line(
      'warn',
      `${limitsInWords(event.limits)} held for ${span(event.forMs)}: ${causes[event.cause]} (${event.why})`,
      { limits: event.limits, forMs: Math.round(event.forMs), cause: event.cause },
      [namesOf(event.limits)],
      [],
    ),
  paused: (event) =>
    line(
      'warn',
      `${event.what} is ${event.isPaused ? `paused: ${event.reason ?? 'no reason given'}` : 'resumed'}${event.by === null ? '' : ` (by ${event.by})`}`,
      { ...event },
    ),
  connection: ({ to, isLost, error, forMs }) =>
    isLost
      ? line('error', connectionTexts[to].lost, { to, err: error })
      : line('warn', `${connectionTexts[to].found}${forMs === undefined ? '' : ` after ${span(forMs)}`}`, {
          to,
          forMs: forMs === undefined ? undefined : Math.round(forMs),
        }),
  versions: ({ limit, mine, other, by }) =>
    line(
      'warn',
      `limit "${limit}" is ${mine} in this process's code and ${other} in that of another one (${by}): both hold until one of them has been gone for 15 s (an hour, if it comes and goes). \`sluice limits set\` settles it at once`,
      { limit, mine, other, by },
    ),
  alarm: (event) =>
    line('warn', `alarm${event.isRaised ? ': ' : ' '}${alarmText(event)}`, {
      ...event,
      text: undefined,
      todo: undefined,
    }),
  budget: ({ text, ...event }) =>
    line(
      'warn',
      `budget: ${text}`,
      { ...event },
      [event.limit, event.quota, `${event.share}`],
      ['limit', 'quota', 'share'],
    ),
}

/** Formats an alarm: what is wrong and what to do, or that it is over. */
export function alarmText({ isRaised, text, todo }: SluiceEvents['alarm']): string {
  return isRaised ? `${text}${todo === undefined ? '' : `: ${todo}`}` : `over: ${text}`
}

const ends: Record<string, string> = {
  exhausted: 'no attempts left',
  refused: 'final error',
  doubtful: 'outcome unknown, and it may run only once',
  crashed: 'its workers were lost',
}

const connectionTexts = {
  store: { lost: 'the database is unreachable; retrying until it answers', found: 'the database answers again' },
  redis: {
    lost: 'Redis, where limits are shared, is away: limits wait, except those with onStoreError: "open"',
    found: 'Redis is back, and limits in it continue',
  },
}

function line(
  level: Level,
  message: string,
  details: Record<string, unknown>,
  sort: readonly string[] = [generalised(message)],
  common: readonly string[] = ['task', 'worker'],
): Line {
  return { level, message, details, kind: [level, ...sort].join(' '), common }
}

function detailsOf({ task, job, attempt, worker }: AttemptEvent): Record<string, unknown> {
  return { task, job, attempt, worker }
}

/** Errors of one sort differ only in numbers, ids and quoted texts. */
function sortOf({ name, code, message }: RecordedError): string {
  return `${code ?? name ?? ''} ${generalised(message)}`
}

/** Leaves out what differs between equal lines: quoted texts, and words with digits unless they may be an HTTP status. */
function generalised(message: string): string {
  return message
    .slice(0, 400)
    .replaceAll(/"[^"]*"|'[^']*'/g, '…')
    .replaceAll(/[^\s,;:()]*\d[^\s,;()]*/g, (word) => (/^[1-5]\d\d\.?$/.test(word) ? word : '#'))
    .slice(0, 200)
}

const causes = {
  refused: 'the vendor demanded it',
  credential: 'the vendor rejects the credential',
  down: 'the vendor is down',
} as const

/** Formats the limits of a job: `limit crm for a1 is`, `limits crm for a1 and total are`. */
function limitsInWords(buckets: readonly string[]): string {
  const all = buckets.map((bucket) => bucket.replace(':', ' for ')).join(' and ')
  return buckets.length === 1 ? `limit ${all} is` : `limits ${all} are`
}

function namesOf(buckets: readonly string[]): string {
  return buckets.map(limitOf).join()
}

/** Formats definitions that hold together: `rate 100/min, concurrency 5`. */
function numbers(given: readonly Readonly<Record<string, unknown>>[]): string {
  const inWords = (one: Readonly<Record<string, unknown>>) =>
    Object.entries(one)
      .map(([name, value]) => `${name} ${[value].flat().join(' and ')}`)
      .join(', ')
  return given.map(inWords).join(' beside ')
}
