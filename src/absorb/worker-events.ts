/** Events of this process as a worker of Celery, for Flower and `celery events`: none are sent until a program requests them. */
import { loadavg } from 'node:os'
import { type CeleryEvent, eventKey, writeEvents } from '../celery/event.ts'
import type { TaskResult } from '../celery/result.ts'
import type { TaskMessage } from '../celery/task-message.ts'
import { reprOf, writeTime } from '../celery/time.ts'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import { version } from '../core/version.ts'
import type { LogicalTime } from '../celery/logical-time.ts'
import type { CeleryBroker } from './broker.ts'
import type { Answers } from './remote-control.ts'

/** Parameters of `WorkerEvents`; see the fields. */
export interface WorkerEventsOptions {
  broker: CeleryBroker
  clock: Clock
  log: Log
  /** Celery's name of this worker. */
  name: string
  time: LogicalTime
  /** Tasks by all their names. */
  tasks: ReadonlyMap<string, unknown>
  /** Attempts that run now. */
  active(): number
}

/** An event that is to be sent. */
type Fresh = Pick<CeleryEvent, 'type' | 'atMs' | 'fields'>

/** As Celery's workers: a worker without one for twice this time is offline. */
const beatMs = 2_000

/** Sends events while it is on. An event that cannot be sent is dropped: nothing depends on it. */
export class WorkerEvents {
  readonly #options: WorkerEventsOptions
  #stop: AbortController | undefined
  #waiting: Fresh[] = []
  #isFailing = false
  /** How many calls this process has reported, by task; without those of tasks that it does not have, whose names anybody can make up. */
  readonly totals: Record<string, number> = {}
  /** Its answers to requests that switch events on and off. */
  readonly answers: Answers = {
    enable_events: () => ({ ok: this.start() ? 'task events enabled' : 'task events already enabled' }),
    disable_events: () => ({ ok: this.stop() ? 'task events disabled' : 'task events already disabled' }),
    heartbeat: () => {
      this.#send(this.#createWorkerEvent('worker-heartbeat'), true)
      return { ok: 'heartbeat sent' }
    },
  }

  constructor(options: WorkerEventsOptions) {
    this.#options = options
  }

  get isOn(): boolean {
    return this.#stop !== undefined
  }

  /** Begins to send. False: it has begun before. */
  start(): boolean {
    if (this.#stop !== undefined) return false
    this.#stop = new AbortController()
    this.#send(this.#createWorkerEvent('worker-online'))
    void this.#beat(this.#stop.signal)
    return true
  }

  /** Ends that. False: it was not on. */
  stop(): boolean {
    if (this.#stop === undefined) return false
    this.#send(this.#createWorkerEvent('worker-offline'))
    this.#stop.abort()
    this.#stop = undefined
    return true
  }

  /** Ends that; resolves when all of it is sent, or cannot be. */
  async close(): Promise<void> {
    this.stop()
    await this.#flush()
  }

  /** A message was read, and its job sent. */
  sendReceived(message: TaskMessage): void {
    if (!this.isOn) return
    const { id: uuid, task: name, args, kwargs, rootId, parentId, retries, etaMs, expiresMs } = message
    const time = (ms: number | undefined) => (ms === undefined ? null : writeTime(ms))
    const fields = {
      uuid,
      name,
      args: reprOf(args, true),
      kwargs: reprOf(kwargs),
      root_id: rootId,
      parent_id: parentId ?? null,
      retries,
      eta: time(etaMs),
      expires: time(expiresMs),
    }
    this.#sendTaskEvent('task-received', fields)
  }

  /** An attempt began, at this wall time in ms. */
  sendStarted(uuid: string, atMs: number): void {
    this.#sendTaskEvent('task-started', { uuid }, atMs)
  }

  /** A call was reported. @param how its task, and the wall times in ms between which its last attempt ran */
  sendEnd(
    { id: uuid, state, value, traceback }: TaskResult,
    { task, startedMs, endedMs }: { task: string; startedMs: number | null; endedMs: number | null },
  ): void {
    if (state !== 'RETRY' && this.#options.tasks.has(task)) this.totals[task] = (this.totals[task] ?? 0) + 1
    if (!this.isOn) return
    const atMs = endedMs ?? undefined
    const exception = `${typeOf(value)}(${reprOf(argsOf(value)).slice(1, -1)})`
    const failed = { uuid, exception, traceback: traceback ?? null }
    if (state === 'RETRY') return this.#sendTaskEvent('task-retried', failed)
    if (state === 'SUCCESS') {
      const runtime = startedMs === null || endedMs === null ? 0 : (endedMs - startedMs) / 1_000
      return this.#sendTaskEvent('task-succeeded', { uuid, result: reprOf(value), runtime }, atMs)
    }
    if (state === 'FAILURE') return this.#sendTaskEvent('task-failed', failed, atMs)
    const expired = argsOf(value)[0] === 'expired'
    this.#sendTaskEvent(
      'task-revoked',
      { uuid, terminated: !expired && startedMs !== null, signum: null, expired },
      atMs,
    )
  }

  #sendTaskEvent(type: string, fields: Fresh['fields'], atMs = this.#options.clock.wallMs()): void {
    this.#send({ type, atMs, fields })
  }

  #createWorkerEvent(type: string): Fresh {
    const { active, clock } = this.#options
    const software = { sw_ident: 'sluice', sw_ver: version, sw_sys: process.platform }
    const fields = {
      freq: beatMs / 1_000,
      active: active(),
      processed: Object.values(this.totals).reduce((sum, n) => sum + n, 0),
      loadavg: loadavg(),
      ...software,
    }
    return { type, atMs: clock.wallMs(), fields }
  }

  async #beat(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#options.clock.sleep(beatMs, signal)
      if (signal.aborted) return
      this.#send(this.#createWorkerEvent('worker-heartbeat'))
    }
  }

  /** Events within one turn of the event loop are one message. */
  #send(event: Fresh, isWanted = this.isOn): void {
    if (!isWanted) return
    this.#waiting.push(event)
    if (this.#waiting.length === 1) setImmediate(() => void this.#flush())
  }

  async #flush(): Promise<void> {
    const { broker, name, time, log, clock } = this.#options
    const utcOffset = new Date(clock.wallMs()).getTimezoneOffset() / 60
    const all = this.#waiting.splice(0).map((event): CeleryEvent => {
      return { ...event, hostname: name, utcOffset, pid: process.pid, clock: time.nextTime() }
    })
    // Several in one message are for tasks only.
    const [tasks, others] = [all.filter(isOfTask), all.filter((event) => !isOfTask(event))]
    const messages = [...(tasks.length > 0 ? [tasks] : []), ...others.map((one) => [one])]
    const sent = messages.map(async (events) => broker.announce(writeEvents(events), eventKey(events)))
    await Promise.all(sent).then(
      () => (this.#isFailing = false),
      (error: unknown) => {
        if (!this.#isFailing) log.warn('events for Flower and `celery events` cannot be sent now', { err: error })
        this.#isFailing = true
      },
    )
  }
}

const isOfTask = ({ type }: CeleryEvent) => type.startsWith('task-')
const typeOf = (value: unknown) => (value as { type?: string } | null)?.type ?? 'Error'
const argsOf = (value: unknown): unknown[] => (value as { args?: unknown[] } | null)?.args ?? []
