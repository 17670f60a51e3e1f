/** Stock workers of Celery, as processes. */
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import type { Control } from '../../src/celery/index.ts'
import { until } from '../until.ts'

const fixtures = fileURLToPath(new URL('fixtures', import.meta.url))

/** A worker that was started. */
export interface CeleryWorker {
  /** Celery's name of it. */
  name: string
  /** Resolves when it answers. */
  ready(control: Pick<Control, 'request'>): Promise<void>
  /** Sends a signal to its main process alone. */
  signal(signal: NodeJS.Signals): void
  /** Ends it at once, with all of its processes. */
  kill(): Promise<void>
}

/** Starts a worker of an app. @param place its folder, by default fixtures/; `env`: what it reads; `flags`: of `celery worker` */
export function startCelery(options: {
  place?: string
  python: string
  app: string
  name: string
  env: Record<string, string>
  flags: readonly string[]
}): CeleryWorker {
  const { place = fixtures, python, app, name, env, flags } = options
  const log: string[] = []
  const usual = ['-n', `${name}@host`, '-l', 'WARNING', '--without-gossip', '--without-mingle']
  // A group of its own: the worker's pool ends with it.
  const worker = spawn(python, ['-m', 'celery', '-A', app, 'worker', ...usual, ...flags], {
    cwd: place,
    env: { ...process.env, ...env, PYTHONDONTWRITEBYTECODE: '1' },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  for (const stream of [worker.stdout, worker.stderr]) stream.on('data', (text) => log.push(String(text)))
  const isOver = () => worker.exitCode !== null || worker.signalCode !== null
  return {
    name: `${name}@host`,
    signal: (signal) => void worker.kill(signal),
    async ready(control) {
      const one = { workers: [`${name}@host`], within: 500 }
      await until(async () => {
        if (isOver()) throw new Error(`Celery did not start:\n${log.join('').slice(-3_000)}`)
        return Object.keys(await control.request('ping', {}, one)).length === 1
      }, `the worker ${name} answers`)
    },
    async kill() {
      if (worker.pid === undefined) return
      const ended = new Promise((resolve) => (isOver() ? resolve(undefined) : worker.once('exit', resolve)))
      try {
        process.kill(-worker.pid, 'SIGKILL')
      } catch {
        // All of its processes have ended.
      }
      await ended
    },
  }
}
