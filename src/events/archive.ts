/** The archive of a service, if its events' transport keeps failed ones. (The store keeps them as failed jobs.) */
import type { Duration, Rate } from '../core/rate.ts'
import type { CloudEvent } from './envelope.ts'

/** An event that failed for good. */
export interface ArchivedEvent {
  /** The event's id; null: the message is no event, and has no id either. */
  readonly id: string | null
  readonly type: string
  /** The handler that failed; null: it got to none, and a replay brings it to all that match. */
  readonly handler: string | null
  /** Attempts so far, those before a replay included. */
  readonly attempt: number
  /** `exhausted`, `refused`, `crashed` or `doubtful`, as of a failed job; `unrouted`: no service gets it. */
  readonly reason: string
  readonly error: { readonly message: string; readonly code?: string }
  readonly at: Date
  /** Null: the message is no event; then `text` has its beginning. */
  readonly event: CloudEvent | null
  readonly text: string | null
}

/** Selects archived events; all fields must match. */
export interface ArchiveFilter {
  id?: string
  /** A type, or a pattern. */
  event?: string
  handler?: string
  reason?: string
  /** A part of the error's message; case does not matter. */
  error?: string
  /** Archived at this time or later; a time, or how long ago. */
  since?: Date | Duration
  /** Archived before this time. */
  until?: Date | Duration
}

/** How to change many archived events. */
export interface ArchiveOptions {
  /** At most this many in a time, evenly. Default: no bound. */
  rate?: Rate | undefined
  /** Stops: what is done stays done, and the call resolves. */
  signal?: AbortSignal | undefined
  /** Called after each one that matched. */
  onProgress?: ((progress: { done: number; seen: number }) => void) | undefined
}

/** The archive of one service. While one call goes through it, others do not see what that one has passed. */
export interface EventArchive {
  /** How many there are. */
  count(): Promise<number>
  /** Lists them, the oldest first; at most `most`, default 100. */
  list(filter?: ArchiveFilter, most?: number): Promise<ArchivedEvent[]>
  /** Calls `visit` for each, the oldest first, until it returns false. Resolves to how many it got. */
  each(filter: ArchiveFilter, visit: (archived: ArchivedEvent) => unknown): Promise<number>
  /** Replays them with all attempts, counted from the beginning; `redelivered` is true. Resolves to how many. */
  replay(filter: ArchiveFilter, options?: ArchiveOptions): Promise<number>
  /** Deletes them. Resolves to how many. */
  discard(filter: ArchiveFilter, options?: ArchiveOptions): Promise<number>
}
