/** Output of the command line: data on stdout, messages on stderr, colours only on a terminal, no secrets in log lines. */
import { styleText } from 'node:util'
import { span } from '../core/figures.ts'
import { systemClock } from '../core/clock.ts'
import type { Log, LogFormat, LogLevel } from '../core/log.ts'
import { printable, printablePainted, quoted } from '../core/printable.ts'
import { redactText } from '../core/redact.ts'
import { logStyle, stderrLog } from '../report/options.ts'

export { figure, many, percent, span } from '../core/figures.ts'

import { screen } from './screen.ts'
import { aligned, widthOf } from './columns.ts'

type Colour = 'green' | 'yellow' | 'red' | 'dim' | 'bold'

/** The output of one command. */
export interface Output {
  /** `--json`: data are written as JSON, and no hints. */
  readonly json: boolean
  /** Writes one line of data. */
  line(text: string): void
  /** Writes one object of data, as a line of JSON. */
  object(value: unknown): void
  /**
   * Writes aligned columns, or on a narrow terminal blocks; the first row is the heading. `spare` are the headings of columns that
   * are left out, the first one first, until the terminal is wide enough.
   */
  table(rows: readonly (readonly string[])[], spare?: readonly string[]): void
  /** Writes a message to stderr, also with --json. */
  talk(text: string): void
  /** Writes the suggested next step to stderr; not with --json. */
  hint(text: string): void
  paint(colour: Colour, text: string): string
  /** Writes log lines of workers and handlers to stderr. */
  readonly log: Log
}

/** Flags that name the store of a command. */
export interface StoreFlags {
  store?: string
  schema?: string
  config?: string
}

/** How a command prints; the flags of its store are repeated in the commands that it suggests. */
export interface OutputOptions extends StoreFlags {
  json?: boolean
  color?: boolean
  /** Default: `SLUICE_LOG_LEVEL`, else `info`. */
  logLevel?: LogLevel
  /** Default: `SLUICE_LOG_FORMAT`, else `json` with `--json`, and `text` without it. */
  logFormat?: LogFormat
}

/** Makes the output of one command. @throws UsageError SLUICE_BAD_OPTION */
export function output(options: OutputOptions): Output {
  const json = options.json === true
  const isColoured = !json && options.color !== false && !process.env['NO_COLOR'] && process.stdout.isTTY === true
  if (options.color === false) process.env['NO_COLOR'] ??= '1'
  const { level, format } = logStyle(options, 'info', json ? 'json' : 'text')
  const log = stderrLog(level, format, systemClock, (text) => screen.write(text))
  const safe = isColoured ? printablePainted : printable
  const line = (text: string) => void process.stdout.write(`${safe(text)}\n`)
  const talk = (text: string) => screen.write(`${safe(text)}\n`)
  const paint = (colour: Colour, text: string) => (isColoured ? styleText(colour, text) : text)
  return {
    json,
    line,
    object: (value) => void process.stdout.write(`${printable(JSON.stringify(value))}\n`),
    table: (rows, spare) =>
      aligned(
        rows.map((row) => row.map(safe)),
        widthOf(),
        spare,
        (heading) => paint('dim', heading),
      ).forEach(line),
    talk,
    hint: (text) => (json ? undefined : talk(`next: ${asCalled(text, options)}`)),
    paint,
    log,
  }
}

/** Writes the commands in a text as this one was called: on its store, and by `npx sluice` where the shell knows no `sluice`. */
export function asCalled(text: string, { store, schema, config }: StoreFlags): string {
  const program = process.env['npm_command'] === 'exec' ? 'npx sluice' : 'sluice'
  // The command must not act on another store, nor show a password.
  const isShown = store === undefined || redactText(store) === store
  const flags = Object.entries({ store, schema, config }).flatMap(([name, value]) =>
    value === undefined ? [] : ` --${name} ${name === 'store' && !isShown ? '<its URL>' : quoted(value)}`,
  )
  return text.replaceAll('`sluice ', () => `\`${program}${flags.join('')} `)
}

/** Puts a text on one line, cut to a length. */
export function brief(text: string, length = 80): string {
  const flat = text.replaceAll(/\s+/g, ' ').trim()
  return flat.length <= length ? flat : `${flat.slice(0, length - 1)}…`
}

/** Writes facts under their names, one a line, with the values from this column on. */
export function writeFacts(out: Output, facts: readonly (readonly string[])[], column: number): void {
  for (const [name = '', value = ''] of facts) out.line(`${out.paint('dim', name.padEnd(column))}${value}`)
}

/** Formats how long ago a time was: `5 min ago`. */
export function ago(at: Date): string {
  return `${span(systemClock.wallMs() - at.getTime())} ago`
}

/** Formats a number of bytes: `8 kB`, `1.2 GB`. */
export function size(bytes: number): string {
  const units = ['kB', 'MB', 'GB', 'TB']
  const power = Math.min(units.length, Math.max(1, Math.floor(Math.log2(Math.max(1, bytes)) / 10)))
  const value = bytes / 1_024 ** power
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${units[power - 1]}`
}
