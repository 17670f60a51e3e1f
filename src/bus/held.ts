/** The messages that a consumer has in hand, and those that it had, to recognise messages that arrive again. */
import type { Delivery } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { RecentMap } from '../core/recent.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { Progress } from './message.ts'
import type { Source } from './source.ts'

/** A message in hand. It is acknowledged when all handlers have had it, or have it in a chain of their own. */
export interface Held {
  /** Undefined: it cannot be recognised. */
  readonly key: string | undefined
  readonly source: Source
  /** The queue in which it was: the source's own, or a former one. */
  readonly queue: string
  readonly progress: Progress
  readonly event: CloudEvent
  delivery: Delivery
  /** How many handlers have not had it. */
  open: number
}

/** How many messages are remembered, to recognise those that arrive again. */
const knownMax = 10_000

/** Messages by their keys. */
export class HeldMessages {
  readonly #held = new Map<string, Held>()
  /** Keys of messages that were handled here. */
  readonly #known = new RecentMap<string, true>(knownMax)

  /** Returns the message in hand that has this key. */
  get(key: string): Held | undefined {
    return this.#held.get(key)
  }

  /** Returns whether a message with this key was handled here. */
  isKnown(key: string): boolean {
    return this.#known.has(key)
  }

  /** Adds a message in hand. */
  add(held: Held): void {
    if (held.key !== undefined) this.#held.set(held.key, held)
  }

  /** Removes a message that is no longer in hand. */
  forget({ key }: Held): void {
    if (key !== undefined) this.#held.delete(key)
  }

  /** Acknowledges a message that was handled. */
  acknowledge(held: Held): void {
    held.delivery.ack()
    this.forget(held)
    if (held.key !== undefined) this.#known.set(held.key, true)
  }
}

/** Time between two tries to carry out what becomes of a message, in ms. */
const insistMs = 1_000

/**
 * Repeats `act`, which has failed, until it succeeds, while the message is in hand; resolves to whether it did. The message
 * is not given back, because a queue may count how often that happens, and handlers that have had it would get it again.
 */
export async function insist(
  isInHand: () => boolean,
  act: () => Promise<void> | undefined,
  first: unknown,
  { clock, log, signal }: { clock: Clock; log: Log; signal: AbortSignal },
): Promise<boolean> {
  for (let error = first; ;) {
    log.warn('what became of an event could not be published or stored; trying again', { err: error })
    await clock.sleep(insistMs, signal, false)
    if (signal.aborted || !isInHand()) return false
    try {
      await act()
      return true
    } catch (next) {
      error = next
    }
  }
}
