/** The pool members that a claim chose for an attempt, and requests that go to them. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Context } from '../tasks/context.ts'
import type { AnyTask } from '../tasks/task.ts'
import { type Chosen, chosen, isPath, splitBucket, urlAt } from '../limits/pool.ts'

/**
 * Returns the member that a job was granted of each pool of its task; `unknown`: this worker's code does not have the
 * member.
 */
export function poolMembersOf(job: ClaimedJob, task: AnyTask): { pool: Record<string, Chosen>; unknown?: string } {
  const pool: Record<string, Chosen> = {}
  for (const { name, pool: members } of task.limits) {
    const at = members === undefined ? -1 : (job.buckets ?? []).indexOf(`${name}*`)
    if (at < 0) continue
    const { key } = splitBucket(job.chargedBuckets?.[at] ?? '')
    const member = members?.find((one) => one.key === key)
    if (member === undefined) return { pool, unknown: `${name}:${key}` }
    pool[name] = chosen(name, member)
  }
  return { pool }
}

/**
 * Returns a fetch that sends a path to the member with a base URL, with that member's headers, unless several have one.
 */
export function withBase(call: Context['fetch'], pool: Context['pool']): Context['fetch'] {
  const [member, another] = Object.values(pool).filter(({ baseUrl }) => baseUrl !== undefined)
  if (member === undefined || another !== undefined) return call
  return async (input, init) => {
    if (!isPath(input)) return call(input, init)
    const headers = new Headers(init?.headers)
    for (const [name, value] of Object.entries(await member.headers())) if (!headers.has(name)) headers.set(name, value)
    // The grant and the headers are for this member, not for the target of a redirect.
    return call(urlAt(member.baseUrl as string, input), { ...init, mode: 'same-origin', headers })
  }
}
