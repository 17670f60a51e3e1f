/** The log interface of jobs and of the engine. */

/** Levels of log lines, the least important first. */
export const levels = ['debug', 'info', 'warn', 'error'] as const

/** The level of a log line. */
export type Level = (typeof levels)[number]

/** The least level that is written; `silent`: nothing is. */
export type LogLevel = Level | 'silent'

/** How log lines are written: for people, or as JSON with the field names of pino. */
export type LogFormat = 'text' | 'json'

/** Writes one line of a job's log, or of the engine's. An error among the details is written with its stack and causes. */
export interface Log {
  debug(message: string, details?: Record<string, unknown>): void
  info(message: string, details?: Record<string, unknown>): void
  warn(message: string, details?: Record<string, unknown>): void
  error(message: string, details?: Record<string, unknown>): void
}

/** A log that discards every line. */
export const silent: Log = { debug() {}, info() {}, warn() {}, error() {} }

/** Makes a log of a function that writes one line. */
export function logTo(write: (level: Level, message: string, details?: Record<string, unknown>) => void): Log {
  const at = (level: Level) => (message: string, details?: Record<string, unknown>) => write(level, message, details)
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
}
