/** The check of `sluice doctor --deep` for broken bookkeeping of lanes. Its lines name the jobs that wait in them. */
import { fail, ok, type Finding } from './finding.ts'
import { has, type StorageAt } from './storage.ts'

/** One kind of fault in the lanes of a task in a queue: how many have it, and the first of them. */
interface BrokenLanes {
  fault: keyof typeof faults
  /** Null, as is `queue`: the lanes belong to no class, and have no jobs. */
  task: string | null
  queue: string | null
  n: number
  lane: string | null
  list: string | null
  /** The first job that waits in the lane. */
  job: string | null
}

const faults = {
  turn: 'the jobs of a key have no turn, or several',
  list: 'workers do not look where the jobs are listed, or begin after them',
  empty: 'workers look where no jobs are listed',
  seat: 'jobs wait, and no worker looks for them',
} as const

/** Checks that claims find every lane with waiting jobs. It reads all lanes and all waiting jobs. */
export async function lanes({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'lane'))) return undefined
  const broken = await sql.run<BrokenLanes>('operations/find_broken_lanes')
  if (broken.length === 0) return ok('workers find every job that waits')
  return fail(
    `the bookkeeping of waiting jobs is broken: ${broken.map(inWords).join('; ')}; please report this line; \`sluice reprioritise <id> --priority <n>\` lets workers find a job again`,
  )
}

function inWords({ fault, task, queue, n, lane, list, job }: BrokenLanes): string {
  const place = [
    ...(job === null ? [] : [`job ${job}`]),
    ...(lane === null ? [] : [`row ${lane} of sluice.lane`]),
    ...(list === null ? [] : [`row ${list} of sluice.list`]),
  ].join(', ')
  const more = n === 1 ? '' : `, and ${n - 1} more`
  return `${faults[fault]} (${task === null ? 'no task' : `task ${task} in queue ${queue}`}: ${place}${more})`
}
