/**
 * The progress and log lines that a handler reports while it runs. They are kept with the job, in a bounded number. The
 * worker writes them in its round, in one statement for all of its attempts, and with the outcome at the end of the
 * attempt.
 */
import type { Clock } from '../core/clock.ts'
import { type Level, type Log, logTo } from '../core/log.ts'
import { redactField, redactText, storableText } from '../core/redact.ts'
import type { Store } from '../db/store.ts'
import type { ClaimedJob } from '../claim/claimed-job.ts'

/** The most lines that are kept, and the bytes of all of them; earlier lines are dropped first. */
const linesMax = 100
const bytesMax = 8_192
/** Characters of a message, and of its details as JSON. */
const charactersMax = 500
/** The most attempts whose notes one round writes: the next one writes the others. */
const roundMax = 200

/** The notes of one attempt. */
export class Notes {
  /** Writes to the worker's log, and keeps the lines, but for those of level debug. */
  readonly log: Log
  readonly #clock: Pick<Clock, 'wallMs'>
  readonly #changed: () => void
  #progress: [done: number, total: number] | undefined
  readonly #lines: string[] = []
  #bytes = 0
  #omitted = 0

  /** @param changed called when there is something new to write */
  constructor(log: Log, clock: Pick<Clock, 'wallMs'>, changed: () => void) {
    this.#clock = clock
    this.#changed = changed
    this.log = logTo((level, message, details) => {
      log[level](message, details)
      if (level !== 'debug') this.#keep(level, message, details)
    })
  }

  readonly progress = (done: number, total = 100): void => {
    if (!Number.isFinite(done) || !Number.isFinite(total) || total <= 0) return
    const next = Math.min(Math.max(0, done), total)
    if (this.#progress?.[0] === next && this.#progress[1] === total) return
    this.#progress = [next, total]
    this.#changed()
  }

  /** Returns the notes as JSON; undefined: there are none. */
  json(): string | undefined {
    if (this.#progress === undefined && this.#lines.length === 0) return undefined
    const parts = [
      ...(this.#progress === undefined ? [] : [`"progress":${JSON.stringify(this.#progress)}`]),
      ...(this.#lines.length === 0 ? [] : [`"log":[${this.#lines.join(',')}]`]),
      ...(this.#omitted === 0 ? [] : [`"omitted":${this.#omitted}`]),
    ]
    return `{${parts.join(',')}}`
  }

  #keep(level: Level, message: string, details: Record<string, unknown> | undefined): void {
    const extra = details === undefined ? '' : `,${detailsJson(details)}`
    const line = `[${this.#clock.wallMs()},"${level}",${JSON.stringify(storableText(message, charactersMax))}${extra}]`
    this.#lines.push(line)
    this.#bytes += Buffer.byteLength(line)
    while (this.#lines.length > linesMax || this.#bytes > bytesMax) {
      this.#bytes -= Buffer.byteLength(this.#lines.shift() ?? '')
      this.#omitted++
    }
    this.#changed()
  }
}

/** Returns details as JSON without secrets; details that are too long, or that JSON cannot express, as a text. */
function detailsJson(details: Record<string, unknown>): string {
  try {
    const json = JSON.stringify(details, (name, value: unknown) => {
      const shown = value instanceof Error ? redactText(String(value)) : redactField(name, value)
      return typeof shown === 'string' ? shown.toWellFormed() : shown
    })
    // Names of fields are as they were given. The store refuses NUL, and half of a character.
    const isStorable = json.length <= charactersMax && !/\\u(?:0000|d[89a-f])/.test(json)
    return isStorable ? json : JSON.stringify(storableText(json, charactersMax))
  } catch {
    return JSON.stringify('(not expressible as JSON)')
  }
}

/** The notes of a worker's running attempts that the store does not have yet. */
export class NoteBook {
  readonly #changed = new Map<ClaimedJob, Notes>()

  /** Makes the notes of an attempt. */
  open(job: ClaimedJob, log: Log, clock: Pick<Clock, 'wallMs'>): Notes {
    const notes: Notes = new Notes(log, clock, () => this.#changed.set(job, notes))
    return notes
  }

  /** Forgets the notes of an attempt that has ended, because its outcome has them. */
  close(job: ClaimedJob): void {
    this.#changed.delete(job)
  }

  /** Writes new notes. Notes that the store does not accept now are written at the end of the attempt. */
  async write(store: Store): Promise<void> {
    const some = [...this.#changed].slice(0, roundMax)
    if (some.length === 0) return
    for (const [job] of some) this.#changed.delete(job)
    const jobs = some.map(([job]) => job)
    const texts = some.map(([, notes]) => notes.json() ?? null)
    await store.call('record_notes', [jobs.map(({ id }) => id), jobs.map(({ claim }) => claim), texts])
  }
}
