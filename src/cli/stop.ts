/** How a long-running command is asked to end: Ctrl-C, SIGTERM, or the end of the `sluice dev` that started it. */
import type { Log } from '../core/log.ts'

/** Requests to end, in order. */
export interface Stop {
  /** Resolves at the first request: end what is under way, then leave. */
  readonly first: Promise<void>
  /** Resolves at the second: leave now. At the third the process just ends. */
  readonly second: Promise<void>
  /** One more request, from inside. */
  ask(): void
}

/** Begins to listen for requests to end, in place of what signals do by default. */
export function listenForStop(): Stop {
  let count = 0
  const resolvers: (() => void)[] = []
  const first = new Promise<void>((resolve) => resolvers.push(resolve))
  const second = new Promise<void>((resolve) => resolvers.push(resolve))
  const ask = () => {
    const resolve = resolvers[count++]
    if (resolve === undefined) process.exit(1)
    resolve()
  }
  process.on('SIGINT', ask)
  process.on('SIGTERM', ask)
  if (process.channel !== undefined) process.once('disconnect', ask)
  return { first, second, ask }
}

/** A handler's stray error must not end a worker with other jobs in hand: rejections are logged, an exception drains. */
export function surviveStrays(log: Log, stop: Stop | undefined): void {
  process.on('unhandledRejection', (reason) =>
    log.error('a promise was rejected and nobody handled it', { error: String(reason) }),
  )
  if (stop === undefined) return
  process.on('uncaughtException', (error) => {
    log.error('an exception was thrown outside any attempt; the worker ends after the attempts under way', {
      error: String(error),
    })
    process.exitCode = 1
    stop.ask()
  })
}
