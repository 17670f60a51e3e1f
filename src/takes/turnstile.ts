/** Lets few requests at a time through to the store. A grant grows old while its request waits for a connection. */
export class Turnstile {
  #free: number
  readonly #line: (() => void)[] = []

  /** @param most how many pass at a time */
  constructor(most: number) {
    this.#free = most
  }

  /** Runs `body` once its turn has come, in the order of the calls. */
  async pass<T>(body: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((resolve) => this.#line.push(resolve))
    try {
      return await body()
    } finally {
      const next = this.#line.shift()
      if (next === undefined) this.#free++
      else next()
    }
  }
}
