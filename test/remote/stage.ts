/** Stock workers of Celery on a broker of their own, and dispatchers in front of them. */
import { randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, type TestContext } from 'vitest'
import { z } from 'zod'
import { type Control, openControl } from '../../src/celery/index.ts'
import type { AnyTask } from '../../src/tasks/task.ts'
import { remoteTask, type RemoteTaskOptions } from '../../src/tasks/remote.ts'
import type { SluiceOptions } from '../../src/options.ts'
import { Sluice } from '../../src/sluice.ts'
import type { WorkOptions } from '../../src/worker/options.ts'
import { type CeleryWorker, startCelery } from '../celery/worker.ts'
import { findPython } from '../examples/interpreter.ts'
import { freshDatabase } from '../servers/database.ts'
import { freshBroker } from '../servers/rabbitmq.ts'
import { until } from '../until.ts'

/** What a task has seen of its call; see fixtures/remote.py. */
export interface Seen {
  id: string
  attempt: number
  ambiguous: boolean
  root: string
  retries: number
  pid: number
}

/** One worker, and a place for what is needed beside it. */
export interface Stage {
  url: string
  control: Control
  worker: CeleryWorker
  folder: string
  /** Starts another worker. */
  start(name: string, flags: readonly string[], env?: Record<string, string>): Promise<CeleryWorker>
  /** A new queue, which workers serve; by default the first one. */
  queue(...workers: readonly CeleryWorker[]): Promise<string>
  /** What tasks have seen of the calls of these jobs. */
  seen(...ids: readonly string[]): Seen[]
  /** Returns a function that returns what tasks have seen since it was called last. */
  seenSince(): () => Seen[]
  close(): Promise<void>
}

/**
 * Starts a worker that makes eight attempts at once, and waits until it answers. It takes seconds, so tests share it.
 * @param broker its broker; default: a new one
 */
export async function openStage(broker?: string): Promise<Stage> {
  const python = await findPython('celery', 'redis')
  const url = broker ?? (await freshBroker()).url
  const folder = mkdtempSync(join(tmpdir(), 'sluice-remote-'))
  const file = join(folder, 'notes')
  writeFileSync(file, '')
  const control = await openControl({ broker: url })
  const all: CeleryWorker[] = []
  const start = async (name: string, flags: readonly string[], more: Record<string, string> = {}) => {
    const env = { BROKER: url, BACKEND: 'rpc://', NOTES: file, ...more }
    const worker = startCelery({ python, app: 'remote', name, env, flags })
    all.push(worker)
    await worker.ready(control)
    return worker
  }
  const close = async () => {
    await Promise.all(all.map((one) => one.kill()))
    await control.close()
    rmSync(folder, { recursive: true })
  }
  const known: Seen[] = []
  const notes = () => {
    const whole = readFileSync(file, 'utf8').split('\n').slice(0, -1)
    known.push(...whole.slice(known.length).map((line) => JSON.parse(line) as Seen))
    return known
  }
  let queues = 0
  const worker = await start('stock', ['-c', '8', '-Q', 'unused']).catch(async (error: unknown) => {
    await close()
    throw error
  })
  return {
    url,
    control,
    worker,
    folder,
    start,
    async queue(...given) {
      const queue = `q${++queues}`
      const workers = (given.length > 0 ? given : [worker]).map(({ name }) => name)
      const answers = await control.request('add_consumer', { queue }, { workers, within: '20s' })
      expect(Object.keys(answers).length).toBe(workers.length)
      // A worker answers before it does so.
      await until(async () => {
        const active = await control.request('active_queues', {}, { workers, within: '20s' })
        return workers.every((name) => JSON.stringify(active[name]).includes(`"name":"${queue}"`))
      }, `the workers serve ${queue}`)
      return queue
    },
    seen: (...ids) => notes().filter(({ id }) => ids.includes(id)),
    seenSince() {
      let known = notes().length
      return () => {
        const more = notes().slice(known)
        known += more.length
        return more
      }
    },
    close,
  }
}

/**
 * A name that no worker or queue had before, also at a second try: what the first one started lives on, would serve the same
 * queue, and two workers of one name look like one that starts anew all the time.
 */
export const another = (name: string) => `${name}-${randomUUID()}`

const anything = z.record(z.string(), z.unknown())
const soon = { attempts: 4, base: 1, max: 50 }

/** A task of fixtures/remote.py. */
export function pythonTask(name: string, queue: string, more: Partial<RemoteTaskOptions<typeof anything>> = {}) {
  return remoteTask(name, { input: anything, queue, slots: 4, retry: soon, timeout: '60s', ...more })
}

/** A store, and a dispatcher of these tasks in this process, for one test. */
export async function dispatch(
  stage: Stage,
  tasks: readonly AnyTask[],
  { onTestFinished }: Pick<TestContext, 'onTestFinished'>,
  { labels, ...options }: Pick<SluiceOptions, 'celeryResults' | 'log'> & Pick<WorkOptions, 'labels'> = {},
) {
  const { url } = await freshDatabase()
  const sluice = await Sluice.open({ store: url, amqp: stage.url, ...options })
  onTestFinished(() => sluice.close())
  const dispatcher = await sluice.dispatch(tasks, { labels })
  onTestFinished(() => dispatcher.abort())
  const count = async (sql: string) => {
    const [row] = await sluice.db.query<{ n: number }>(`select count(*)::int as n from sluice.${sql}`)
    return row?.n ?? 0
  }
  const nowUs = async () => {
    const [row] = await sluice.db.query<{ us: string }>('select sluice.now_us() as us')
    return Number(row?.us)
  }
  const gate = join(stage.folder, `gate-${Math.random()}`)
  return {
    url,
    sluice,
    dispatcher,
    count,
    nowUs,
    gate,
    open: () => writeFileSync(gate, ''),
    isOpen: () => existsSync(gate),
    ended: (id: string) => sluice.waitFor(id, { timeout: '60s' }),
    begun: (id: string, n = 1) => until(() => stage.seen(id).length >= n, `${n} calls of ${id} have begun`),
  }
}
