/** Celery's logical time: each message has a later one than all messages that its sender has read. */

/** The logical time of one worker, or of a program that controls workers. */
export class LogicalTime {
  #now = 0

  /** A message with this time was read. */
  recordTime(time: unknown): void {
    if (typeof time === 'number' && Number.isSafeInteger(time) && time > this.#now) this.#now = time
  }

  /** Returns the time of the next message. */
  nextTime(): number {
    return ++this.#now
  }
}
