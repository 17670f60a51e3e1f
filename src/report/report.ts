/** Reports of a process: events for listeners, and lines for its log, in which equal ones are folded. */
import type { Clock } from '../core/clock.ts'
import { type Log, type LogLevel, logTo } from '../core/log.ts'
import { type EventName, type Listener, Listeners, type SluiceEvents } from './events.ts'
import { Folding } from './folding.ts'
import { isWritten } from './format.ts'
import { lineOf, plainLine } from './lines.ts'
import { plainDetails } from './plain-error.ts'

/** Events of every job: for listeners only. */
const unlogged: ReadonlySet<EventName> = new Set<EventName>(['started', 'done'])

/** The reports of one process. */
export class Report {
  /** The engine's log: equal lines are folded, errors are plain values without secrets. */
  readonly log: Log
  readonly #sink: Log
  readonly #level: LogLevel
  readonly #folding: Folding
  readonly #listeners: Listeners

  /**
   * @param sink where lines go
   * @param level lines below it are not made at all
   */
  constructor(clock: Clock, sink: Log, level: LogLevel = 'debug') {
    this.#sink = sink
    this.#level = level
    this.#folding = new Folding(clock, ({ level: at, message, details }) => {
      try {
        sink[at](message, plainDetails(details))
      } catch {
        // A logger that fails must not end the worker, and there is nobody to report it to.
      }
    })
    this.log = logTo((at, message, details) => {
      if (isWritten(at, level)) this.#folding.add(plainLine(at, message, details))
    })
    this.#listeners = new Listeners((name, error) =>
      this.log.error(`a listener of the event "${name}" failed`, { err: error }),
    )
  }

  /** Subscribes to an event; the returned function ends it. */
  on<Name extends EventName>(name: Name, listener: Listener<Name>): () => void {
    return this.#listeners.on(name, listener)
  }

  /** True if somebody listens to this event. */
  has(name: EventName): boolean {
    return this.#listeners.has(name)
  }

  /** Logs an event and calls its listeners. Never throws. */
  emit<Name extends EventName>(name: Name, event: SluiceEvents[Name]): void {
    if (!unlogged.has(name)) {
      const line = lineOf(name, event)
      // The lines that this one ends are written before it.
      if (line.isEnd) this.#folding.flush()
      if (isWritten(line.level, this.#level)) this.#folding.add(line)
    }
    this.#listeners.call(name, event)
  }

  /** Returns the log of a handler: each of its lines is written, with these fields. */
  logOf(fields: Record<string, unknown>): Log {
    return logTo((at, message, details) => {
      if (!isWritten(at, this.#level)) return
      this.#sink[at](message, details instanceof Error ? { err: details, ...fields } : { ...details, ...fields })
    })
  }

  /** Writes the counts of folded lines: the process ends. */
  end(): void {
    this.#folding.end()
  }
}
