/** The interface of what carries the outlet's messages: a broker, or a test. */

/**
 * Carries messages between processes. It may lose, delay, repeat and reorder them; no job is lost, or runs beyond its
 * limits, by that.
 */
export interface Wire {
  /** False while nothing can be sent or received. */
  readonly isUp: boolean
  /**
   * Sends a message once; `ttlMs`: it is dropped if it is not received in time. Resolves when it is on its way. Rejects with
   * an `UnsentError` if nobody will receive it, with another error if that is not known.
   */
  send(to: string, message: string, ttlMs?: number): Promise<void>
  /** Sends a message to all dispatchers of a fleet, otherwise as `send`. */
  call(fleet: string, message: string): Promise<void>
  /**
   * Receives the messages that are sent to `name` from now on, across interruptions; with `fleet` also those to all
   * dispatchers of that fleet. It may be tried again.
   * @throws StoreError SLUICE_BROKER_UNREACHABLE: the broker is away now
   */
  receive(name: string, take: (message: string) => void, fleet?: string): Promise<void>
  /** Stops receiving under `name`. */
  leave(name: string): Promise<void>
}

/** Nobody will receive this message. */
export class UnsentError extends Error {}
