/** Progress of many: a bar on a terminal, and nothing elsewhere. */
import type { WriteStream } from 'node:tty'
import { Presets, SingleBar } from 'cli-progress'

/** A progress bar. */
export interface Bar {
  /** Sets how far it is, of its total. */
  set(place: number): void
  /** Sets how many are done. */
  count(done: number): void
  /** Calls `print`, which writes a line, and has it stand above the bar. */
  above(print: () => void): void
  end(): void
}

/**
 * Makes a bar.
 * @param stream undefined, or no terminal: it shows nothing, as for a total of 0
 * @param total of the bar; undefined: not known, so only the count is shown
 * @param done what is counted, such as "sent"
 */
export function barOn(
  stream: Pick<WriteStream, 'isTTY' | 'write'> | undefined,
  total: number | undefined,
  done: string,
): Bar {
  if (!stream?.isTTY || total === 0) return { set() {}, count() {}, above: (print) => print(), end() {} }
  const above = (print: () => void) => {
    stream.write('\r\u001b[K')
    print()
  }
  if (total === undefined) {
    let shown = ''
    const count = (n: number) => void stream.write((shown = `\r${n} ${done}`))
    return { set() {}, count, above, end: () => void (shown !== '' && stream.write('\n')) }
  }
  const format = `[{bar}] {percentage}% | {count} ${done} | {eta_formatted} left`
  const bar = new SingleBar({ stream: stream as WriteStream, format, hideCursor: true }, Presets.legacy)
  bar.start(total, 0, { count: 0 })
  return {
    set: (place) => bar.update(place),
    count: (n) => bar.update({ count: n }),
    above,
    end: () => bar.stop(),
  }
}
