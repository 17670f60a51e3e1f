/** An event as a job, which is what executes attempts. */
import { type ClaimedJob, unclaimedJob } from '../claim/claimed-job.ts'
import type { Delivery } from '../events/envelope.ts'
import type { Progress } from './message.ts'
import type { Source } from './source.ts'

/** Returns the attempt of a delivery. It has no limits, and the store does not know it. `input` undefined: it was not read. */
export function jobOf(
  { task, queue }: Source,
  progress: Progress,
  input: Delivery | undefined,
  nowMs: number,
): ClaimedJob {
  const createdMs = Date.parse(input?.event.time ?? '')
  return unclaimedJob(progress, {
    id: input === undefined ? '' : `${input.event.id}/${input.handler}`,
    task: task.name,
    queue,
    grantedMs: nowMs,
    createdMs: Number.isFinite(createdMs) ? createdMs : 0,
    input,
  })
}
