/** Events in a test: it reads those that were emitted, and delivers by hand. */
import { inspect } from 'node:util'
import type { Clock } from '../core/clock.ts'
import { newId } from '../core/hash.ts'
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import type { Sql } from '../db/store.ts'
import type { CloudEvent } from '../events/envelope.ts'
import type { Work } from '../events/groups.ts'
import type { EventHandler } from '../events/handler.ts'
import { matches, regexOf } from '../events/names.ts'
import type { Job } from '../operations/jobs.ts'
import type { Sluice } from '../sluice.ts'
import type { Runs } from './runs.ts'

/** The fields of an event that is delivered by hand. */
export interface DeliverOptions {
  /** Its type; default: the handler's. Needed for a handler of a pattern. */
  type?: string | undefined
  subject?: string | undefined
  version?: number | undefined
}

/** The parts of a kit that events use. */
export interface EventStage {
  readonly sluice: Sluice
  readonly sql: Sql
  /** The clock that the test moves. */
  readonly clock: Clock
  readonly runs: Runs
  readonly work: readonly Work[]
  readonly service: string
}

/** Returns what tests do with the events of a store; see `TestSluice`. */
export function eventsOf({ sluice, sql, clock, runs, work, service }: EventStage) {
  return {
    emitted: async <Data = unknown>(event: { readonly name: string }): Promise<CloudEvent<Data>[]> => {
      // A name alone has no events, and a test that expects none would pass.
      if (typeof event?.name !== 'string')
        throw new UsageError('SLUICE_BAD_OPTION', `${inspect(event)} is no event; give what event(…) returned`)
      const text = 'select event from sluice.emitted where type = $1 order by at, id'
      return (await sql.query<{ event: CloudEvent<Data> }>(text, [event.name])).map((row) => row.event)
    },
    deliver: async (handler: EventHandler, payload: unknown, options: DeliverOptions = {}): Promise<Job> => {
      const all = work.includes(handler) ? work : [handler]
      const { type = handler.pattern, subject, version } = options
      if (regexOf(type) !== undefined || !matches(handler.pattern, type))
        throw new UsageError(
          'SLUICE_BAD_OPTION',
          `handler "${handler.name}" handles ${handler.pattern}: give \`type\`, a type of events that it gets`,
        )
      const event = {
        specversion: '1.0',
        id: newId(),
        source: '/test',
        type,
        time: new Date(clock.wallMs()).toISOString(),
        datacontenttype: 'application/json',
        ...present({ subject, schemaversion: version }),
        data: payload,
      }
      const task = sluice.events.tasksOf([handler])[0]
      const id = await sluice.send(task as never, { service, handler: handler.name, event } as never)
      await runs.run(all)
      return (await sluice.jobs.get(id)) as Job
    },
  }
}
