/** What one process measures of the margin of one limit. Pure, but for the time that callers pass. */

/** The newest ages of grants between two reports that are remembered. */
const agesMax = 512
/** Nearly all grants: this part of them, in each of the last reports. */
const nearly = 0.99
const reportsMax = 12
/** Fewer grants that come too late, between two reports, do not matter. */
const lateLeast = 5
/** Answers are remembered by the minute, for ten of them. */
const slotMs = 60_000
const slotsMax = 10

interface Slot {
  readonly n: number
  answers: number
  leastMs: number
  mostMs: number
  /** False if a request may have been sent that was not measured, or the vendor refused one. */
  isSound: boolean
}

/** What a process reports of a limit, in microseconds. */
export interface Report {
  /** Number of grants whose age is known. */
  readonly ages: number
  /** The age that nearly all of them had at most. */
  readonly ageUs: number
  /** The part of those since the last report that were too old. */
  readonly latePart: number
  readonly answers: number
  readonly leastUs: number
  readonly mostUs: number
  readonly isSound: boolean
}

/** The samples of one process and one limit. */
export class Samples {
  #ages: number[] = []
  #next = 0
  /** How many ages each of the last reports had, and the age of nearly all of them. */
  #known: { n: number; ageMs: number }[] = []
  #used = 0
  #late = 0
  #slots: Slot[] = []

  /** A grant was used at this age, or was too old for it. */
  aged(ageMs: number, isLate: boolean): void {
    this.#ages[this.#next] = ageMs
    this.#next = (this.#next + 1) % agesMax
    if (isLate) this.#late++
    else this.#used++
  }

  /** A request was answered so long after it was written. */
  answered(tookMs: number, nowMs: number): void {
    const slot = this.#slot(nowMs)
    slot.answers++
    slot.leastMs = Math.min(slot.leastMs, tookMs)
    slot.mostMs = Math.max(slot.mostMs, tookMs)
  }

  /** Nothing is known of the way of a request, or the vendor refused one that the limit allows. Returns whether that is new. */
  doubted(nowMs: number): boolean {
    const slot = this.#slot(nowMs)
    const isNew = this.#slots.every(({ isSound }) => isSound)
    slot.isSound = false
    return isNew
  }

  /** Returns what is known, and begins to count late grants anew. */
  report(nowMs: number): Report {
    this.#drop(nowMs)
    const sorted = this.#ages.toSorted((a, b) => a - b)
    const n = this.#used + this.#late
    if (n > 0) this.#known.push({ n, ageMs: sorted[Math.ceil(sorted.length * nearly) - 1] ?? 0 })
    this.#known = this.#known.slice(-reportsMax)
    const latePart = this.#late >= lateLeast ? this.#late / n : 0
    this.#ages = []
    this.#next = this.#late = this.#used = 0
    const us = (ms: number) => (Number.isFinite(ms) ? Math.ceil(ms * 1_000) : 0)
    return {
      ages: this.#known.reduce((sum, one) => sum + one.n, 0),
      ageUs: us(Math.max(0, ...this.#known.map(({ ageMs }) => ageMs))),
      latePart,
      answers: this.#slots.reduce((sum, { answers }) => sum + answers, 0),
      leastUs: us(Math.min(...this.#slots.map(({ leastMs }) => leastMs))),
      mostUs: us(Math.max(...this.#slots.map(({ mostMs }) => mostMs))),
      isSound: this.#slots.every(({ isSound }) => isSound),
    }
  }

  #slot(nowMs: number): Slot {
    const n = Math.floor(nowMs / slotMs)
    const newest = this.#slots.at(-1)
    if (newest !== undefined && newest.n >= n) return newest
    const slot = { n, answers: 0, leastMs: Infinity, mostMs: -Infinity, isSound: true }
    this.#slots.push(slot)
    this.#drop(nowMs)
    return slot
  }

  #drop(nowMs: number): void {
    const first = Math.floor(nowMs / slotMs) - slotsMax
    if ((this.#slots[0]?.n ?? first + 1) <= first) this.#slots = this.#slots.filter(({ n }) => n > first)
  }
}
