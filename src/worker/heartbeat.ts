/** Starts and stops the thread that beats for this process (pulse.ts). */
import { Worker } from 'node:worker_threads'

/** What the thread needs. */
export interface HeartbeatOptions {
  url: string
  /** `$1` = the worker's id. */
  sql: string
  beatMs: number
  /** This worker was given up as lost. */
  lost(worker: string): void
}

/** A heartbeat that goes on while the event loop is blocked. */
export class Heartbeat {
  readonly #thread: Worker

  constructor(options: HeartbeatOptions) {
    const { url, sql, beatMs, lost } = options
    // Under a test runner this file is TypeScript, which a thread cannot load: then the built one serves.
    const file = import.meta.url.endsWith('.ts') ? '../../dist/worker/pulse.js' : './pulse.js'
    this.#thread = new Worker(new URL(file, import.meta.url), { workerData: { url, sql, beatMs } })
    this.#thread.unref()
    this.#thread.on('message', (message: { lost: string }) => lost(message.lost))
    // Without its thread the worker is merely given up after 10 s, as if it had died; that must not end the process.
    this.#thread.on('error', () => {})
  }

  /** Beats for this worker from now on; undefined: for nobody. */
  beatFor(worker: string | undefined): void {
    this.#thread.postMessage({ worker })
  }

  /** Ends the thread. */
  async stop(): Promise<void> {
    await this.#thread.terminate()
  }
}
