/** How far a file is read, for people who watch: a bar on a terminal, and nothing elsewhere. */
import type { WriteStream } from 'node:tty'
import { Presets, SingleBar } from 'cli-progress'

/** The bar of one file. */
export interface Bar {
  /** So many more were read. */
  bytes(count: number): void
  /** So many jobs are durable. */
  jobs(count: number): void
  /** Lets `say` write a line above the bar. */
  above(say: () => void): void
  end(): void
}

/** A bar for a file of `total` bytes; undefined, or where nobody watches: one that shows nothing. */
export function barOn(stream: Pick<WriteStream, 'isTTY' | 'write'>, total: number | undefined): Bar {
  if (!stream.isTTY || total === undefined) return { bytes() {}, jobs() {}, above: (say) => say(), end() {} }
  const format = '[{bar}] {percentage}% | {jobs} sent | {eta_formatted} left'
  const bar = new SingleBar({ stream: stream as WriteStream, format, hideCursor: true }, Presets.legacy)
  bar.start(total, 0, { jobs: 0 })
  return {
    bytes: (count) => bar.increment(count),
    jobs: (count) => bar.update({ jobs: count }),
    above(say) {
      stream.write('\r\u001b[K')
      say()
    },
    end: () => bar.stop(),
  }
}
