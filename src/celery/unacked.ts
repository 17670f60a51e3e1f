/** Messages that workers hold in Redis: taken, ended, and given back when their worker is gone. */
import { randomUUID } from 'node:crypto'
import { codeOf } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { scripts } from '../generated/lua.ts'
import { Script } from '../redis/client.ts'
import type { RedisConnection } from '../redis/connect.ts'
import type { Address } from './carrier.ts'
import {
  bindingsKey,
  boundQueues,
  heldIndexKey,
  heldKey,
  listOf,
  listsOf,
  markRedelivered,
  readEnvelope,
  readHeld,
} from './kombu.ts'
import { callRedis, callScript } from './redis-call.ts'

/** A message that was taken. */
export interface Taken {
  /** The name under which it is held. */
  tag: string
  queue: string
  text: string
}

/**
 * The list, or the queue of RabbitMQ, of messages for people: those that nobody can read, and those that the broker does not take in the
 * queue where they are put aside, because its key is no list, for example, or a right is lacking.
 */
export const parkedKey = 'sluice.parked'
/** The messages that wait for a time, by that time: wall time of Redis in s. */
export const waitingKey = 'sluice.waiting'

/** Most messages renewed in one step, in which Redis does nothing else. */
const renewedMost = 1_000

/** When a message comes again, and where; see the fields. */
export interface PutOff {
  /** 0 or less: at once. */
  afterMs: number
  queue: string
  priority: number | undefined
  text: string
  /** It comes again even if nothing is held under its tag. */
  isEnded: boolean
}

/** The messages that the workers of one Redis hold. */
export class UnackedMessages {
  readonly #redis: RedisConnection
  readonly #prefix: string
  readonly #visibleAfterMs: number
  readonly #heldForMs: number
  readonly #log: Log
  readonly #fetch = new Script(scripts['celery/fetch'] ?? '')
  readonly #move = new Script(scripts['celery/move'] ?? '')
  readonly #renew = new Script(scripts['celery/renew'] ?? '')
  readonly #putOff = new Script(scripts['celery/put-off'] ?? '')
  /** Tags under which something may be held of which nobody knows, because a fetch, or what follows it, has failed. */
  #astray: string[] = []
  readonly #refused = new Set<string>()

  /**
   * @param options `visibleAfterMs`: after this time without a sign of its worker a message is given to another one;
   * `heldForMs`: the same for what is taken here, at most as long
   */
  constructor(
    redis: RedisConnection,
    options: { prefix: string; visibleAfterMs: number; heldForMs: number; log: Log },
  ) {
    this.#redis = redis
    this.#prefix = options.prefix
    this.#visibleAfterMs = options.visibleAfterMs
    this.#heldForMs = options.heldForMs
    this.#log = options.log
  }

  /**
   * Takes up to `most` messages of queues, by priority and then in the order given, and gives back what is due, and what has waited.
   * Resolves to them, and to in how many ms the next waiting one is due; Infinity: none waits.
   * @param before is called just before the messages are looked for
   */
  async take(
    queues: readonly string[],
    most: number,
    before: () => void = () => {},
  ): Promise<{ taken: Taken[]; nextMs: number }> {
    await this.#findAstray()
    const lists = listsOf('').flatMap((list) => queues.map((queue) => ({ queue, list: queue + list })))
    const prefix = `${randomUUID()}:`
    const args = [
      prefix,
      String(most),
      String(this.#visibleAfterMs),
      this.#sooner,
      ...lists.map(({ queue }) => JSON.stringify(queue)),
    ]
    const keys = [waitingKey, ...lists.map(({ list }) => list)]
    try {
      before()
      const found = await this.#run(this.#fetch, keys, args)
      type Found = [[string, number, string][], [string, string, string][], string, [number, string][]]
      const [taken, due, next, refused] = found as Found
      this.#logRefused(
        taken.map(([, place]) => lists[place]?.list ?? ''),
        refused.map(([place, why]) => [lists[place]?.list ?? '', why]),
      )
      for (const [tag, text, time] of due) await this.#giveBack(tag, text, true, [time])
      return {
        taken: taken.map(([tag, place, text]) => ({ tag, queue: lists[place]?.queue ?? '', text })),
        nextMs: next === '-1' ? Infinity : Number(next),
      }
    } catch (error) {
      this.#astray = Array.from({ length: most }, (_, i) => `${prefix}${i}`)
      throw error
    }
  }

  /** Logs each list that Redis refuses, again only after messages came from it. */
  #logRefused(read: readonly string[], refused: readonly (readonly [list: string, why: string])[]): void {
    for (const list of read) this.#refused.delete(list)
    for (const [list, why] of refused) {
      if (this.#refused.has(list)) continue
      this.#refused.add(list)
      this.#log.error(`the list ${this.#prefix}${list} in Redis cannot be read, so its tasks wait: ${why}`)
    }
  }

  /** Has messages that were just taken, and that nobody has begun, given back at the next `take`. */
  forsake(taken: readonly Taken[]): void {
    this.#astray = [...this.#astray, ...taken.map(({ tag }) => tag)]
  }

  /** Ends it for good. False: another worker has it by now. */
  end(tag: string): Promise<boolean> {
    return this.#runMove([], [tag, ''])
  }

  /** Shows that the worker of these messages is there. Resolves to the tags of those that another worker has by now. */
  async renew(tags: readonly string[]): Promise<string[]> {
    const lost: string[] = []
    for (let from = 0; from < tags.length; from += renewedMost) {
      const args = [randomUUID(), this.#sooner, ...tags.slice(from, from + renewedMost)]
      lost.push(...((await this.#run(this.#renew, [], args))[0] as string[]))
    }
    return lost
  }

  /** The number that is added to the time of a message in hand, so that workers of Celery, too, take it for due after `heldForMs`. */
  get #sooner(): string {
    return String(this.#heldForMs - this.#visibleAfterMs)
  }

  /** Puts it to the front of its list, marked as one that was delivered unless it cannot have begun. False as for `end`. */
  release({ tag, queue, text }: Taken, isBegun = true): Promise<boolean> {
    // Its text is known. A reply to HGET names no call, so it might have the text of another message.
    return this.#giveBack(tag, `[${text}, "", ${JSON.stringify(queue)}]`, isBegun)
  }

  /** Has it come again with another text, and not be held any more, in one step. False as for `end`: then nothing was done. */
  async putOff(tag: string, { afterMs, queue, priority, text, isEnded }: PutOff): Promise<boolean> {
    const args = [tag, String(afterMs), text, isEnded ? '1' : '']
    return (await this.#run(this.#putOff, [waitingKey, listOf(queue, priority)], args))[0] === 1
  }

  /** Puts what cannot be read where people find it. */
  async park(tag: string, text: string, cause: unknown): Promise<void> {
    this.#log.error(
      `a message of Celery cannot be read or given back, and is in the list ${this.#prefix}${parkedKey}`,
      {
        err: cause,
      },
    )
    await this.#runMove([parkedKey], [tag, text])
  }

  async #findAstray(): Promise<void> {
    // The first one of a list comes back to its front.
    for (const tag of this.#astray.toReversed()) {
      const text = await this.#call('HGET', heldKey, tag)
      if (typeof text === 'string') await this.#giveBack(tag, text, false)
    }
    this.#astray = []
  }

  /** @param ifDue the time that was noted for it: if its worker has renewed it since, it stays there */
  async #giveBack(tag: string, held: string, isBegun: boolean, ifDue: readonly string[] = []): Promise<boolean> {
    try {
      if (held === '') return await this.end(tag)
      const { text, address } = readHeld(held)
      const { priority } = readEnvelope(text).message
      const lists = (await this.#queuesOf(address)).map((queue) => listOf(queue, priority))
      return await this.#runMove(lists, [tag, isBegun ? markRedelivered(text) : text, ...ifDue])
    } catch (error) {
      // Nested so deep that it cannot be written again; or what ought to be its list is none.
      const isHopeless = error instanceof RangeError || (error instanceof Error && error.message.includes('WRONGTYPE'))
      if (codeOf(error) !== 'SLUICE_CELERY_MESSAGE' && !isHopeless) throw error
      await this.park(tag, held, error)
      return true
    }
  }

  async #queuesOf({ exchange, routingKey }: Address): Promise<string[]> {
    if (exchange === '') return [routingKey]
    const bindings = (await this.#call('SMEMBERS', bindingsKey(exchange))) as string[]
    const queues = boundQueues(bindings, routingKey)
    return queues.length === 0 ? [routingKey] : queues
  }

  async #runMove(lists: readonly string[], args: readonly string[]): Promise<boolean> {
    return (await this.#run(this.#move, lists, args))[0] === 1
  }

  /** Runs a script, and resolves to what its reply has behind the first argument, which names the call. */
  #run(script: Script, lists: readonly string[], args: readonly string[]): Promise<unknown[]> {
    const keys = [heldKey, heldIndexKey, ...lists].map((key) => this.#prefix + key)
    return callScript(this.#redis, script, keys, args, args[0] ?? '')
  }

  #call(command: string, key: string, ...more: readonly string[]): Promise<unknown> {
    return callRedis(this.#redis, command, [this.#prefix + key, ...more])
  }
}
