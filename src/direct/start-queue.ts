/** Messages that wait to begin. Takes grants for them, begins those that have one and a slot, and computes when the others may come back. */
import type { Clock } from '../core/clock.ts'
import type { Bookings } from './bookings.ts'
import type { Entry, GrantOf } from './intake.ts'
import type { DirectLimiter, Got } from './limiter.ts'

/** Parameters of `StartQueue`, and the receivers of its decisions; see the fields. */
export interface StartQueueOptions {
  /** Undefined: no task has limits. */
  limits: { limiter: DirectLimiter; bookings: Bookings } | undefined
  clock: Clock
  /** Returns how many attempts can begin now. */
  free(): number
  start(entries: readonly { entry: Entry; grant: GrantOf | undefined }[]): void
  /** Its limits have no room: it comes back after this many ms. */
  onDenied(entry: Entry, delayMs: number): void
  /** Its connection was lost before it could begin. */
  onLost(entry: Entry): void
  /** Redis is away: it comes back after this many ms. */
  onAway(entry: Entry, delayMs: number): void
  /** Returns whether a message may not begin any more, because it has expired or was called off; it is over then. */
  endIfCalledOff(entry: Entry): boolean
}

/** While Redis is away, messages come back after 2 to 3 s. */
const awayMs = 2_000
/** The random part of a delay, at most, in ms: not all come back at once. */
const jitterMs = 50
const jitterPart = 0.05

/** Grants that were too old within so many ms of each other count once. */
const agedMs = 500

/** The messages of one worker that wait for a slot. */
export class StartQueue {
  readonly #options: StartQueueOptions
  /** Messages with limits. */
  #waiting: Entry[] = []
  /** Messages without limits, which wait for no answer of Redis. */
  #plain: Entry[] = []
  #working: Promise<void> | undefined
  /** For how many messages grants are being requested. */
  #requested = 0
  /** How many messages begin at once at most, because a cold process, or a busy machine, would use more grants too late. */
  #batchMax = 1
  #agedMs = -Infinity

  constructor(options: StartQueueOptions) {
    this.#options = options
  }

  /** All waiting messages. */
  get waiting(): readonly Entry[] {
    return [...this.#plain, ...this.#waiting]
  }

  /** Takes a message, which begins when there is a slot and all of its limits grant it. */
  add(entry: Entry): void {
    ;(entry.buckets.length === 0 ? this.#plain : this.#waiting).push(entry)
    this.startWaiting()
  }

  /** Begins waiting messages, because there may be more slots than before. */
  startWaiting(): void {
    this.#startPlain()
    if (this.#waiting.length === 0) return
    this.#working ??= this.#work().finally(() => {
      this.#working = undefined
      if (this.#room > 0) this.startWaiting()
    })
  }

  /** Records that a grant was too old when its handler, or its request, could begin. */
  recordLateGrant(): void {
    const nowMs = this.#options.clock.monotonicMs()
    // Grants of attempts that began together count once.
    if (nowMs - this.#agedMs < agedMs) return
    this.#agedMs = nowMs
    this.#batchMax = Math.max(1, Math.floor(this.#batchMax / 2))
  }

  /** Removes messages that wait, and returns them. Those whose grants are being requested are not among them. */
  remove(isMeant: (entry: Entry) => boolean): Entry[] {
    const found = this.waiting.filter(isMeant)
    const isLeft = (entry: Entry) => !isMeant(entry)
    this.#waiting = this.#waiting.filter(isLeft)
    this.#plain = this.#plain.filter(isLeft)
    return found
  }

  get #room(): number {
    return this.#options.free() - this.#requested
  }

  /** Begins messages without limits. While both kinds wait, at least half of the room is left to messages with limits. */
  #startPlain(): void {
    while (this.#plain.length > 0) {
      const isShared = this.#waiting.length > 0 && this.#working === undefined
      const most = isShared ? Math.floor(this.#room / 2) : this.#room
      if (most <= 0) return
      const all = this.#filterPresent(this.#plain.splice(0, most)).map((entry) => ({ entry, grant: undefined }))
      if (all.length > 0) this.#options.start(all)
      // Messages that are gone, thousands perhaps, have left room for others.
      if (all.length === most) return
    }
  }

  /** Returns the messages among these that this worker still has, and that may begin. */
  #filterPresent(entries: readonly Entry[]): Entry[] {
    return entries.filter((entry) => {
      const { isInHand } = entry.incoming
      if (!isInHand) this.#options.onLost(entry)
      return isInHand && !this.#options.endIfCalledOff(entry)
    })
  }

  async #work(): Promise<void> {
    // Grants for all messages that arrive at one time are requested in one call.
    await new Promise((resolve) => setImmediate(resolve))
    await this.#book()
    while (this.#waiting.length > 0 && this.#room > 0) {
      const batch = this.#filterPresent(this.#waiting.splice(0, Math.min(this.#batchMax, this.#room)))
      this.#requested += batch.length
      try {
        await this.#requestGrants(batch)
      } finally {
        this.#requested -= batch.length
      }
      // The messages that were denied now have booked, so others of the same bucket need no request.
      await this.#book()
    }
  }

  /** Books for messages that were never denied if others have booked in their bucket, so that they do not pass those. */
  async #book(): Promise<void> {
    const { limits } = this.#options
    if (limits === undefined) return
    const booked = new Map<Entry, string>()
    for (const entry of this.#waiting) {
      const take = entry.progress.denied > 0 ? undefined : limits.bookings.findBooked(entry.holds)
      if (take !== undefined) booked.set(entry, take)
    }
    if (booked.size === 0) return
    this.#waiting = this.#waiting.filter((entry) => !booked.has(entry))
    const groups = groupsOf([...booked.keys()], (entry) => `${booked.get(entry)} ${unitsIn(entry, booked.get(entry))}`)
    await Promise.all(groups.map((group) => this.#putOff(group, booked.get(group[0] as Entry) ?? '', 0)))
  }

  async #requestGrants(entries: readonly Entry[]): Promise<void> {
    const { limits, onAway, clock } = this.#options
    if (entries.length === 0 || limits === undefined) return
    const groups = groupsOf(entries, ({ holds, units }) => JSON.stringify([holds, units]))
    const wants = groups.map((group) => {
      const [{ holds, units } = { holds: [], units: [] }] = group
      return { buckets: holds, units, count: group.length }
    })
    const answer = await limits.limiter.take(wants)
    if (answer === undefined) {
      for (const entry of entries) onAway(entry, awayMs * (1 + clock.random() / 2))
      return
    }
    const { id, requestedAt, got } = answer
    const granted = groups.flatMap((group, i) => {
      const { granted: count = 0, lifeMs = 0 } = got[i] ?? {}
      return group.slice(0, count).map((entry) => ({ entry, grant: { id, requestedAt, lifeMs } }))
    })
    const on = granted.filter(({ entry }) => !this.#refundIfCalledOff(entry, id))
    if (on.length > 0) this.#options.start(on)
    if (granted.length === this.#batchMax) this.#batchMax *= 2
    await Promise.all(groups.map((group, i) => this.#deny(group.slice(got[i]?.granted ?? 0), got[i])))
  }

  /** Gives the grant of a message back that was called off meanwhile. */
  #refundIfCalledOff(entry: Entry, grant: string): boolean {
    if (!this.#options.endIfCalledOff(entry)) return false
    const limiter = this.#options.limits?.limiter
    limiter?.refund(grant, entry.holds, entry.units)
    limiter?.freePlaces(grant, entry.holds)
    return true
  }

  async #deny(entries: readonly Entry[], got: Got | undefined): Promise<void> {
    const [first] = entries
    if (first === undefined) return
    await this.#putOff(entries, got?.lacking ?? first.holds[0] ?? '', got?.waitMs ?? 0)
  }

  /** @param take the bucket that lacks room */
  async #putOff(entries: readonly Entry[], take: string, waitMs: number): Promise<void> {
    const { limits, onDenied, clock } = this.#options
    const units = unitsIn(entries[0], take)
    const delays = (await limits?.bookings.book(take, entries.length, units, waitMs)) ?? []
    for (const [i, entry] of entries.entries()) {
      const delayMs = delays[i] ?? waitMs
      onDenied(entry, Math.max(1, delayMs + clock.random() * Math.min(jitterMs, delayMs * jitterPart)))
    }
  }
}

function unitsIn(entry: Entry | undefined, take: string | undefined): number {
  return entry?.units[entry.holds.indexOf(take ?? '')] ?? 1
}

function groupsOf(entries: readonly Entry[], keyOf: (entry: Entry) => string): Entry[][] {
  const groups = new Map<string, Entry[]>()
  for (const entry of entries) {
    const key = keyOf(entry)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [entry])
    else group.push(entry)
  }
  return [...groups.values()]
}
