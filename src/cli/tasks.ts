/** `sluice tasks`: the tasks that are known, and who serves them. */
import { Command } from 'commander'
import { ago } from './output.ts'
import { inStore } from './settings.ts'

interface Row {
  name: string
  queue: string | null
  currently: string | null
  seen_ms: number | null
  workers: { who: string; version: string; queues: string[] | null }[] | null
  waits: boolean
}

/** `sluice tasks`. */
export function tasksCommand(): Command {
  return new Command('tasks').description('list the known tasks, and the workers that serve them').action(list)
}

async function list(_: object, command: Command): Promise<void> {
  const [out, rows] = await inStore(command, (_sluice, sql) => sql.run<Row>('operations/read_tasks'))
  if (out.json) return rows.forEach((row) => out.object(asJson(row)))
  if (rows.length === 0) {
    out.talk('no task is known yet: workers record their tasks when they start')
    return out.hint('`sluice work`')
  }
  out.table([['TASK', 'QUEUE', 'WORKERS', 'SERVED BY', 'LAST SEEN'], ...rows.map(cells)])
  const lost = rows.find(({ workers, waits }) => workers === null && waits)
  if (lost === undefined) return out.hint('`sluice status`')
  out.hint(
    `no worker serves ${lost.name}, and jobs of it wait: \`sluice work\` (\`sluice dispatch\` if Celery workers execute it), or \`formerly: ['${lost.name}']\` in the task that replaces it`,
  )
}

function asJson({ name, queue, currently, seen_ms: seenMs, workers, waits }: Row): object {
  const seenAt = seenMs === null ? null : new Date(seenMs)
  return { name, queue, currently, seenAt, hasWaitingJobs: waits, workers: workers ?? [] }
}

function cells({ name, queue, currently, seen_ms: seenMs, workers }: Row): string[] {
  const all = workers ?? []
  const listed = all.slice(0, 3).map(({ who, queues }) => `${who}${queues === null ? '' : ` (${queues.join(', ')})`}`)
  const more = all.length > 3 ? `, and ${all.length - 3} more` : ''
  return [
    currently === null ? name : `${name} (now ${currently})`,
    queue ?? '-',
    `${all.length}`,
    all.length === 0 ? '-' : `${listed.join(', ')}${more}`,
    all.length > 0 ? 'now' : seenMs === null ? 'never' : ago(new Date(seenMs)),
  ]
}
