/** An event as a job, which is what executes attempts. */
import type { ClaimedJob } from '../claim/claimed-job.ts'
import type { Delivery } from '../events/envelope.ts'
import type { Progress } from './message.ts'
import type { Source } from './source.ts'

/** Returns the attempt of a delivery. It has no limits, and the store does not know it. `input` undefined: it was not read. */
export function jobOf(
  { task, queue }: Source,
  { attempt, failed, throttled, crashes, isDoubtful }: Progress,
  input: Delivery | undefined,
  nowMs: number,
): ClaimedJob {
  const createdMs = Date.parse(input?.event.time ?? '')
  return {
    claim: '',
    grantedMs: nowMs,
    seq: 0,
    id: input === undefined ? '' : `${input.event.id}/${input.handler}`,
    task: task.name,
    queue,
    attempt: attempt + 1,
    failed,
    throttled,
    crashes,
    ambiguous: isDoubtful,
    priority: 0,
    createdMs: Number.isFinite(createdMs) ? createdMs : 0,
    takes: null,
    costs: null,
    grantUs: null,
    holds: null,
    blocker: null,
    tags: null,
    input,
    admitted: 0,
  }
}
