/** The check of `sluice doctor --deep` for broken bookkeeping of lanes. */
import type { Finding } from './finding.ts'
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
  turn: 'its fair key has no turn there, or several',
  list: 'claims do not read this list, or begin after the lane',
  empty: 'claims read this list, and no lane stands in it',
  seat: 'jobs wait, and claims do not look for them',
} as const

/** Checks that claims find every lane with waiting jobs. It reads all lanes and all waiting jobs. */
export async function lanes({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'lane'))) return undefined
  const broken = await sql.run<BrokenLanes>('operations/find_broken_lanes')
  if (broken.length === 0) return { status: 'ok', text: 'claims find every lane in which jobs wait' }
  return { status: 'fail', text: `the bookkeeping of lanes is broken: ${broken.map(inWords).join('; ')}` }
}

function inWords({ fault, task, queue, n, lane, list, job }: BrokenLanes): string {
  const place = [
    ...(lane === null ? [] : [`lane ${lane}`]),
    ...(list === null ? [] : [`list ${list}`]),
    ...(job === null ? [] : [`job ${job}`]),
  ].join(', ')
  const more = n === 1 ? '' : `, and ${n - 1} more`
  return `${faults[fault]} (${task ?? 'no task'} in ${queue ?? 'no queue'}, ${place}${more})`
}
