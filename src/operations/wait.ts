import type { Clock } from '../core/clock.ts'
import { StoreError, UsageError } from '../core/errors.ts'
import { checkFields, checkSignal } from '../core/fields.ts'
import { type Duration, durationMs } from '../core/rate.ts'
import type { ResultOf } from '../core/result.ts'
import { isFinal, type Job, type Jobs } from './jobs.ts'

/** How long to wait for the end of a job. */
export interface WaitForOptions {
  /** Then it rejects with SLUICE_WAIT_TIMEOUT. Default: never. */
  timeout?: Duration | undefined
  /** Ends the wait, with the signal's reason; the job goes on. */
  signal?: AbortSignal | undefined
}

/**
 * Polls a job until it has ended, at first after 10 ms, later every 500 ms.
 * @throws UsageError SLUICE_NO_SUCH_JOB, SLUICE_BAD_OPTION; StoreError SLUICE_WAIT_TIMEOUT; the reason of the signal
 */
export async function waitFor<Id extends string>(
  jobs: Jobs,
  clock: Clock,
  id: Id,
  options: WaitForOptions,
): Promise<Job<ResultOf<Id>>> {
  checkFields('SLUICE_BAD_OPTION', '`waitFor`', options, ['timeout', 'signal'])
  const { timeout, signal } = options
  checkSignal(signal)
  const until = timeout === undefined ? Infinity : clock.monotonicMs() + durationMs(timeout)
  for (let pause = 10; ; pause = Math.min(500, pause * 1.5)) {
    const job = await jobs.get(id)
    if (job === undefined)
      throw new UsageError('SLUICE_NO_SUCH_JOB', `there is no job ${id}, or its record is past its retention`)
    if (isFinal(job.state)) return job
    if (clock.monotonicMs() > until)
      throw new StoreError(
        'SLUICE_WAIT_TIMEOUT',
        `job ${id} is still ${job.state}; run \`sluice why ${id}\` to see why`,
      )
    await clock.sleep(pause, signal)
    signal?.throwIfAborted()
  }
}
