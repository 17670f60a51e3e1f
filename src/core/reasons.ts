/** Why jobs are as they are: the words of the store, the command line and the types. `docs/job.md` and `docs/record.md` explain them. */

/** Why a job failed for good. */
export const failureReasons = ['exhausted', 'refused', 'crashed', 'expired', 'doubtful', 'impossible'] as const

/** See `failureReasons`. */
export type FailureReason = (typeof failureReasons)[number]

/** Why a job is scheduled: for another attempt or its first one, by the vendor, its handler, or a rule. */
export const scheduledReasons = ['retry', 'delay', 'throttled', 'snoozed', 'rule'] as const

/** See `scheduledReasons`. */
export type ScheduledReason = (typeof scheduledReasons)[number]

/** Why a job is as it is. The reason of a cancelled job is any text that somebody gave. */
export type JobReason = FailureReason | ScheduledReason | (string & Record<never, never>)
