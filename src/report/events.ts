/** Events of a program: what happened to jobs, limits and connections, with types. `docs/logs.md` lists them. */
import { types } from 'node:util'
import { UsageError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import type { FailureReason } from '../core/reasons.ts'

/** An error as a job's record has it: without secrets. */
export interface RecordedError {
  readonly message: string
  readonly name?: string
  readonly code?: string
  readonly stack?: string
  readonly cause?: RecordedError
}

/** The attempt that an event is about. */
export interface AttemptEvent {
  /** The job's id. */
  readonly job: string
  readonly task: string
  readonly queue: string
  /** 1 for the first. */
  readonly attempt: number
  /** The worker's id, as in `sluice status`; undefined while it registers anew. */
  readonly worker: string | undefined
}

/** The fields of each event. */
export interface SluiceEvents {
  /** An attempt begins. */
  started: AttemptEvent
  /** A job is done. */
  done: AttemptEvent & { readonly tookMs: number }
  /** An attempt failed, and another one follows. */
  failed: AttemptEvent & {
    readonly error: RecordedError
    readonly tookMs: number
    /** When the next attempt may begin, in ms from now; its limits may delay it. */
    readonly retryInMs: number
  }
  /** The vendor refused an attempt because of its own limits, which is no failure; another one follows. */
  throttled: SluiceEvents['failed']
  /** A job has failed for good, whatever the reason. */
  exhausted: {
    readonly task: string
    readonly reason: FailureReason
    readonly error: RecordedError
    /** How many jobs: more than 1 only for those that end without an attempt, which one worker reports for the fleet. */
    readonly jobs: number
    /** The job's id; of several jobs the first. */
    readonly job: string
    /** The attempt that failed; undefined if the job ended without one. */
    readonly attempt: number | undefined
    readonly worker: string | undefined
  }
  /** After five failures in a row, or more, an attempt of the task was successful in this worker. */
  recovered: {
    readonly task: string
    readonly failures: number
    /** Time since the first of them, in ms. */
    readonly forMs: number
    readonly worker: string | undefined
  }
  /** A worker was given up as lost; other workers run its jobs. One worker reports it for the fleet. */
  rescued: {
    readonly worker: string
    readonly host: string
    readonly pid: number
    /** Jobs that run again. */
    readonly jobs: number
  }
  /** Other numbers of a limit are in force. Every worker reports it. */
  limit: {
    readonly limit: string
    /** The key that the change is for; absent: all keys without numbers of their own. */
    readonly key?: string
    /** `code`, `stored` or `pinned`. */
    readonly source: string
    readonly by: string
    readonly reason: string | null
    /** The definitions that hold together, the newest first: `[{ rate: '100/min' }]`; several while versions of code differ. */
    readonly before: readonly Readonly<Record<string, unknown>>[]
    readonly after: readonly Readonly<Record<string, unknown>>[]
  }
  /** A vendor's bad answers hold these limits in the whole fleet, until a trial shows that it accepts requests again. */
  held: {
    readonly limits: readonly string[]
    readonly forMs: number
    /** The newest answer. */
    readonly why: string
    /** It refused a request (429), rejects the credential, or is down. */
    readonly cause: 'refused' | 'credential' | 'down'
  }
  /** An operator paused something, or resumed it. Every worker reports it. */
  paused: {
    /** `limit crm for a1`, `queue mail`, `task sync`. */
    readonly what: string
    readonly isPaused: boolean
    readonly reason: string | null
    readonly by: string | null
  }
  /** The connection to the store, or to Redis, was lost, or is back. */
  connection: {
    readonly to: 'store' | 'redis'
    readonly isLost: boolean
    readonly error?: unknown
    /** How long it was lost, in ms. */
    readonly forMs?: number
  }
  /** Another live process defines a limit in another way than this one; until one of them is gone, both hold. */
  versions: {
    readonly limit: string
    /** The numbers in this process's code, in words. */
    readonly mine: string
    /** The numbers in the other code, in words, and the user that recorded them: user@host. */
    readonly other: string
    readonly by: string
  }
  /** An alarm was raised, or has ended. One worker reports alarms of the store for the fleet. */
  alarm: {
    /** Its name: docs/logs.md lists them. */
    readonly alarm: string
    /** Its subject: a queue, a table; empty: the store. */
    readonly subject: string
    readonly isRaised: boolean
    readonly value: number
    /** It is raised at this value, or beyond. */
    readonly threshold: number
    readonly text: string
    /** The next step for an operator. Undefined: it is over. */
    readonly todo?: string
  }
  /**
   * A key has used a share of a quota (`alarmAt` of its limit), once in each period and share. One worker reports it for the
   * fleet.
   */
  budget: {
    readonly limit: string
    /** Undefined: the limit has no keys. */
    readonly key: string | undefined
    /** The quota as it was written: `10000/day`, `50 USD/month`. */
    readonly quota: string
    /** The share that was reached; 0.8 is four fifths. */
    readonly share: number
    /** Units that count in the period, and that it holds; millionths of a `currency`. */
    readonly used: number
    readonly most: number
    /** The currency of a limit in money: `USD`. */
    readonly currency: string | undefined
    /** The period of the quota. */
    readonly from: Date
    readonly until: Date
    /** When it is used up if it goes on as since `from`; undefined: not before `until`, or it is used up. */
    readonly usedUpAt: Date | undefined
    readonly text: string
  }
}

/** The name of an event. */
export type EventName = keyof SluiceEvents

/** Receives one kind of event. What it throws is logged; a promise that it returns is not awaited. */
export type Listener<Name extends EventName> = (event: SluiceEvents[Name]) => unknown

/** The names of all events. */
export const eventNames: readonly EventName[] = [
  'started',
  'done',
  'failed',
  'throttled',
  'exhausted',
  'recovered',
  'rescued',
  'limit',
  'held',
  'paused',
  'connection',
  'versions',
  'alarm',
  'budget',
]

/** The names of other systems for these events. */
const wordsOfOthers = {
  active: '`started`',
  completed: '`done`',
  stalled: '`rescued`',
  progress: '`sluice.jobs.get(id)`, whose record has the progress',
}

/** The subscribers to events. */
export class Listeners {
  readonly #byName = new Map<EventName, Set<(event: never) => unknown>>()
  readonly #failed: (name: EventName, error: unknown) => void

  /** @param failed receives what listeners throw */
  constructor(failed: (name: EventName, error: unknown) => void) {
    this.#failed = failed
  }

  /** Subscribes; the returned function ends it. @throws UsageError SLUICE_BAD_OPTION for an unknown name */
  on<Name extends EventName>(name: Name, listener: Listener<Name>): () => void {
    checkFields('SLUICE_BAD_OPTION', '`sluice.on`', { [name]: listener }, eventNames, wordsOfOthers)
    if (typeof listener !== 'function')
      throw new UsageError('SLUICE_BAD_OPTION', `the listener of "${name}" is no function`)
    const set = this.#byName.get(name) ?? new Set()
    this.#byName.set(name, set)
    // A listener that subscribes twice is called twice.
    const own = (event: SluiceEvents[Name]) => listener(event)
    set.add(own)
    return () => {
      set.delete(own)
      if (set.size === 0) this.#byName.delete(name)
    }
  }

  /** True if somebody listens to this event. */
  has(name: EventName): boolean {
    return this.#byName.has(name)
  }

  /** Calls the listeners. Never throws. */
  call<Name extends EventName>(name: Name, event: SluiceEvents[Name]): void {
    for (const listener of this.#byName.get(name) ?? []) {
      try {
        const returned = (listener as Listener<Name>)(event)
        if (types.isPromise(returned)) returned.catch((error: unknown) => this.#failed(name, error))
      } catch (error) {
        this.#failed(name, error)
      }
    }
  }
}
