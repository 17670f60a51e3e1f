/** Starts and stops the heartbeat thread of this process (pulse.ts). */
import { Worker } from 'node:worker_threads'
import type { Log } from '../core/log.ts'

/** What the heartbeat needs. */
export interface HeartbeatOptions {
  url: string
  /** `$1` = the worker's id. */
  sql: string
  beatMs: number
  /** Called when this worker was given up as lost. */
  lost(worker: string): void
  log: Log
}

/**
 * A heartbeat that continues while the event loop is blocked. Normally the worker's rounds send the heartbeat; the thread
 * only sends one when no round has since its last check. The thread may fail to start (left out of a bundle) or to
 * connect; then the worker is given up as lost if its event loop is blocked for too long.
 */
export class Heartbeat {
  readonly #thread: Worker | undefined
  readonly #log: Log
  /** One number: how many heartbeats the rounds have sent. */
  readonly #beats = new Int32Array(new SharedArrayBuffer(4))
  #worker: string | undefined
  #isStopping = false

  constructor(options: HeartbeatOptions) {
    const { url, sql, beatMs, lost, log } = options
    this.#log = log
    try {
      // Under a test runner this file is TypeScript, which a thread cannot load: then the built file is used.
      const file = import.meta.url.endsWith('.ts') ? '../../dist/fleet/pulse.js' : '../fleet/pulse.js'
      const thread = new Worker(new URL(file, import.meta.url), {
        workerData: { url, sql, beatMs, beats: this.#beats },
      })
      thread.unref()
      thread.on('message', (message: { lost: string }) => lost(message.lost))
      let cause: unknown = 'it exited'
      thread.on('error', (error) => (cause = error))
      thread.on('exit', () => this.#ended(cause))
      this.#thread = thread
    } catch (error) {
      this.#ended(error)
    }
  }

  /** Sends heartbeats for this worker from now on; undefined: for none. */
  beatFor(worker: string | undefined): void {
    // Called before each claim: a message each time would wake the thread each time.
    if (worker === this.#worker) return
    this.#worker = worker
    this.#thread?.postMessage({ worker })
  }

  /** Records that a round has sent the heartbeat. */
  beaten(): void {
    Atomics.add(this.#beats, 0, 1)
  }

  /** Ends the thread. */
  async stop(): Promise<void> {
    this.#isStopping = true
    await this.#thread?.terminate()
  }

  #ended(cause: unknown): void {
    if (this.#isStopping) return
    this.#log.error(
      'the heartbeat thread ended: while a handler blocks the event loop for 10 s, this worker is given up as lost; ' +
        'leave "sluice" out of bundles, so that the thread finds its file, and restart the worker',
      { error: String(cause) },
    )
  }
}
