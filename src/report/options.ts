/** How a process writes its log: by its options, else the environment, else to stderr at `warn`, as text. */
import { type Clock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { levels, type Log, type LogFormat, type LogLevel } from '../core/log.ts'
import { writtenLog } from './format.ts'
import { Report } from './report.ts'

/** Options of a log; see the fields. */
export interface LogOptions {
  /** Receives log lines; default: they are written to stderr. It gets lines of every level. */
  log?: Log | undefined
  /** The least level that is written to stderr. Default: `SLUICE_LOG_LEVEL`, else `warn`. */
  logLevel?: LogLevel | undefined
  /** How lines are written to stderr. Default: `SLUICE_LOG_FORMAT`, else `text`, with colours on a terminal. */
  logFormat?: LogFormat | undefined
}

/** The levels that can be set. */
export const logLevels: readonly LogLevel[] = [...levels, 'silent']
/** The formats that can be set. */
export const logFormats: readonly LogFormat[] = ['text', 'json']

/** Returns the level and the format of these options, else of the environment, else these. @throws UsageError SLUICE_BAD_OPTION */
export function logStyle(
  { logLevel, logFormat }: Pick<LogOptions, 'logLevel' | 'logFormat'>,
  level: LogLevel,
  format: LogFormat = 'text',
): { level: LogLevel; format: LogFormat } {
  return {
    level: chosen('the log level', logLevels, logLevel, 'SLUICE_LOG_LEVEL') ?? level,
    format: chosen('the log format', logFormats, logFormat, 'SLUICE_LOG_FORMAT') ?? format,
  }
}

function chosen<T extends string>(
  what: string,
  known: readonly T[],
  given: T | undefined,
  name: string,
): T | undefined {
  const value = given ?? (process.env[name] || undefined)
  if (value === undefined || known.includes(value as T)) return value as T | undefined
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    `${given === undefined ? name : what} is "${value}"; it must be one of ${known.join(', ')}`,
  )
}

/** Returns what a program reports to: its own log, else stderr. @throws UsageError SLUICE_BAD_OPTION */
export function reportOf(options: LogOptions, clock: Clock): Report {
  if (options.log !== undefined) return new Report(clock, options.log)
  const { level, format } = logStyle(options, 'warn')
  return new Report(clock, stderrLog(level, format, clock), level)
}

/** Makes a log in the style of stderr. @param write writes a text; default: to stderr */
export function stderrLog(
  level: LogLevel,
  format: LogFormat,
  clock: Clock,
  write: (text: string) => void = (text) => void process.stderr.write(text),
): Log {
  const isTerminal = process.stderr.isTTY === true && format === 'text' && !process.env['NO_COLOR']
  return writtenLog({ level, format, isTerminal }, write, () => clock.wallMs())
}
