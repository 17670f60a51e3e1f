/** Starts and stops the heartbeat thread of this process (heartbeat-thread.ts). */
import { Worker } from 'node:worker_threads'
import type { Log } from '../core/log.ts'

/** Parameters of `Heartbeat`. */
export interface HeartbeatOptions {
  url: string
  /** `$1` = the worker's id. */
  sql: string
  beatMs: number
  /** Called when this worker was given up as lost. */
  lost(worker: string): void
  log: Log
}

/** A message to the thread: the start of a heartbeat, for which worker it is (undefined: for none), or its end. */
export type Message = { id: number } & (
  | { start: Pick<HeartbeatOptions, 'url' | 'sql' | 'beatMs'> & { beats: Int32Array } }
  | { worker: string | undefined }
  | { isOver: true }
)

/** How long the thread goes on after its last heartbeat, in ms. */
const idleMs = 10_000

/** The thread. All workers of the process share it, since its start takes 40 ms of a core. */
class Thread {
  static #current: Thread | undefined
  readonly #worker: Worker
  readonly #users = new Map<number, { lost(worker: string): void; ended(cause: unknown): void }>()
  #lastId = 0
  #idle: NodeJS.Timeout | undefined

  /** Returns the one that runs; starts one if there is none. @throws Error if it cannot be started */
  static get(): Thread {
    return (Thread.#current ??= new Thread())
  }

  private constructor() {
    // Under a test runner this file is TypeScript, which a thread cannot load: then the built file is used.
    const file = import.meta.url.endsWith('.ts')
      ? '../../dist/fleet/heartbeat-thread.js'
      : '../fleet/heartbeat-thread.js'
    this.#worker = new Worker(new URL(file, import.meta.url))
    this.#worker.on('message', ({ id, lost }: { id: number; lost: string }) => this.#users.get(id)?.lost(lost))
    let cause: unknown = 'it exited'
    this.#worker.on('error', (error) => (cause = error))
    this.#worker.on('exit', () => {
      this.#forget()
      for (const { ended } of this.#users.values()) ended(cause)
    })
    // Last, because a listener for messages would keep the process alive again.
    this.#worker.unref()
  }

  /** Adds a heartbeat; returns its id. */
  add({ url, sql, beatMs, lost }: HeartbeatOptions, beats: Int32Array, ended: (cause: unknown) => void): number {
    clearTimeout(this.#idle)
    const id = ++this.#lastId
    this.#users.set(id, { lost, ended })
    this.post({ id, start: { url, sql, beatMs, beats } })
    return id
  }

  post(message: Message): void {
    this.#worker.postMessage(message)
  }

  remove(id: number): void {
    this.#users.delete(id)
    this.post({ id, isOver: true })
    if (this.#users.size === 0) this.#idle = setTimeout(() => this.#end(), idleMs).unref()
  }

  #end(): void {
    this.#forget()
    void this.#worker.terminate()
  }

  /** Forgets this thread, so that the next heartbeat starts another one. */
  #forget(): void {
    if (Thread.#current === this) Thread.#current = undefined
  }
}

/**
 * A heartbeat that continues while the event loop is blocked. Normally the worker's rounds send the heartbeat; the thread
 * only sends one when no round has since its last check. The thread may fail to start (left out of a bundle) or to
 * connect; then the worker is given up as lost if its event loop is blocked for too long.
 */
export class Heartbeat {
  readonly #thread: Thread | undefined
  readonly #id: number | undefined
  readonly #log: Log
  /** One number: how many heartbeats the rounds have sent. */
  readonly #beats = new Int32Array(new SharedArrayBuffer(4))
  #worker: string | undefined

  constructor(options: HeartbeatOptions) {
    this.#log = options.log
    try {
      this.#thread = Thread.get()
      this.#id = this.#thread.add(options, this.#beats, (cause) => this.#ended(cause))
    } catch (error) {
      this.#ended(error)
    }
  }

  /** Sends heartbeats for this worker from now on; undefined: for none. */
  beatFor(worker: string | undefined): void {
    // Called before each claim: a message each time would wake the thread each time.
    if (worker === this.#worker) return
    this.#worker = worker
    if (this.#id !== undefined) this.#thread?.post({ id: this.#id, worker })
  }

  /** Records that a round has sent the heartbeat. */
  recordBeat(): void {
    Atomics.add(this.#beats, 0, 1)
  }

  /** Sends no more. */
  stop(): void {
    if (this.#id !== undefined) this.#thread?.remove(this.#id)
  }

  #ended(cause: unknown): void {
    this.#log.error(
      'the heartbeat thread ended: while a handler blocks the event loop for 10 s, this worker is given up as lost; ' +
        'leave "sluice" out of bundles, so that the thread finds its file, and restart the worker',
      { error: String(cause) },
    )
  }
}
