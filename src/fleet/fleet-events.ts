/**
 * Events of which the store notifies workers. Some only the store knows: jobs that it ended, workers that were given
 * up; one worker reports these for the fleet. The others are changes by an operator or a deploy, which every worker
 * reports.
 */
import type { SluiceEvents } from '../report/events.ts'
import type { Report } from '../report/report.ts'

/** A message of `engine.notify_event`. */
type Notice =
  | { kind: 'exhausted'; event: Pick<SluiceEvents['exhausted'], 'task' | 'reason' | 'jobs' | 'job'> & Partial<Failed> }
  | { kind: 'rescued'; event: SluiceEvents['rescued'] }
  | { kind: 'limit'; event: SluiceEvents['limit'] }
  | { kind: 'paused'; event: { isPaused: boolean; reason?: string; by?: string } & Paused }

type Failed = Pick<SluiceEvents['exhausted'], 'error'>
/** A limit, or one key of it; or the name of a gate. */
type Paused = { limit: string; key: string } | { name: string }

/**
 * Reports what a notification contains.
 * @param reportsForFleet this worker reports for the fleet
 */
export function reportNotice(report: Report, payload: string, reportsForFleet: boolean): void {
  const { kind, event } = JSON.parse(payload) as Notice
  if (kind === 'limit') report.emit('limit', event)
  else if (kind === 'paused') {
    const { isPaused, reason = null, by = null } = event
    report.emit('paused', { what: nameOf(event), isPaused, reason, by })
  } else if (!reportsForFleet) return
  else if (kind === 'rescued') report.emit('rescued', event)
  else {
    const { error = { message: 'its error is in its record' } } = event
    report.emit('exhausted', { ...event, error, attempt: undefined, worker: undefined })
  }
}

function nameOf(paused: Paused): string {
  if ('limit' in paused) return `limit ${paused.limit}${paused.key === '' ? '' : ` for ${paused.key}`}`
  const [, kind = 'gate', name = paused.name] = /^pause:(queue|task):(.*)$/.exec(paused.name) ?? []
  return `${kind} ${name}`
}
