import { fn } from '../servers/fn.ts'

/**
 * SQL that grants one unit of each of these buckets to a running job, and nothing else, as an item of FROM. The
 * arguments are SQL: the id of the grant, ids of buckets, and the cap of the clock.
 */
export const takeIn = (grant: string, buckets: string, cap = 'null') =>
  `${fn}.decide_grant(${grant}, ${buckets}, array_fill(1::bigint, array[cardinality(${buckets})]), null, 0, ${fn}.limiter_now_us(${cap})) t`
