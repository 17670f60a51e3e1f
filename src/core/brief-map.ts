/** A map whose entries come and go quickly. */

/**
 * The part of `Map` that busy lists need. V8 makes a new table for a busy map again and again, and each old table keeps the
 * next one. Once one of them is in the old generation, all entries since then are garbage that each quick sweep copies.
 * So the values are in boxes, which are emptied.
 */
export class BriefMap<K extends string | number, V> {
  readonly #boxes = new Map<K, { value: V | undefined }>()

  /** Returns the value of an entry; undefined: there is none. */
  get(key: K): V | undefined {
    return this.#boxes.get(key)?.value
  }

  /** Sets an entry. */
  set(key: K, value: V): void {
    this.delete(key)
    this.#boxes.set(key, { value })
  }

  /** Removes an entry, if there is one. */
  delete(key: K): void {
    const box = this.#boxes.get(key)
    if (box === undefined) return
    box.value = undefined
    this.#boxes.delete(key)
  }

  /** Returns the values in the order in which they were set. */
  values(): V[] {
    return [...this.#boxes.values()].map(({ value }) => value as V)
  }
}
