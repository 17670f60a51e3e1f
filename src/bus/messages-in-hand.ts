/** The messages that a consumer has in hand, and those that it had, to recognise messages that arrive again. */
import type { Delivery } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { Progress } from './message.ts'
import type { Source } from './source.ts'

/** A message in hand. It is acknowledged when all handlers have had it, or have it in a chain of their own. */
export interface MessageInHand {
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
  /** A handler has begun. */
  isBegun?: boolean
}

/** What a process knows of a message: it has handled it, or has it in hand. */
export type Known = 'handled' | 'in hand' | undefined

/** How many messages are remembered, to recognise those that arrive again. */
const knownMax = 10_000

/** Messages by their keys. */
export class MessagesInHand {
  readonly #inHand = new Map<string, MessageInHand>()
  /** Keys of messages that were handled here. */
  readonly #known = new RecentMap<string, true>(knownMax)
  readonly #clock: Clock
  readonly #log: Log
  /** Tries of `insist` that go on, and how many there were in this outage. */
  #open = 0
  #failed = 0

  constructor({ clock, log }: { clock: Clock; log: Log }) {
    this.#clock = clock
    this.#log = log
  }

  /** Returns the message in hand that has this key. */
  get(key: string): MessageInHand | undefined {
    return this.#inHand.get(key)
  }

  /** Returns whether a message with this key was handled here. */
  isKnown(key: string): boolean {
    return this.#known.has(key)
  }

  /** Returns what is known of the message with this key. */
  look(key: string): Known {
    if (this.#known.has(key)) return 'handled'
    const message = this.#inHand.get(key)
    return message !== undefined && this.keeps(message) ? 'in hand' : undefined
  }

  /**
   * Returns whether this process is to handle a message that it has. If the connection of one that has begun was lost, the replica that
   * gets it again leaves it to this process, unless it cannot be recognised.
   */
  keeps({ key, delivery, isBegun }: MessageInHand): boolean {
    return delivery.isInHand || (isBegun === true && key !== undefined)
  }

  /** Adds a message in hand. */
  add(message: MessageInHand): void {
    if (message.key !== undefined) this.#inHand.set(message.key, message)
  }

  /** Removes a message that is no longer in hand. */
  forget({ key }: MessageInHand): void {
    if (key !== undefined) this.#inHand.delete(key)
  }

  /** Acknowledges a message that was handled. */
  acknowledge(message: MessageInHand): void {
    message.delivery.ack()
    this.forget(message)
    if (message.key !== undefined) this.#known.set(message.key, true)
  }

  /**
   * Repeats `act`, which has failed, until it succeeds, while the message is in hand; resolves to whether it did. The message
   * is not given back, because a queue may count how often that happens, and handlers that have had it would get it again.
   * However many messages fail, an outage has one warning, and a line at its end.
   */
  async insist(
    isInHand: () => boolean,
    act: () => Promise<void> | undefined,
    error: unknown,
    signal: AbortSignal,
  ): Promise<boolean> {
    this.#failed = this.#open === 0 ? 1 : this.#failed + 1
    if (this.#open++ === 0)
      this.#log.warn(
        'what became of an event could not be published or stored; this and what fails meanwhile is tried again each second',
        { err: error },
      )
    try {
      for (;;) {
        await this.#clock.sleep(insistMs, signal, false)
        if (signal.aborted || !isInHand()) return false
        try {
          await act()
          return true
        } catch {
          // The first failure was reported.
        }
      }
    } finally {
      if (--this.#open === 0 && !signal.aborted)
        this.#log.info('what became of events is published or stored again', { failed: this.#failed })
    }
  }
}

/** Time between two tries to carry out what becomes of a message, in ms. */
const insistMs = 1_000
