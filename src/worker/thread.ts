/**
 * Runs in a worker thread: loads the module of a task, calls its default export, and gives it a context whose parts live
 * in the main thread (threads.ts), at the other end of a port. One job at a time.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { inspect } from 'node:util'
import type { MessagePort } from 'node:worker_threads'
import { createJiti } from 'jiti'
import { isMeantToThrow, UsageError } from '../core/errors.ts'
import { encodePayload, isResponse } from '../core/payload.ts'
import { type Level, type Log, logTo } from '../core/log.ts'
import { type Limited, note } from '../http/feedback.ts'
import { check } from '../http/status.ts'
import type { ThreadContext } from '../tasks/context.ts'
import { pack, type Thrown, unpack } from './error-transfer.ts'

/** One call, as sent to the thread. */
export interface Start {
  file: string
  task: string
  input: unknown
  context: Pick<ThreadContext, 'attempt' | 'ambiguous' | 'job' | 'labels' | 'pool'>
  port: MessagePort
}

/** An HTTP request of the handler, to be made by the main thread. */
export interface ThreadRequest {
  url: string
  init: Pick<Request, 'method' | 'redirect' | 'mode'> & { headers: [string, string][]; body: ArrayBuffer | null }
}

/** The response to such a request. */
export interface Answer {
  status: number
  statusText: string
  headers: [string, string][]
  url: string
  redirected: boolean
  body: ArrayBuffer
  /** The pause that it demands, as it was read on arrival. */
  limited: Limited | undefined
}

/** Messages from the thread. */
export type FromThread =
  | { kind: 'ready' }
  | { kind: 'log'; level: Level; message: string; details: Record<string, unknown> | undefined }
  | { kind: 'progress'; done: number; total: number | undefined }
  | { kind: 'fetch'; id: number; wanted: ThreadRequest }
  | { kind: 'cancel'; id: number }
  | { kind: 'settle'; id: number; actual: Parameters<ThreadContext['settle']>[0] }
  | { kind: 'done'; result: string | undefined }
  | { kind: 'thrown'; thrown: Thrown }

/** Messages from the main thread: whether to call the handler, and results. */
export type ToThread =
  | { kind: 'go'; isGiven: boolean }
  | { kind: 'answer'; id: number; answer: Answer | undefined }
  | { kind: 'failed'; id: number; thrown: Thrown }

type Handler = (input: unknown, context: ThreadContext) => unknown

// A module that imports `sluice` gets this very copy of the library.
const jiti = createJiti(import.meta.url, { alias: { sluice: fileURLToPath(new URL('../index.js', import.meta.url)) } })
const handlers = new Map<string, Handler>()

/** Runs one call; sends its outcome through the port. */
export default async function run(start: Start): Promise<void> {
  const { port, task, file } = start
  const post = (message: FromThread, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer)
  const main = new MainThread(post)
  const go = new Promise<boolean>((resolve) => {
    port.on('message', (message: ToThread) =>
      message.kind === 'go' ? resolve(message.isGiven) : main.receive(message),
    )
  })
  try {
    const handler = await load(file, task)
    post({ kind: 'ready' })
    if (!(await go)) return
    const progress = (done: number, total?: number) => post({ kind: 'progress', done, total })
    const log = logThrough(post)
    const context = { ...start.context, log, progress, fetch: main.fetch, settle: main.settle }
    const result = await handler(start.input, context)
    if (isMeantToThrow(result)) throw result
    const isAnswer = isResponse(result)
    if (isAnswer) await check(result)
    const onLoss = (wrong: string) => log.error(wrong)
    const text = result === undefined || isAnswer ? undefined : encodePayload(result, `result of "${task}"`, onLoss)
    post({ kind: 'done', result: text })
  } catch (error) {
    post({ kind: 'thrown', thrown: pack(error) })
  } finally {
    port.close()
  }
}

async function load(file: string, task: string): Promise<Handler> {
  const known = handlers.get(file)
  if (known !== undefined) return known
  const path = fileURLToPath(file)
  // A URL in the source still ends in `.ts` when the sources were compiled and are not deployed.
  const built = path.replace(/\.([cm]?)tsx?$/, '.$1js')
  const module: unknown =
    path === built || !existsSync(path) ? await import(pathToFileURL(built).href) : await jiti.import(path)
  const handler = (module as { default?: unknown }).default
  if (typeof handler !== 'function')
    throw new UsageError('SLUICE_BAD_TASK', `task "${task}": ${path} has no function as its default export`)
  handlers.set(file, handler as Handler)
  return handler as Handler
}

function logThrough(post: (message: FromThread) => void): Log {
  return logTo((level, message, details) => {
    try {
      post({ kind: 'log', level, message, details })
    } catch {
      // Details that cannot be cloned are sent as text.
      post({ kind: 'log', level, message: String(message), details: { details: inspect(details) } })
    }
  })
}

/** Passes a handler's requests to the main thread, which holds the grants. */
class MainThread {
  readonly #post: (message: FromThread, transfer?: ArrayBuffer[]) => void
  readonly #waiting = new Map<number, { resolve(answer: Answer | undefined): void; reject(error: unknown): void }>()
  #count = 0

  constructor(post: (message: FromThread, transfer?: ArrayBuffer[]) => void) {
    this.#post = post
  }

  receive(message: Exclude<ToThread, { kind: 'go' }>): void {
    const waiter = this.#waiting.get(message.id)
    this.#waiting.delete(message.id)
    if (message.kind === 'answer') waiter?.resolve(message.answer)
    else waiter?.reject(unpack(message.thrown))
  }

  readonly settle: ThreadContext['settle'] = async (actual) => {
    const id = this.#count++
    await new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#post({ kind: 'settle', id, actual })
    })
  }

  readonly fetch: ThreadContext['fetch'] = async (input, init) => {
    const request = new Request(input, init)
    const { url, method, headers, redirect, mode, signal } = request
    const body = request.body === null ? null : await request.arrayBuffer()
    signal.throwIfAborted()
    const id = this.#count++
    const answer = await new Promise<Answer>((resolve, reject) => {
      this.#waiting.set(id, { resolve: (given) => resolve(given as Answer), reject })
      signal.addEventListener('abort', () => {
        this.#post({ kind: 'cancel', id })
        reject(signal.reason as Error)
      })
      const wanted = {
        url,
        init: { method, headers: [...headers], body, redirect, mode, ...(init?.cost && { cost: init.cost }) },
      }
      this.#post({ kind: 'fetch', id, wanted }, body === null ? [] : [body])
    })
    const { status, statusText, headers: fields, url: at, redirected, body: bytes } = answer
    const isBare = [101, 204, 205, 304].includes(status)
    const response = new Response(isBare ? null : bytes, { status, statusText, headers: fields })
    if (answer.limited !== undefined) note(response, answer.limited)
    return Object.defineProperties(response, { url: { value: at }, redirected: { value: redirected } })
  }
}
