/** Writes log lines: as text for people, or as JSON with the field names of pino. No line has a secret. */
import { hostname } from 'node:os'
import { fileURLToPath } from 'node:url'
import { styleText } from 'node:util'
import { type Level, levels, type Log, type LogFormat, type LogLevel, logTo } from '../core/log.ts'
import { printable } from '../core/printable.ts'
import { redactField, redactText } from '../core/redact.ts'
import { type PlainError, plainDetails } from './plain-error.ts'

/** How a log is written. */
export interface LogStyle {
  level: LogLevel
  format: LogFormat
  /** Colours, and the local time of day instead of date and time: for a terminal. */
  isTerminal: boolean
}

/** Numbers of the levels, as pino has them. */
const numbers: Record<Level, number> = { debug: 20, info: 30, warn: 40, error: 50 }
const colours = { debug: 'dim', info: 'green', warn: 'yellow', error: 'red' } as const

/** True when a log of this level writes lines of that one. */
export function isWritten(level: Level, least: LogLevel): boolean {
  return least !== 'silent' && levels.indexOf(level) >= levels.indexOf(least)
}

/**
 * Makes a log that writes lines.
 * @param write writes a text that ends with a line break
 * @param wallMs the time, in ms since 1970
 */
export function writtenLog(style: LogStyle, write: (text: string) => void, wallMs: () => number): Log {
  const format = style.format === 'json' ? jsonLine : textLine
  return logTo((level, message, details) => {
    if (!isWritten(level, style.level)) return
    write(`${format(level, String(message), plainDetails(details) ?? {}, wallMs(), style.isTerminal)}\n`)
  })
}

const about = { pid: process.pid, hostname: hostname() }

function jsonLine(level: Level, message: string, details: Record<string, unknown>, atMs: number): string {
  const own = { level: numbers[level], time: Math.round(atMs), ...about }
  const json = (fields: object) => JSON.stringify({ ...own, ...fields, msg: message }, redactField)
  try {
    return json(details)
  } catch {
    return json(Object.fromEntries(Object.entries(details).map(([name, value]) => [name, asText(value)])))
  }
}

function textLine(
  level: Level,
  message: string,
  details: Record<string, unknown>,
  atMs: number,
  isTerminal: boolean,
): string {
  const paint = (colour: 'dim' | 'green' | 'yellow' | 'red', text: string) =>
    isTerminal && text !== '' ? styleText(colour, indented(text), { validateStream: false }) : indented(text)
  const iso = new Date(atMs).toISOString()
  const time = isTerminal ? new Date(atMs).toTimeString().slice(0, 8) + iso.slice(19, 23) : iso
  const fields = Object.entries(details).flatMap(([name, value]) =>
    name === 'err' ? [] : [`${name}=${asText(redactField(name, value))}`],
  )
  const head = [paint('dim', time), paint(colours[level], level.padEnd(5)), indented(redactText(message))].join(' ')
  const trace = traceOf(details['err'] as PlainError | undefined, message)
  return [
    fields.length === 0 ? head : `${head}  ${paint('dim', fields.join(' '))}`,
    ...trace.map((one) => paint('dim', one)),
  ].join('\n')
}

/** Indents the lines after the first, so that no text of others looks like a line of the log. */
function indented(text: string): string {
  return printable(text).replaceAll('\n', '\n    ')
}

/** Formats one value of a line of text. */
function asText(value: unknown): string {
  if (typeof value === 'string' && /^[^\s"=]+$/.test(value)) return value
  try {
    return JSON.stringify(value, redactField) ?? String(value)
  } catch {
    return '"(not expressible as JSON)"'
  }
}

/** In frames of Sluice and of Node nobody looks for the fault of a handler. A record may come from another machine. */
const here = new URL('..', import.meta.url)
const inside = [here.href, fileURLToPath(here), '/node_modules/sluice/dist/', 'node:internal']

/** Returns the frames of a stack outside of Sluice; all of them if there are none. */
export function framesOf(stack: readonly string[]): string[] {
  const frames = stack.filter((one) => /^\s+at /.test(one))
  const own = frames.filter((one) => !inside.some((part) => one.includes(part)) && !one.includes('(<anonymous>)'))
  return own.length === 0 ? frames : own
}

/**
 * Returns the lines below a line with an error: stack and causes. Where Sluice made the error, its message explains it, and
 * the stack is left out.
 */
function traceOf(error: PlainError | undefined, message: string): string[] {
  if (error === undefined) return []
  const { code } = error
  const isOwn = typeof code === 'string' && code.startsWith('SLUICE_')
  const head = `${error.type}: ${error.message}`
  const stack = isOwn || error.stack === undefined ? [] : error.stack.split('\n')
  const frames = framesOf(stack).map((one) => `    ${one.trim()}`)
  const first = message.includes(error.message) && frames.length === 0 ? [] : [`  ${redactText(head)}`]
  const cause = error.cause === undefined ? [] : traceOf(error.cause, '')
  return [...first, ...frames, ...cause.map((one, i) => (i === 0 ? one.replace('  ', '  caused by ') : one))]
}
