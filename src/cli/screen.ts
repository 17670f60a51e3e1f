/** Shows on stderr: text that scrolls, and on a terminal one block below it that changes in place. */
import type { WriteStream } from 'node:tty'
import { printable } from '../core/printable.ts'

/** A terminal, or anything else that takes text. */
type Stream = Pick<WriteStream, 'write' | 'isTTY' | 'columns'>

/** One stream, and the block at its end. */
export class Screen {
  readonly #stream: Stream
  #block: readonly string[] = []

  constructor(stream: Stream) {
    this.#stream = stream
  }

  /** True if a block can be shown. */
  get isTerminal(): boolean {
    return this.#stream.isTTY
  }

  /** Writes text, which ends with a line break, above the block. */
  write(text: string): void {
    this.#stream.write(this.#erase() + text + this.#blockText())
  }

  /**
   * Shows these lines as the block, instead of those before; none: no block. Lines are cut to the width, then painted: one
   * that wrapped would not be erased.
   */
  show(lines: readonly string[], paint: (line: string) => string = (line) => line): void {
    if (!this.isTerminal) return
    const erase = this.#erase()
    const columns = this.#stream.columns || 80
    this.#block = lines
      .map(printable)
      .map((line) => paint(line.length < columns ? line : `${line.slice(0, columns - 2)}…`))
    this.#stream.write(erase + this.#blockText())
  }

  #erase(): string {
    return this.#block.length === 0 ? '' : `\u001B[${this.#block.length}A\u001B[J`
  }

  #blockText(): string {
    return this.#block.map((line) => `${line}\n`).join('')
  }
}

/** The screen of this process. */
export const screen = new Screen(process.stderr)
