/** `sluice release`, and the check of `status` and `doctor` for what is parked. */
import { Command } from 'commander'
import { SluiceError, UsageError } from '../core/errors.ts'
import { parkedText } from '../core/parked.ts'
import { parkingOn } from '../claim/parking/parked.ts'
import { fail, ok, type Finding } from './finding.ts'
import { idOf, isIdPart } from './ids.ts'
import { inStore } from './settings.ts'
import { has, type StorageAt } from './storage.ts'

/** How many parked things are listed by name. */
const namedMax = 10

/** Checks for what is parked because its data made claims fail. */
export async function parked({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'parked'))) return undefined
  const all = await parkingOn(sql).parked()
  if (all.length === 0) return ok('nothing is parked')
  const rest = all.length > namedMax ? [`and ${all.length - namedMax} more, \`sluice release --all\``] : []
  const text = [...all.slice(0, namedMax).map(parkedText), ...rest].join('; ')
  return fail(`workers skip these, because the database could not compute with their data: ${text}`)
}

/** `sluice release`. */
export function releaseCommand(): Command {
  return new Command('release')
    .description('release what is parked: what workers skip because of its data (`status` lists it)')
    .argument('[id]', 'a parked job')
    .option('--task <name>', 'with --queue: the parked jobs of this task')
    .option('--queue <name>', 'with --task: the parked jobs in this queue')
    .option('--limit <name>', 'a parked limit')
    .option('--key <key>', 'with --limit: this key of it')
    .option('--all', 'release all that is parked')
    .action(release)
}

interface Flags {
  task?: string
  queue?: string
  limit?: string
  key?: string
  all?: boolean
}

/** Returns the name of what is to be released; undefined: all. @throws UsageError SLUICE_BAD_OPTION */
function nameFrom(id: string | undefined, { task, queue, limit, key, all }: Flags): string | undefined {
  const jobs = task === undefined && queue === undefined ? undefined : `${task} in ${queue}`
  const bucket = limit === undefined && key === undefined ? undefined : `${limit}${key === undefined ? '' : `:${key}`}`
  const [name, ...others] = [id, jobs, bucket, all].filter((one) => one !== undefined)
  const isWhole = (task === undefined) === (queue === undefined) && (key === undefined || limit !== undefined)
  if (name !== undefined && others.length === 0 && isWhole) return name === true ? undefined : String(name)
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    'give the id of a job, --task and --queue, --limit and its --key, or --all; `sluice status` lists what is parked',
  )
}

async function release(id: string | undefined, flags: Flags, command: Command): Promise<void> {
  const given = nameFrom(id, flags)
  const [out, [name, released]] = await inStore(command, async (sluice, sql) => {
    const name = id !== undefined && isIdPart(id) ? await idOf(sql, id) : given
    const names = name === undefined ? new Set((await sluice.parked()).map((one) => one.name)) : [name]
    const were: string[] = []
    for (const one of names) if (await sluice.release(one)) were.push(one)
    return [name, were] as const
  })
  if (name !== undefined && released.length === 0)
    throw new SluiceError('SLUICE_NOT_PARKED', `"${name}" is not parked; \`sluice status\` lists what is`)
  for (const one of released) {
    if (out.json) out.object({ name: one, released: true })
    else out.line(`${one} is released`)
  }
  out.hint('`sluice status` lists it again if its data still cannot be used')
}
