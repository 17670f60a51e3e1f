/**
 * A worker's threads, for CPU-bound tasks: the event loop stays free, and a timeout really stops the work, by ending its
 * thread. The pool is piscina's; the order of calls, the context, and the meaning of a thread's end are decided here.
 */
import { existsSync } from 'node:fs'
import os from 'node:os'
import { fileURLToPath } from 'node:url'
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { AttemptError, UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import type { Log } from '../core/log.ts'
import { limitedBy } from '../http/feedback.ts'
import type { Context } from '../tasks/context.ts'
import type { AnyTask } from '../tasks/task.ts'
import type { ThreadRequest, FromThread, Start, ToThread } from './thread.ts'
import { pack, unpack } from './error-transfer.ts'

/** Number and memory of the threads. */
export interface ThreadsOptions {
  size: number
  /** Heap of one thread in MB; a thread that needs more is ended. */
  heapMb: number
  log: Log
}

/** One call of a module's handler. */
export interface ThreadCall {
  file: URL
  task: string
  input: unknown
  context: Context
  /** Called when a thread is free: the attempt's timeout starts. */
  begun(): void
  /** Called when the module is loaded, just before the handler; if it throws, the handler is not called. */
  ready(): void
}

/** How long an idle thread is kept for the next job, in ms. */
const idleMs = 30_000

/**
 * Creates the threads of a worker: one for each slot, but at most one for each processor; together they get half of the
 * memory.
 */
export function threadsFor(slots: number, log: Log): Threads {
  const size = Math.min(slots, os.availableParallelism())
  // The container's memory if it is constrained; otherwise 0, or more than the machine has.
  const bytes = Math.min(process.constrainedMemory() || Infinity, os.totalmem())
  return new Threads({ size, heapMb: Math.max(64, Math.min(4_096, Math.floor(bytes / 2 / size / 1_048_576))), log })
}

/** A pool of threads; none is started before the first call. */
export class Threads {
  readonly #options: ThreadsOptions
  readonly #waiting: (() => void)[] = []
  #pool: InstanceType<Awaited<ReturnType<typeof loadPool>>> | undefined
  #busy = 0

  constructor(options: ThreadsOptions) {
    this.#options = options
  }

  /**
   * Loads the pool and checks that the modules of these tasks exist.
   * @throws UsageError SLUICE_MISSING_PEER, SLUICE_BAD_TASK
   */
  async open(tasks: readonly AnyTask[]): Promise<void> {
    for (const { name, thread } of tasks) {
      if (thread === undefined || isFile(fileURLToPath(thread))) continue
      throw new UsageError(
        'SLUICE_BAD_TASK',
        `task "${name}": its \`thread\`, ${fileURLToPath(thread)}, does not exist; keep it beside the tasks, out of bundles`,
      )
    }
    const Pool = await loadPool()
    // Under a test runner this file is TypeScript, which a thread cannot load: then the built file is used.
    const file = import.meta.url.endsWith('.ts') ? '../../dist/worker/thread.js' : '../worker/thread.js'
    this.#pool = new Pool({
      filename: fileURLToPath(new URL(file, import.meta.url)),
      minThreads: 0,
      maxThreads: this.#options.size,
      idleTimeout: idleMs,
      // Otherwise an idle thread would block, with everything that its modules keep open.
      atomics: 'disabled',
      resourceLimits: { maxOldGenerationSizeMb: this.#options.heapMb },
    })
    // Caused by something that a handler left running in a thread.
    this.#pool.on('error', (error: unknown) =>
      this.#options.log.warn('an idle thread died from something that an earlier job left running in it', {
        err: error,
      }),
    )
  }

  /** How many there are at most. */
  get size(): number {
    return this.#options.size
  }

  /** True when all threads are busy: a call would have to wait. */
  get isBusy(): boolean {
    return this.#busy >= this.#options.size
  }

  /**
   * Calls the handler in a thread and resolves to its result. When the context's signal aborts, the thread is ended.
   * @throws the handler's error; AttemptError SLUICE_THREAD_DIED when the thread ended before the handler
   */
  async run(call: ThreadCall): Promise<unknown> {
    const threads = this.#pool
    if (threads === undefined) throw new Error('the threads were not opened')
    const { signal } = call.context
    await this.#turn(signal)
    const { port1, port2 } = new MessageChannel()
    try {
      call.begun()
      const session = new ThreadSession(port1, call)
      const { attempt, ambiguous, job, labels } = call.context
      const members = Object.entries(call.context.pool)
      const pool = Object.fromEntries(members.map(([name, { key, baseUrl }]) => [name, present({ key, baseUrl })]))
      const { file, task, input } = call
      const context = { attempt, ambiguous, job, labels, pool }
      const start: Start = { file: file.href, task, input, context, port: port2 }
      await threads
        .run(start, { transferList: [port2], signal, name: 'default' })
        .catch((error: unknown) => Promise.reject(signal.aborted ? (signal.reason as Error) : ended(error, call)))
      return await session.end
    } finally {
      port1.close()
      port2.close()
      this.#busy--
      this.#waiting.shift()?.()
    }
  }

  /** Ends all threads. */
  async close(): Promise<void> {
    await this.#pool?.destroy()
  }

  // Piscina's own queue is not used, because it forgets waiting calls when its last thread ends.
  async #turn(signal: AbortSignal): Promise<void> {
    while (this.isBusy) {
      signal.throwIfAborted()
      await new Promise<void>((resolve) => {
        const go = () => {
          signal.removeEventListener('abort', leave)
          resolve()
        }
        const leave = () => {
          this.#waiting.splice(this.#waiting.indexOf(go), 1)
          resolve()
        }
        this.#waiting.push(go)
        signal.addEventListener('abort', leave, { once: true })
      })
    }
    if (signal.aborted) this.#waiting.shift()?.()
    signal.throwIfAborted()
    this.#busy++
  }
}

/** The main thread's side of one call: permission to start, log lines, requests. */
class ThreadSession {
  /** The handler's result, or its error. */
  readonly end: Promise<unknown>
  readonly #port: MessagePort
  readonly #call: ThreadCall
  readonly #requests = new Map<number, AbortController>()

  constructor(port: MessagePort, call: ThreadCall) {
    this.#port = port
    this.#call = call
    this.end = new Promise((resolve, reject) => {
      port.on('message', (message: FromThread) => {
        if (message.kind === 'done') resolve(message.result === undefined ? undefined : JSON.parse(message.result))
        else if (message.kind === 'thrown') reject(unpack(message.thrown) as Error)
        else if (message.kind === 'ready') this.#begin(reject)
        else this.#receive(message)
      })
    })
    this.end.catch(() => {})
  }

  #begin(reject: (reason: unknown) => void): void {
    let isGiven = true
    try {
      this.#call.ready()
    } catch (error) {
      isGiven = false
      reject(error)
    }
    this.#post({ kind: 'go', isGiven })
  }

  #receive(message: Extract<FromThread, { kind: 'log' | 'progress' | 'fetch' | 'cancel' | 'settle' }>): void {
    if (message.kind === 'log') this.#call.context.log[message.level](message.message, message.details)
    else if (message.kind === 'progress') this.#call.context.progress(message.done, message.total)
    else if (message.kind === 'cancel') this.#requests.get(message.id)?.abort()
    else if (message.kind === 'settle') void this.#settle(message.id, message.actual)
    else void this.#fetch(message.id, message.wanted)
  }

  async #settle(id: number, actual: Parameters<Context['settle']>[0]): Promise<void> {
    try {
      await this.#call.context.settle(actual)
      this.#post({ kind: 'answer', id, answer: undefined })
    } catch (error) {
      this.#post({ kind: 'failed', id, thrown: pack(error) })
    }
  }

  async #fetch(id: number, { url, init }: ThreadRequest): Promise<void> {
    const own = new AbortController()
    this.#requests.set(id, own)
    try {
      const response = await this.#call.context.fetch(url, { ...init, signal: own.signal })
      const body = await response.arrayBuffer()
      const { status, statusText, headers, redirected } = response
      const limited = limitedBy(response)
      const answer = { status, statusText, headers: [...headers], url: response.url, redirected, body, limited }
      this.#post({ kind: 'answer', id, answer }, [body])
    } catch (error) {
      this.#post({ kind: 'failed', id, thrown: pack(error) })
    } finally {
      this.#requests.delete(id)
    }
  }

  #post(message: ToThread, transfer: ArrayBuffer[] = []): void {
    this.#port.postMessage(message, transfer)
  }
}

/** True if the file exists, or its JavaScript after a build. */
function isFile(file: string): boolean {
  return existsSync(file) || existsSync(file.replace(/\.([cm]?)tsx?$/, '.$1js'))
}

async function loadPool() {
  try {
    return (await import('piscina')).Piscina
  } catch (cause) {
    throw new UsageError('SLUICE_MISSING_PEER', 'tasks with `thread` need the package piscina: npm install piscina@5', {
      cause,
    })
  }
}

/** Returns the error of a call whose thread gave no result. */
function ended(error: unknown, { task }: ThreadCall): Error {
  const { name, message, code } = error as { name?: unknown; message?: unknown; code?: unknown }
  if (name === 'DataCloneError')
    return new UsageError(
      'SLUICE_BAD_PAYLOAD',
      `the output of the schema of "${task}" cannot be sent to a thread: ${String(message)}`,
    )
  const why = code === 'ERR_WORKER_OUT_OF_MEMORY' ? 'it needed more memory than a thread may have' : String(message)
  return new AttemptError('SLUICE_THREAD_DIED', `the thread ended before the handler: ${why}`, {
    retryable: true,
    cause: error,
  })
}
