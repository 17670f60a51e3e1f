/** Reads rows of a CSV or NDJSON file one after the other, with bounded memory. An unclosed quote spoils only its own row. */
import { isUtf8 } from 'node:buffer'
import { parse } from 'csv-parse/sync'
import { UsageError } from '../core/errors.ts'

/** One row. */
export interface TableRow {
  /** The number of its first line, from 1. */
  line: number
  /** The text in the file. */
  raw: string
  /** The cells of CSV, by column. */
  cells?: string[]
  /** The value of NDJSON. */
  value?: unknown
  /** Why it cannot be read. */
  problem?: string
}

/** The content of a file. */
export interface Table {
  /** Column names; undefined for NDJSON. */
  columns: string[] | undefined
  /** The text of the heading in the file. */
  heading: string
  rows: AsyncIterable<TableRow>
}

interface Line {
  line: number
  text: string
}

/** The longest line, in characters. */
const lineMax = 4 * 1024 * 1024
/** The most lines of a CSV row; a longer row has a quote that was never closed. */
const rowLinesMax = 1_000

/**
 * Starts to read a file. The first line shows whether it is NDJSON or CSV, and the delimiter of CSV (`,`, `;` or tab).
 * @param name the file's name in messages
 * @throws UsageError SLUICE_BAD_FILE for a file that is neither; while reading rows also for text that is not UTF-8
 */
export async function openTable(chunks: AsyncIterable<Buffer>, name: string): Promise<Table> {
  const lines = new Lines(chunks, name)
  const first = await lines.nextFilled()
  if (first === undefined) throw bad(name, 'is empty')
  if (first.text.trimStart().startsWith('['))
    throw bad(name, "begins as a JSON array; write one object a line (`jq -c '.[]'` does that)")
  lines.putBack([first])
  if (first.text.trimStart().startsWith('{')) return { columns: undefined, heading: '', rows: ndjson(lines) }
  if (first.text.includes('\r')) throw bad(name, "ends its lines by CR alone; convert it (`tr '\\r' '\\n'`)")
  const delimiter = delimiterOf(first.text)
  const rows = csv(lines, delimiter)
  const heading = (await rows.next()).value as TableRow
  if (heading.cells === undefined) throw bad(name, `has a heading that cannot be read: ${heading.problem}`)
  const columns = heading.cells.map((cell) => cell.trim())
  checkColumns(columns, name)
  return { columns, heading: heading.raw, rows }
}

/** Checks the columns. @throws UsageError SLUICE_BAD_FILE if one has no name, two have the same, or one is inside another */
function checkColumns(columns: string[], name: string): void {
  for (const [i, column] of columns.entries()) {
    if (column.split('.').includes(''))
      throw bad(name, `has no usable name for column ${i + 1} ("${column}"); the first line names the fields`)
    if (columns.indexOf(column) !== i) throw bad(name, `names column "${column}" twice`)
    const above = columns.find((other) => column.startsWith(`${other}.`))
    if (above !== undefined)
      throw bad(name, `has columns "${above}" and "${column}"; the second would be a field inside the first`)
  }
}

/** Returns the delimiter that occurs most often in a heading: `,`, `;` or tab. */
function delimiterOf(heading: string): string {
  const bare = heading.replaceAll(/"[^"]*"/g, '')
  const count = (delimiter: string) => bare.split(delimiter).length
  return [',', ';', '\t'].reduce((best, next) => (count(next) > count(best) ? next : best))
}

async function* ndjson(lines: Lines): AsyncGenerator<TableRow> {
  for (let line = await lines.nextFilled(); line !== undefined; line = await lines.nextFilled()) {
    const row = { line: line.line, raw: line.text }
    try {
      yield { ...row, value: JSON.parse(line.text) as unknown }
    } catch (error) {
      yield { ...row, problem: `it is not JSON (${String(error)})` }
    }
  }
}

async function* csv(lines: Lines, delimiter: string): AsyncGenerator<TableRow> {
  for (let first = await lines.nextFilled(); first !== undefined; first = await lines.nextFilled()) {
    const { line, text } = first
    if (!text.includes('"')) {
      yield { line, raw: text, ...split(text, delimiter) }
      continue
    }
    const taken = [first]
    let quotes = quotesOf(text)
    while (quotes % 2 === 1 && taken.length < rowLinesMax) {
      const more = await lines.next()
      if (more === undefined) break
      taken.push(more)
      quotes += quotesOf(more.text)
    }
    const raw = taken.map((each) => each.text).join('\n')
    try {
      yield { line, raw, ...parsed(raw, delimiter) }
    } catch (error) {
      // The quote does not open a cell, so the lines after it are rows of their own.
      lines.putBack(taken.slice(1))
      yield {
        line,
        raw: text,
        problem: `its quotes do not match (${(error as Error).message.replace(/ at line \d+/, '')})`,
      }
    }
  }
}

/** Splits a row without quotes into cells. */
function split(text: string, delimiter: string): Pick<TableRow, 'cells' | 'problem'> {
  if (text.includes('\r')) return { problem: 'it contains a CR that is not in quotes; convert it to LF' }
  return { cells: text.split(delimiter) }
}

/** Splits a row with quotes into cells. @throws csv-parse's error if the quotes do not match */
function parsed(raw: string, delimiter: string): Pick<TableRow, 'cells' | 'problem'> {
  // Given, because csv-parse would otherwise use whatever ends the first line, even a CR, for all lines.
  const options = { delimiter, relax_column_count: true, record_delimiter: ['\r\n', '\n'] }
  const unquoted = raw.replaceAll(/"[^"]*"/g, '')
  const [cells, ...others] = parse(raw, options) as unknown as string[][]
  if (cells === undefined || others.length > 0) return { problem: 'its quotes split it into several rows' }
  return unquoted.includes('\r') ? split(unquoted, delimiter) : { cells }
}

function quotesOf(text: string): number {
  return text.split('"').length - 1
}

/** Reads lines of UTF-8; lines can be put back. */
class Lines {
  readonly #name: string
  readonly #source: AsyncGenerator<Line>
  #queue: Line[] = []

  constructor(chunks: AsyncIterable<Buffer>, name: string) {
    this.#name = name
    this.#source = this.#split(chunks)
  }

  async next(): Promise<Line | undefined> {
    const known = this.#queue.shift()
    if (known !== undefined) return known
    const { value, done } = await this.#source.next()
    return done === true ? undefined : value
  }

  async nextFilled(): Promise<Line | undefined> {
    for (;;) {
      const line = await this.next()
      if (line === undefined || line.text.trim() !== '') return line
    }
  }

  putBack(lines: Line[]): void {
    this.#queue = [...lines, ...this.#queue]
  }

  async *#split(chunks: AsyncIterable<Buffer>): AsyncGenerator<Line> {
    const decoder = new TextDecoder('utf-8', { fatal: true })
    let [line, rest] = [0, '']
    const decode = (chunk?: Buffer) => {
      try {
        return chunk === undefined ? decoder.decode() : decoder.decode(chunk, { stream: true })
      } catch (error) {
        const lines = (chunk ?? Buffer.from(rest)).toString('latin1').split('\n')
        const odd = lines.findIndex((each) => !isUtf8(Buffer.from(each, 'latin1')))
        const why = `is not UTF-8 near line ${line + odd + 1}; convert it (\`iconv -f WINDOWS-1252 -t UTF-8\`)`
        throw bad(this.#name, why, error)
      }
    }
    const made = (text: string): Line => ({ line: ++line, text: text.endsWith('\r') ? text.slice(0, -1) : text })
    for await (const chunk of chunks) {
      const parts = (rest + decode(chunk)).split('\n')
      rest = parts.pop() ?? ''
      for (const part of parts) yield made(part)
      if (rest.length > lineMax) throw bad(this.#name, `has a line ${line + 1} of more than ${lineMax} characters`)
    }
    rest += decode()
    if (rest !== '') yield made(rest)
  }
}

function bad(name: string, why: string, cause?: unknown): UsageError {
  return new UsageError('SLUICE_BAD_FILE', `${name} ${why}`, cause === undefined ? undefined : { cause })
}
