/** Reads the messages of a queue one after the other, and gives most of them back. */
import type { Channel, GetMessage } from 'amqplib'
import { systemClock } from '../core/clock.ts'

/** Has in hand the messages that stay in the queue, and the last one. */
export class QueueReader {
  readonly #channel: Pick<Channel, 'ack' | 'nackAll' | 'get' | 'checkQueue'>
  readonly #queue: string
  readonly #keptMs: number
  #sinceMs = systemClock.monotonicMs()
  #count = 0
  #last: GetMessage | undefined

  /** @param keptMs how long messages are in hand before they are given back, and taken again */
  constructor(channel: Pick<Channel, 'ack' | 'nackAll' | 'get' | 'checkQueue'>, queue: string, keptMs: number) {
    this.#channel = channel
    this.#queue = queue
    this.#keptMs = keptMs
  }

  /** Whether the last message is in hand. Another program may have got it while it was given back. */
  get hasLast(): boolean {
    return this.#last !== undefined
  }

  /** Takes the next message; false: there is none. */
  async next(): Promise<GetMessage | false> {
    if (this.#leftMs <= 0) await this.#keepAnew()
    const message = await this.#channel.get(this.#queue)
    if (message === false) return false
    this.#count++
    this.#last = message
    return message
  }

  /** Resolves as `act` does, and keeps the messages anew meanwhile. */
  async keepDuring<T>(act: Promise<T>): Promise<T> {
    const over = new AbortController()
    void act.catch(() => {}).finally(() => over.abort())
    for (;;) {
      await systemClock.sleep(Math.max(0, this.#leftMs), over.signal)
      if (over.signal.aborted) return act
      await this.#keepAnew()
    }
  }

  /** Deletes the last message. */
  drop(): void {
    if (this.#last === undefined) return
    this.#channel.ack(this.#last)
    this.#last = undefined
    this.#count--
  }

  /** Gives all messages back; resolves when they are in their places. */
  async end(): Promise<void> {
    this.#channel.nackAll(true)
    // The server answers when it has carried out all earlier commands.
    await this.#channel.checkQueue(this.#queue)
  }

  get #leftMs(): number {
    return this.#sinceMs + this.#keptMs - systemClock.monotonicMs()
  }

  /** Gives the messages back, which return to their places at the front, and takes them again. */
  async #keepAnew(): Promise<void> {
    const [last, count] = [this.#last, this.#count]
    this.#last = undefined
    this.#count = 0
    this.#channel.nackAll(true)
    while (this.#count < count) {
      const message = await this.#channel.get(this.#queue)
      if (message === false) break
      this.#count++
      if (last !== undefined && isSame(message, last)) this.#last = message
    }
    this.#sinceMs = systemClock.monotonicMs()
  }
}

/** Whether the same message was received twice. A server adds headers of its own to one that comes again. */
function isSame(one: GetMessage, other: GetMessage): boolean {
  const identify = ({ properties: { messageId, headers = {} } }: GetMessage) =>
    JSON.stringify([messageId, ...Object.entries(headers).filter(([name]) => name.startsWith('sluice-'))])
  return identify(one) === identify(other) && one.content.equals(other.content)
}
