/** Sluice: durable jobs in PostgreSQL that never exceed a third-party API's rate limit. */
export { type SluiceConfig, defineConfig } from './config.ts'
export { type Clock, systemClock } from './core/clock.ts'
export type { Hours, ParsedHours } from './core/hours.ts'
export { AttemptError, SluiceError, StoreError, UsageError } from './core/errors.ts'
export { newId } from './core/hash.ts'
export type { Log, LogFormat, LogLevel } from './core/log.ts'
export { money } from './core/money.ts'
export type { Duration, Rate } from './core/rate.ts'
export {
  type FailureReason,
  failureReasons,
  type JobReason,
  type ScheduledReason,
  scheduledReasons,
} from './core/reasons.ts'
export type { JobId, Stored } from './core/result.ts'
export type { RetryOptions, RetryPolicy } from './core/retry.ts'
export type { AttemptEvent, EventName, Listener, RecordedError, SluiceEvents } from './report/events.ts'
export type { Db, Queryable, Tx } from './db/db.ts'
export type { TxLike } from './db/tx.ts'
export type { Context, Failure, FailureContext, ThreadContext } from './tasks/context.ts'
export type { Sendable, SendManyOptions, SendOptions } from './tasks/send-options.ts'
export type { TaskOptions, ThreadTaskOptions } from './tasks/task-options.ts'
export type { AnyTask, Task, WithoutInput } from './tasks/task.ts'
export type { CostedLimit, LearnOptions } from './tasks/cost.ts'
export { task } from './tasks/task.ts'
export { remoteTask, type RemoteTaskOptions } from './tasks/remote.ts'
export { fail, retryIn, snooze } from './tasks/outcome.ts'
export {
  type DispatchChanges,
  type DispatchRuleOptions,
  type Routes,
  rule,
  type Rule,
  type RuleJob,
  type SendChanges,
  type SendRuleOptions,
} from './tasks/rule.ts'
export type { ArchivedEvent, ArchiveFilter, ArchiveOptions, EventArchive } from './events/archive.ts'
export type { BusOptions } from './bus/options.ts'
export type { EventLine, EventRecord, HandlerLine } from './events/catalogue.ts'
export type { ServiceLine } from './events/transport.ts'
export type { CloudEvent } from './events/envelope.ts'
export { type AnyEvent, type EmitOptions, event, type Event, type EventOptions, on } from './events/event.ts'
export type { Events } from './events/events.ts'
export type { Work } from './events/groups.ts'
export type { EventContext, EventHandler, GroupOptions, HandlerFunction, HandlerOptions } from './events/handler.ts'
export type { SendRow, SendRowsOptions, Sent } from './tasks/send-rows.ts'
export { http, httpTask, type HttpTaskOptions } from './tasks/http.ts'
export type { Pausable, Pause, Pauses } from './operations/pauses.ts'
export type { Parked } from './core/parked.ts'
export type { Parking } from './claim/parking/parked.ts'
export type { Exceeded, Missing, Verification, Verified, VerifyOptions } from './operations/verify.ts'
export type { Limits } from './operations/limits.ts'
export type {
  KeyNumbers,
  LimitLine,
  LimitOthers,
  LimitRefusal,
  LimitSource,
  LimitVersion,
  SourceLine,
} from './operations/limit-line.ts'
export type { UsageLine, UsageOptions } from './operations/usage.ts'
export type { Reason } from './operations/explanation.ts'
export type { WaitForOptions } from './operations/wait.ts'
export type { Why } from './operations/why.ts'
export { check, HttpStatusError } from './http/status.ts'
export { type FeedbackOptions, limitedBy, rateLimited } from './http/feedback.ts'
export type { Answer, Count, CountUnit, Reading, Refusal } from './vendors/answer.ts'
export type { ReadAnswer } from './vendors/own.ts'
export type { VendorName } from './vendors/profiles.ts'
export type { Answers } from './vendors/reader.ts'
export type { RequestInput, RequestResult } from './http/request.ts'
export type { SecretOptions, SecretPlace, SecretRef } from './http/secret.ts'
export { guaranteeOf, type LimitGuarantee, type VendorView } from './limits/exposure.ts'
export { type Guarantee, guarantees } from './limits/guarantee.ts'
export {
  type Cost,
  type HasNumber,
  type HasPath,
  type Key,
  type Limit,
  type LimitOptions,
  limit,
} from './limits/limit.ts'
export {
  type Lease,
  type TakeKey,
  type TakeOptions,
  type Taker,
  takes,
  type Tried,
  type Used,
  type WaitOptions,
} from './limits/take.ts'
export type { Takes } from './takes/takes.ts'
export type { GuaranteeName } from './limits/proof.ts'
export type { LimitNumbers, NumberChanges } from './limits/numbers.ts'
export type { VendorAlgorithm, VendorLimit, VendorRate } from './limits/vendor.ts'
export { type Chosen, label, type Label, type PoolMember } from './limits/pool.ts'
export type { SecretSource } from './core/secret.ts'
export { type Schedule, schedule, scheduledFor, type ScheduleOptions, type ScheduleSpec } from './schedule/schedule.ts'
export type { Timing, When } from './schedule/timing.ts'
export type { Firing, ScheduleLine, Schedules } from './schedule/schedules.ts'
export { workDirectly, type DirectOptions } from './direct/open.ts'
export type { DirectWorker } from './direct/worker.ts'
export { currentSluice, useSluice } from './default-sluice.ts'
export { Sluice } from './sluice.ts'
export type { SluiceOptions } from './options.ts'
export type { RedisClient } from './redis/client.ts'
export type { Backlog, KeyLoad, LimitLoad, WaitingJobs } from './operations/backlog.ts'
export type { Stop } from './operations/backlog-stops.ts'
export type { BulkOptions, BulkProgress, Counted } from './operations/bulk.ts'
export type { JobFilter } from './operations/filter.ts'
export type { FailingJobs, Job, JobFields, JobLine, Jobs, ListOptions, State, Status } from './operations/jobs.ts'
export type { JobAttempt, JobError, JobLog, JobProgress, JobWorker } from './operations/attempts.ts'
export type { AlarmOptions } from './fleet/alarm-kinds.ts'
export type { RetentionOptions, PruneTime, Retention } from './fleet/retention.ts'
export type { Pruned, PruneOptions } from './fleet/maintenance.ts'
export type { CeleryWork } from './worker/celery-work.ts'
export type { WorkOptions } from './worker/options.ts'
export type { Labels } from './worker/labels.ts'
export type { FleetWorker } from './outlet/fleet-worker.ts'
export { workInFleet, type FleetOptions } from './outlet/open.ts'
export type { Worker } from './worker/worker.ts'
