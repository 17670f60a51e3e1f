/** What dispatch chose for an attempt, and requests that leave it to that where they go. */
import type { Handout } from '../claim/claimed-job.ts'
import type { AnyTask, Context } from '../tasks/task.ts'
import { type Chosen, chosen, isPath, splitBucket, urlAt } from '../limits/pool.ts'

/** Of each pool of its task the member that a job was granted; `unknown`: one that this worker's code does not have. */
export function choiceOf(job: Handout, task: AnyTask): { pool: Record<string, Chosen>; unknown?: string } {
  const pool: Record<string, Chosen> = {}
  for (const { name, pool: members } of task.limits) {
    const at = members === undefined ? -1 : (job.takes ?? []).indexOf(`${name}*`)
    if (at < 0) continue
    const { key } = splitBucket(job.holds?.[at] ?? '')
    const member = members?.find((one) => one.key === key)
    if (member === undefined) return { pool, unknown: `${name}:${key}` }
    pool[name] = chosen(name, member)
  }
  return { pool }
}

/** A fetch that sends a path to the member with a base URL, with its headers; unless there are several. */
export function withBase(call: Context['fetch'], pool: Context['pool']): Context['fetch'] {
  const [member, another] = Object.values(pool).filter(({ baseUrl }) => baseUrl !== undefined)
  if (member === undefined || another !== undefined) return call
  return async (input, init) => {
    if (!isPath(input)) return call(input, init)
    const headers = new Headers(init?.headers)
    for (const [name, value] of Object.entries(await member.headers())) if (!headers.has(name)) headers.set(name, value)
    // Whoever a redirect names was not granted, and is not who was meant to get the headers.
    return call(urlAt(member.baseUrl as string, input), { ...init, mode: 'same-origin', headers })
  }
}
