/** An account at a vendor that counts, and states in each answer what is left. It shares no code with what reads that. */

/** How it counts. */
export type Way = 'fixed window' | 'sliding log' | 'bucket'

/** The account, on a clock that the test moves. */
export class Account {
  readonly #way: Way
  readonly #windowMs: number
  /** When its windows begin. */
  readonly #phaseMs: number
  #most: number
  /** Times of calls that count (windows), or what the bucket owes and since when. */
  #calls: number[] = []
  #owes = 0
  #atMs = 0
  /** Whole seconds since 1970 at time 0. */
  static readonly epochS = 2_000_000_000

  constructor(way: Way, most: number, windowMs = 60_000, phaseMs = 37_300) {
    this.#way = way
    this.#most = most
    this.#windowMs = windowMs
    this.#phaseMs = phaseMs
  }

  /** The vendor changes what it allows. */
  allow(most: number): void {
    this.#most = most
  }

  /** Number of the window of a time. */
  windowOf(nowMs: number): number {
    return Math.floor((nowMs - this.#phaseMs) / this.#windowMs)
  }

  /** Units that are used at a time, and when that will have changed: all back, or the first or the last of them. */
  #state(nowMs: number): { used: number; resetMs: number } {
    if (this.#way === 'bucket') {
      this.#owes = Math.max(0, this.#owes - ((nowMs - this.#atMs) * this.#most) / this.#windowMs)
      this.#atMs = nowMs
      return { used: Math.ceil(this.#owes), resetMs: nowMs + (this.#owes * this.#windowMs) / this.#most }
    }
    const isIn = (call: number) =>
      this.#way === 'sliding log' ? call > nowMs - this.#windowMs : this.windowOf(call) === this.windowOf(nowMs)
    this.#calls = this.#calls.filter(isIn)
    const endMs = (this.windowOf(nowMs) + 1) * this.#windowMs + this.#phaseMs
    const resetMs = this.#way === 'sliding log' ? (this.#calls.at(-1) ?? nowMs) + this.#windowMs : endMs
    return { used: this.#calls.length, resetMs }
  }

  /** One call; the answer has what most vendors send, times in whole seconds. */
  call(nowMs: number): { status: number; headers: Headers } {
    const before = this.#state(nowMs)
    const isFine = before.used + 1 <= this.#most
    if (isFine) {
      this.#calls.push(nowMs)
      this.#owes++
    }
    const { used, resetMs } = this.#state(nowMs)
    const second = (ms: number) => Account.epochS + Math.floor(ms / 1_000)
    const firstMs = this.#way === 'sliding log' ? (this.#calls[0] ?? nowMs) + this.#windowMs : resetMs
    const againMs = this.#way === 'bucket' ? nowMs + this.#windowMs / this.#most : firstMs
    const headers = new Headers({
      date: new Date(second(nowMs) * 1_000).toUTCString(),
      'x-ratelimit-limit': `${this.#most}`,
      'x-ratelimit-remaining': `${Math.max(0, this.#most - used)}`,
      'x-ratelimit-reset': `${second(resetMs + 999)}`,
    })
    if (!isFine) headers.set('retry-after', `${Math.ceil((againMs - nowMs) / 1_000)}`)
    return { status: isFine ? 200 : 429, headers }
  }
}
