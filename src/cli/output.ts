/** Output of the command line: data on stdout, messages on stderr, colours only on a terminal, no secrets in log lines. */
import { styleText } from 'node:util'
import { redactField, redactText } from '../core/redact.ts'
import type { Log } from '../core/log.ts'
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
  /** Writes aligned columns; the first row is the heading. */
  table(rows: readonly (readonly string[])[]): void
  /** Writes a message to stderr, also with --json. */
  talk(text: string): void
  /** Writes the suggested next step to stderr; not with --json. */
  hint(text: string): void
  paint(colour: Colour, text: string): string
  /** Writes log lines of workers and handlers to stderr. */
  readonly log: Log
}

/** Makes the output of one command. */
export function output(options: { json?: boolean; color?: boolean }): Output {
  const json = options.json === true
  const isColoured = !json && options.color !== false && !process.env['NO_COLOR'] && process.stdout.isTTY === true
  const line = (text: string) => void process.stdout.write(`${text}\n`)
  const talk = (text: string) => void process.stderr.write(`${text}\n`)
  const paint = (colour: Colour, text: string) => (isColoured ? styleText(colour, text) : text)
  return {
    json,
    line,
    object: (value) => line(JSON.stringify(value)),
    table: (rows) => aligned(rows, widthOf()).forEach((text, i) => line(i === 0 ? paint('dim', text) : text)),
    talk,
    hint: (text) => (json ? undefined : talk(`next: ${text}`)),
    paint,
    log: logTo(talk, json),
  }
}

function logTo(talk: (text: string) => void, json: boolean): Log {
  const write = (level: string) => (message: string, details?: Record<string, unknown>) => {
    if (level === 'debug' && process.env['SLUICE_DEBUG'] !== '1') return
    if (json) return talk(safeJson({ level, message, ...details }))
    talk(`${level} ${redactText(message)}${details === undefined ? '' : ` ${safeJson(details)}`}`)
  }
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
}

/** Converts details to JSON; a handler may log values that JSON cannot express. */
function safeJson(value: unknown): string {
  try {
    return JSON.stringify(value, redactField)
  } catch {
    return '"(not expressible as JSON)"'
  }
}

/** Puts a text on one line, cut to a length. */
export function brief(text: string, length = 80): string {
  const flat = text.replaceAll(/\s+/g, ' ').trim()
  return flat.length <= length ? flat : `${flat.slice(0, length - 1)}…`
}

/** Formats a duration: `340 ms`, `3.2 s`, `5 min`, `2 h`, `3 d`. */
export function span(ms: number): string {
  const size = Math.abs(ms)
  if (size < 1_000) return `${Math.round(ms)} ms`
  if (size < 100_000) return `${(ms / 1_000).toFixed(1)} s`
  if (size < 6_000_000) return `${Math.round(ms / 60_000)} min`
  if (size < 172_800_000) return `${Math.round(ms / 3_600_000)} h`
  return `${Math.round(ms / 86_400_000)} d`
}

/** Formats a number of bytes: `8 kB`, `1.2 GB`. */
export function size(bytes: number): string {
  const units = ['kB', 'MB', 'GB', 'TB']
  const power = Math.min(units.length, Math.max(1, Math.floor(Math.log2(Math.max(1, bytes)) / 10)))
  const value = bytes / 1_024 ** power
  return `${value < 10 ? Number(value.toFixed(1)) : Math.round(value)} ${units[power - 1]}`
}
