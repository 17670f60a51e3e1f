/** `sluice send <task> --from <file>`: sends a job for each row. Repeating it does not send a row twice. */
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { systemClock } from '../core/clock.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import { type SendRow, sendRows, type Sent } from '../tasks/send-rows.ts'
import type { SendOptions } from '../tasks/send-options.ts'
import type { AnyTask } from '../tasks/task.ts'
import { fieldOf } from '../limits/limit.ts'
import { type Bar, barOn } from './bar.ts'
import { inputOf } from './cells.ts'
import { joinLines } from './failure.ts'
import { many, type Output } from './output.ts'
import { rulebookOf, type Settings, withSluice } from './settings.ts'
import { mustBeInput, mustBeWhole } from './shown-input.ts'
import { standardInput } from './stdin.ts'
import { stopSignal } from './stop.ts'
import { openTable, type Table, type TableRow } from './table.ts'

/** The options of an import, in addition to those of its jobs. */
export interface ImportFlags {
  from: string
  /** A column or template for idempotency keys; false: no keys; undefined: the file's digest and the line. */
  key: string | false | undefined
  onError: 'stop' | 'skip'
  badRows?: string
  dryRun?: boolean
}

type Read = (row: TableRow) => Promise<SendRow<unknown>>

/** How many bad rows are reported one by one; of the others only their number. */
const reportedMax = 20
/** Codes of errors in options, which concern all rows. */
const ofOptions = ['SLUICE_BAD_OPTION', 'SLUICE_BAD_DURATION', 'SLUICE_BAD_TASK', 'SLUICE_BAD_ID']

/** Sends the rows of a file; the exit code is 1 if a row was bad, or the import was stopped. */
export async function importRows(
  settings: Settings,
  task: AnyTask,
  flags: ImportFlags,
  options: SendOptions,
): Promise<void> {
  const { out } = settings
  const source = await sourceOf(flags, out)
  const signal = stopSignal()
  const bar = barOn(out.json || source.bytes === undefined ? undefined : process.stderr, source.bytes, 'sent')
  const talk = (text: string) => bar.above(() => out.talk(text))
  let total: Sent = { sent: 0, known: 0, bad: 0 }
  let refused: Refused | undefined
  try {
    const table = await openTable(countBytes(source.chunks, bar), source.name)
    const badRows = (refused = new Refused(flags, table, talk))
    const how = {
      read: readerOf(task, table, keysOf(flags, table, source), options),
      onBad: (error: SluiceError, row: TableRow) => badRows.add(error, row),
      onProgress: (sent: Sent) => bar.count((total = sent).sent),
      signal,
    }
    total =
      flags.dryRun === true
        ? await sendRows(task, table.rows, how, {
            clock: systemClock,
            rulebook: rulebookOf(settings),
            write: async (jobs) => jobs.map(({ id }) => id),
          })
        : await withSluice(settings, { creates: true }, (sluice) => sluice.sendRows(task, table.rows, how))
  } catch (error) {
    if (total.sent > 0 && flags.dryRun !== true)
      talk(
        `${many(total.sent, 'row')} before that ${total.sent === 1 ? 'was' : 'were'} sent; ${describeRepeat(flags, source)}`,
      )
    throw error
  } finally {
    bar.end()
    refused?.close()
  }
  if (total.sent + total.known + total.bad === 0 && !signal.aborted)
    throw new UsageError('SLUICE_BAD_FILE', `${source.name} has no rows: its first line is read as the heading`)
  if (total.bad > reportedMax) out.talk(`… and ${many(total.bad - reportedMax, 'more bad row')}`)
  if (signal.aborted) out.talk(`stopped; ${describeRepeat(flags, source)}`)
  if (out.json) out.object(flags.dryRun === true ? { good: total.sent, bad: total.bad } : total)
  else if (flags.dryRun === true) out.line(`${total.sent} good, ${total.bad} bad`)
  else out.line(`${total.sent} sent, ${total.known} sent before, ${total.bad} bad`)
  if (total.bad > 0 || signal.aborted) process.exitCode = 1
  if (total.bad > 0) out.hint(advice(flags))
  else out.hint(flags.dryRun === true ? 'the same command without --dry-run' : `\`sluice jobs --task ${task.name}\``)
}

interface Source {
  chunks: AsyncIterable<Buffer>
  name: string
  /** The file's size; undefined: unknown, because the source can be read only once. */
  bytes: number | undefined
  /** Identifies the content; undefined: unknown. */
  digest: string | undefined
}

async function sourceOf({ from, key, badRows }: ImportFlags, out: Output): Promise<Source> {
  if (from === '-')
    return { chunks: standardInput(out, 'rows', process.stdin), name: 'stdin', bytes: undefined, digest: undefined }
  const stat = fs.statSync(from, { throwIfNoEntry: false })
  if (stat === undefined || stat.isDirectory()) throw new UsageError('SLUICE_BAD_FILE', `there is no file ${from}`)
  if (badRows !== undefined && fs.existsSync(badRows) && fs.realpathSync(badRows) === fs.realpathSync(from))
    throw new UsageError('SLUICE_BAD_OPTION', '--bad-rows would overwrite the file that is read; name another')
  if (badRows !== undefined && !fs.existsSync(path.dirname(badRows)))
    throw new UsageError('SLUICE_BAD_OPTION', `--bad-rows: there is no directory ${path.dirname(badRows)}`)
  const [bytes, digest] = stat.isFile() ? [stat.size, key === undefined ? await digestOf(from) : undefined] : []
  // Opened last: it would have no reader while another step fails, and its own error would end the process.
  return { chunks: fs.createReadStream(from, { highWaterMark: 1 << 18 }), name: from, bytes, digest }
}

async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(fs.createReadStream(file), hash)
  return hash.digest('hex')
}

async function* countBytes(chunks: AsyncIterable<Buffer>, bar: Bar): AsyncGenerator<Buffer> {
  let read = 0
  for await (const chunk of chunks) {
    yield chunk
    bar.set((read += chunk.length))
  }
}

function readerOf(
  task: AnyTask,
  table: Table,
  keyOf: (row: TableRow, input: unknown) => string | undefined,
  options: SendOptions,
): Read {
  return async (row) => {
    if (row.problem !== undefined) throw new UsageError('SLUICE_BAD_ROW', row.problem)
    const { columns } = table
    if (columns === undefined) mustBeInput(row.value)
    const input = columns === undefined ? row.value : await inputOf(task, columns, row.cells ?? [])
    mustBeWhole(input)
    const key = keyOf(row, input)
    return { input, options: key === undefined ? options : { ...options, idempotencyKey: key } }
  }
}

/** Returns the function that makes a row's idempotency key. */
function keysOf(
  { key }: ImportFlags,
  { columns }: Table,
  { digest }: Source,
): (row: TableRow, input: unknown) => string | undefined {
  if (key === false) return () => undefined
  if (key === undefined) return ({ line }) => (digest === undefined ? undefined : `${digest}:${line}`)
  const fields = key.includes('{') ? [...key.matchAll(/\{([^{}]+)\}/g)].map(([, name]) => name as string) : [key]
  const odd = fields.find((name) => columns !== undefined && !columns.includes(name))
  if (fields.length === 0 || odd !== undefined) {
    const known = columns === undefined ? '' : `; the columns are ${columns.join(', ')}`
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      `--idempotency-key "${key}" names no column${known}; give one column, or several as '{a}/{b}'`,
    )
  }
  const textOf = (input: unknown, name: string) => {
    const value = fieldOf(input, name)
    if (value !== '' && ['string', 'number', 'boolean'].includes(typeof value)) return String(value)
    throw new UsageError('SLUICE_BAD_ROW', `it has no ${name}, which --idempotency-key needs`)
  }
  return (_, input) => {
    const text = key.includes('{')
      ? key.replaceAll(/\{([^{}]+)\}/g, (_all, name: string) => textOf(input, name))
      : textOf(input, key)
    if (text.length <= 512) return text
    throw new UsageError('SLUICE_BAD_ROW', `its key has ${text.length} characters; at most 512 are allowed`)
  }
}

/** Reports bad rows, and writes them to the file of `--bad-rows`. */
class Refused {
  readonly #flags: ImportFlags
  readonly #heading: string
  readonly #talk: (text: string) => void
  #reported = 0
  #file: number | undefined

  constructor(flags: ImportFlags, { columns, heading }: Table, talk: (text: string) => void) {
    this.#flags = flags
    this.#heading = columns === undefined ? '' : `${heading}\n`
    this.#talk = talk
  }

  add(error: SluiceError, { line, raw }: TableRow): void {
    if (ofOptions.includes(error.code)) throw error
    const { onError, badRows } = this.#flags
    if (badRows !== undefined) {
      if (this.#file === undefined) fs.writeSync((this.#file = fs.openSync(badRows, 'w')), this.#heading)
      fs.writeSync(this.#file, `${raw}\n`)
    }
    const text = `line ${line}: ${joinLines(error.message)}`
    // It is no UsageError, because the data are wrong and not the command: exit code 1.
    if (onError === 'stop') throw new SluiceError(error.code, text, { cause: error })
    if (this.#reported++ < reportedMax) this.#talk(text)
  }

  close(): void {
    if (this.#file !== undefined) fs.closeSync(this.#file)
  }
}

function describeRepeat({ key }: ImportFlags, { digest }: Source): string {
  return digest === undefined && typeof key !== 'string'
    ? 'without --idempotency-key the same command would send them again'
    : 'the same command within 24 h sends the rest'
}

function advice({ from, badRows, key }: ImportFlags): string {
  if (badRows !== undefined) return `correct ${badRows} and send it`
  if (key !== undefined) return 'correct the bad rows and run the command again'
  return `write the bad rows to a file (--bad-rows), correct it and send it; if you change ${from} itself, it counts as a new file and all its rows are sent`
}
