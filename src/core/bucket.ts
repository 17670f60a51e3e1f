/** Names of buckets: the limit, then its key (`crm:a1`), label (`ip@host`), pool (`sender*`) or share (`crm/other`). */

/** Returns the name of the limit that a bucket belongs to. */
export function limitOf(bucket: string): string {
  return bucket.split(/[:@*/]/, 1)[0] ?? bucket
}
