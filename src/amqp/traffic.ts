/** Counts the messages of a process on a broker, because managed brokers bill them. */
import type { Log } from '../core/log.ts'

/** How many messages were published, received and settled, those that were sent or received again among them. */
export interface Traffic {
  published: number
  delivered: number
  /** Acknowledged, rejected or put back. */
  settled: number
}

export const noTraffic = (): Traffic => ({ published: 0, delivered: 0, settled: 0 })

/** Logs the traffic of a process that ends, and how much that was for each of its jobs. `jobs`: how many, and their name */
export function logTraffic(
  log: Log,
  who: string,
  { published, delivered, settled }: Readonly<Traffic>,
  jobs: readonly [count: number, name: string],
): void {
  if (published + delivered === 0) return
  const [count, name] = jobs
  const [sent, received, ended] = [published, delivered, settled].map((n) => (n / count).toFixed(2))
  const each = count === 0 ? '' : `: ${sent}, ${received} and ${ended} for each of ${count} ${name}`
  log.info(`${who} has published ${published} messages, received ${delivered} and settled ${settled}${each}`)
}
