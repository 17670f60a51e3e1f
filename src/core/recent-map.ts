/** A map that forgets its oldest entries. */

/** The newest entries: those that were set last. It has up to twice as many as `most`. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #most: number

  constructor(most: number) {
    super()
    this.#most = most
  }

  /** Sets an entry, which becomes the newest. Forgets many at once, because a map is slow to find its first after deletions. */
  override set(key: K, value: V): this {
    this.delete(key)
    super.set(key, value)
    if (this.size < 2 * this.#most) return this
    for (const oldest of this.keys()) {
      if (this.size <= this.#most) break
      this.delete(oldest)
    }
    return this
  }
}
