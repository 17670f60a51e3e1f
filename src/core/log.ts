/** The log interface of jobs and of the engine. */

/** Writes one line of a job's log, or of the engine's. */
export interface Log {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

/** A log that discards every line. */
export const silent: Log = { debug() {}, info() {}, warn() {}, error() {} }
