/** The messages that a consumer has in hand, and those that it had, to recognise messages that arrive again. */
import type { Incoming } from '../amqp/broker.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { RecentMap } from '../core/recent-map.ts'
import type { CloudEvent } from '../events/envelope.ts'
import { isOf, keyFor, lastOf, partsOf, type Progress } from './message.ts'
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
  incoming: Incoming
  /** How many handlers have not had it. */
  open: number
  /** A handler has begun. */
  isBegun?: boolean
  /** What became of it was published: it goes on elsewhere. */
  isSentOn?: boolean
  /** Handlers that have had it. */
  doneBy?: string[]
  /** Copies that came meanwhile, which are settled with it. */
  copies?: Incoming[]
}

/** What a process knows of a message: it has handled it, or has it in hand. */
export type Known = 'handled' | 'in hand' | undefined

/** How many chains are remembered, whichever replica of the service had them last, to recognise messages that arrive again. */
const knownMax = 10_000

/** Messages by their keys. */
export class MessagesInHand {
  /** By chain. */
  readonly #inHand = new Map<string, MessageInHand>()
  /** The places up to which chains were handled by this service, as far as this process knows. */
  readonly #known = new RecentMap<string, number>(knownMax)
  readonly #clock: Clock
  readonly #log: Log
  /** Tries of `insist` that go on, and how many there were in this outage. */
  #open = 0
  #failed = 0

  readonly #handled: (key: string) => void

  /** @param handled called with the key of each message that was handled or sent on here */
  constructor({ clock, log }: { clock: Clock; log: Log }, handled: (key: string) => void) {
    this.#clock = clock
    this.#log = log
    this.#handled = handled
  }

  /** Returns the message in hand with this key, or with a later place in the same chain. */
  get(key: string): MessageInHand | undefined {
    const { chain, place } = partsOf(key)
    const message = this.#inHand.get(chain)
    return message?.key !== undefined && partsOf(message.key).place >= place ? message : undefined
  }

  /** Returns whether the message with this key was handled, or one with a later place in the same chain. */
  isKnown(key: string): boolean {
    const { chain, place } = partsOf(key)
    return (this.#known.get(chain) ?? -1) >= place
  }

  /** Returns what is known of the message with this key. */
  look(key: string): Known {
    if (this.isKnown(key)) return 'handled'
    const message = this.get(key)
    return message !== undefined && this.keeps(message) ? 'in hand' : undefined
  }

  /** Returns the keys of an event's messages that are known: those that were handled, and those in hand. */
  find(id: string): { handled: string[]; inHand: string[] } {
    const handled = [...this.#known].map(([chain, place]) => `${place} ${chain}`)
    const inHand = [...this.#inHand.values()].map(({ key = '' }) => key)
    const find = (keys: readonly string[]) => keys.filter((key) => isOf(key, id))
    return { handled: find(handled), inHand: find(inHand) }
  }

  /** Settles a copy of a message that was handled; one of a message in hand is settled with that. Returns whether it is one. */
  takeCopy(key: string, incoming: Incoming): boolean {
    const message = this.get(key)
    if (message === undefined) {
      if (!this.isKnown(key)) return false
      // The server missed the acknowledgement, or the publisher the confirmation of the first copy.
      incoming.ack()
    } else if (message.incoming.isInHand) (message.copies ??= []).push(incoming)
    // Its connection was lost, but not this process.
    else message.incoming = incoming
    return true
  }

  /**
   * Returns whether this process is to handle a message that it has. If the connection of one that has begun was lost, the replica that
   * gets it again leaves it to this process, unless it cannot be recognised.
   */
  keeps({ key, incoming, isBegun }: MessageInHand): boolean {
    return incoming.isInHand || (isBegun === true && key !== undefined)
  }

  /** Adds a message in hand. */
  add(message: MessageInHand): void {
    if (message.key !== undefined) this.#inHand.set(partsOf(message.key).chain, message)
  }

  /** Gives a message back. */
  giveBack(message: MessageInHand): void {
    this.#remove(message)
    message.incoming.reject({ requeue: true })
    for (const copy of message.copies ?? []) copy.reject({ requeue: true })
  }

  /** Acknowledges a message that was handled. */
  acknowledge(message: MessageInHand): void {
    const { key, incoming, copies = [], progress, isSentOn = false, doneBy = [] } = message
    this.#remove(message)
    incoming.ack()
    for (const copy of copies) copy.ack()
    // What was sent on may come back in this chain: a replica in Python sends a retry for one handler on as a message for all of them.
    if (key === undefined) return
    this.recordHandled(key, !isSentOn)
    if (isSentOn && progress.handler === undefined)
      for (const handler of doneBy) this.recordHandled(keyFor(key, handler), true)
  }

  /** Records that the message with this key was handled, or sent on; `isLast`: nothing follows in its chain. */
  recordHandled(key: string, isLast: boolean): void {
    const known = isLast ? lastOf(key) : key
    this.learn(known)
    this.#handled(known)
  }

  /** Remembers that the message with this key was handled, here or by another replica. */
  learn(key: string): void {
    const { chain, place } = partsOf(key)
    this.#known.set(chain, Math.max(place, this.#known.get(chain) ?? 0))
  }

  #remove(message: MessageInHand): void {
    if (message.key === undefined) return
    const { chain } = partsOf(message.key)
    // What it was sent on as may be here before it is acknowledged.
    if (this.#inHand.get(chain) === message) this.#inHand.delete(chain)
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
