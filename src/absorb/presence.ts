/** A worker of ours as programs of Celery see it: they send it requests, query what it does, and read its events. */
import { hostname } from 'node:os'
import type { Clock } from '../core/clock.ts'
import type { Log } from '../core/log.ts'
import type { AnyTask } from '../tasks/task.ts'
import { inspection, type InspectionOptions } from './inspection.ts'
import { LogicalTime } from '../celery/logical-time.ts'
import type { CeleryBroker } from './broker.ts'
import { RemoteControl, type RemoteControlOptions } from './remote-control.ts'
import { WorkerEvents } from './worker-events.ts'

/** Parameters of `Presence`; see the fields, and those of its parts. */
export interface PresenceOptions
  extends Omit<InspectionOptions, 'name' | 'events'>, Pick<RemoteControlOptions, 'revoke'> {
  broker: CeleryBroker
  clock: Clock
  log: Log
  /** Tasks by all their names. */
  tasks: ReadonlyMap<string, AnyTask>
  /** Attempts that run now. */
  running(): number
}

/** How many of this process have a name. */
let count = 0

/** One worker. */
export class Presence {
  /** Its name among Celery's workers. */
  readonly name = `sluice-${process.pid}${count++ === 0 ? '' : `-${count}`}@${hostname()}`
  readonly events: WorkerEvents
  readonly #control: RemoteControl

  constructor(options: PresenceOptions) {
    const { name } = this
    const { broker, clock, log, tasks, running: active } = options
    const time = new LogicalTime()
    const events = (this.events = new WorkerEvents({ broker, clock, log, name, time, tasks, active }))
    this.#control = new RemoteControl({
      ...options,
      name,
      time,
      names: [...tasks.keys()],
      totals: events.totals,
      limitsOf: (task) => tasks.get(task)?.limits.map((limit) => limit.name),
      more: { ...events.answers, ...inspection({ ...options, name, events }) },
    })
  }

  /** Listens as long as its broker is open. @param sendsEvents from now on; else when a program of Celery wants them */
  async open(sendsEvents: boolean): Promise<void> {
    await this.#control.open()
    if (sendsEvents) this.events.start()
  }

  /** Sends the last events. */
  close(): Promise<void> {
    return this.events.close()
  }
}
