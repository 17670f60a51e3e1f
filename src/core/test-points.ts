/**
 * Named points in the code that tests can watch or break. In production no watcher is installed and a point costs one
 * property read. `SLUICE_CRASH_AT=<point>` kills the process at that point with SIGKILL; the crash tests use it.
 */
export type Point =
  | 'send.flush'
  | 'claim.sent'
  | 'claim.received'
  | 'schedule.fire'
  | 'schedule.fired'
  | 'direct.settled'
  | 'outlet.confirmed'
  | 'idle'

type Watcher = (point: Point, detail?: unknown) => void | Promise<void>

let watcher: Watcher | undefined
const crashAt = process.env['SLUICE_CRASH_AT']

/** Installs (or, with undefined, removes) the one watcher of this process. For tests only. */
export function watch(next: Watcher | undefined): void {
  watcher = next
}

/** Reports that the code passes `point`. Awaits the watcher, which may delay, throw or record. */
export function reach(point: Point, detail?: unknown): void | Promise<void> {
  if (crashAt === point) process.kill(process.pid, 'SIGKILL')
  if (watcher !== undefined) return watcher(point, detail)
}
