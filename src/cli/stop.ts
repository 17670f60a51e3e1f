/** Requests to end a long-running command: Ctrl-C, SIGTERM, or the end of the `sluice dev` that started it. */
import type { Log } from '../core/log.ts'

/** Requests to end a command, in order. */
export interface Stop {
  /** Resolves at the first request: finish running attempts, then end. */
  readonly first: Promise<void>
  /** Resolves at the second request: end now. At the third the process exits. */
  readonly second: Promise<void>
  /** Makes one more request, from inside the process. */
  request(): void
}

/** Starts to listen for requests to end, instead of the default action of the signals. */
export function listenForStop(): Stop {
  let count = 0
  const resolvers: (() => void)[] = []
  const first = new Promise<void>((resolve) => resolvers.push(resolve))
  const second = new Promise<void>((resolve) => resolvers.push(resolve))
  const request = () => {
    const resolve = resolvers[count++]
    if (resolve === undefined) process.exit(1)
    resolve()
  }
  process.on('SIGINT', request)
  process.on('SIGTERM', request)
  if (process.channel !== undefined) process.once('disconnect', request)
  return { first, second, request }
}

/** Returns a signal that aborts at the first request to end a command; at the second the process exits. */
export function stopSignal({ first, second } = listenForStop()): AbortSignal {
  const stopping = new AbortController()
  void first.then(() => stopping.abort())
  void second.then(() => process.exit(1))
  return stopping.signal
}

/**
 * Keeps a handler's stray error from ending a worker that runs other jobs: logs unhandled rejections, and after an uncaught
 * exception ends the worker when its attempts have ended.
 */
export function surviveStrays(log: Log, stop: Stop): void {
  process.on('unhandledRejection', (reason) => log.error('unhandled promise rejection', { err: reason }))
  process.on('uncaughtException', (error, origin) => {
    // With `--unhandled-rejections=strict` a rejection comes here first, and the listener above gets it next.
    if (origin === 'unhandledRejection') return
    log.error('uncaught exception outside of any attempt; the worker ends after its running attempts', {
      err: error,
    })
    process.exitCode = 1
    stop.request()
  })
}
