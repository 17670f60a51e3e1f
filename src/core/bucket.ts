/** Names of buckets: the limit, then its key (`crm:a1`), label (`ip@host`), pool (`sender*`) or share (`crm/other`). */

/** Returns the name of the limit that a bucket belongs to. */
export function limitOf(bucket: string): string {
  return bucket.split(/[:@*/]/, 1)[0] ?? bucket
}

/** Returns the buckets that a vendor's bad answer mostly concerns: those of a request's own keys and labels; all if it has none. */
export function ownOf(buckets: readonly string[]): string[] {
  const own = buckets.filter((bucket) => /[:@]/.test(bucket))
  return own.length > 0 ? own : [...buckets]
}
