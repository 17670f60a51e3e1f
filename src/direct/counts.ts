/** The counts of a worker's messages and attempts: for `DirectWorker.counts`, and to know how many messages to read ahead. */

/** The counts of one worker since it began. */
export interface DirectCounts {
  /** Messages that were delivered, those that came back among them. */
  delivered: number
  /** Messages that their limits denied, and that were put off. */
  denied: number
  /** Attempts that began, and how many of these succeeded. */
  begun: number
  done: number
}
