/** The places that this process holds in Redis: it leases them anew until they have ended. */

/** Places by their grant, and in it by bucket. */
export class HeldPlaces {
  readonly #held = new Map<string, Map<string, number>>()

  /** Notes the places of a grant. @param items how many jobs got each set of buckets; `isLeased`: whether a bucket has places there */
  add(
    grant: string,
    items: readonly { buckets: readonly string[]; count: number }[],
    isLeased: (bucket: string) => boolean,
  ): void {
    const held = new Map<string, number>()
    for (const { buckets, count } of items)
      for (const bucket of buckets) if (count > 0 && isLeased(bucket)) held.set(bucket, (held.get(bucket) ?? 0) + count)
    if (held.size > 0) this.#held.set(grant, held)
  }

  /** Notes that one job, or take, of a grant has ended. Returns the buckets in which it had a place. */
  end(grant: string, buckets: readonly string[]): string[] {
    const held = this.#held.get(grant)
    if (held === undefined) return []
    const had = buckets.filter((bucket) => held.has(bucket))
    for (const bucket of had) {
      const places = held.get(bucket) ?? 0
      if (places > 1) held.set(bucket, places - 1)
      else held.delete(bucket)
    }
    if (held.size === 0) this.#held.delete(grant)
    return had
  }

  /** Those that are held by a grant; default: all. */
  listPlaces(of?: string): { grant: string; bucket: string; places: number }[] {
    const all = of === undefined ? [...this.#held] : [[of, this.#held.get(of) ?? new Map<string, number>()] as const]
    return all.flatMap(([grant, held]) => [...held].map(([bucket, places]) => ({ grant, bucket, places })))
  }
}
