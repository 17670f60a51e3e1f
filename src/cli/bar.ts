/** Progress of reading a file: a bar on a terminal, and nothing elsewhere. */
import type { WriteStream } from 'node:tty'
import { Presets, SingleBar } from 'cli-progress'

/** The progress bar of one file. */
export interface Bar {
  /** Advances the bar by this many bytes. */
  bytes(count: number): void
  /** Sets how many jobs are durable. */
  jobs(count: number): void
  /** Calls `print`, which writes a line, and has it stand above the bar. */
  above(print: () => void): void
  end(): void
}

/** Makes a bar for a file of `total` bytes; if that is undefined, or `stream` is not a terminal, the bar shows nothing. */
export function barOn(stream: Pick<WriteStream, 'isTTY' | 'write'>, total: number | undefined): Bar {
  if (!stream.isTTY || total === undefined) return { bytes() {}, jobs() {}, above: (print) => print(), end() {} }
  const format = '[{bar}] {percentage}% | {jobs} sent | {eta_formatted} left'
  const bar = new SingleBar({ stream: stream as WriteStream, format, hideCursor: true }, Presets.legacy)
  bar.start(total, 0, { jobs: 0 })
  return {
    bytes: (count) => bar.increment(count),
    jobs: (count) => bar.update({ jobs: count }),
    above(print) {
      stream.write('\r\u001b[K')
      print()
    },
    end: () => bar.stop(),
  }
}
