/** `sluice release`, and the check of `status` and `doctor` for what is parked. */
import { Command } from 'commander'
import { SluiceError, UsageError } from '../core/errors.ts'
import { parkedText } from '../core/parked.ts'
import { parkingOn } from '../claim/parking/parked.ts'
import type { Finding } from './finding.ts'
import { settingsOf, withSluice } from './settings.ts'
import { has, type StorageAt } from './storage.ts'

/** How many parked things are listed by name. */
const namedMax = 10

/** Checks for jobs, lanes and buckets that are parked because their data made claims fail. */
export async function parked({ sql }: StorageAt): Promise<Finding | undefined> {
  if (!(await has(sql, 'parked'))) return undefined
  const all = await parkingOn(sql).parked()
  if (all.length === 0) return { status: 'ok', text: 'nothing is parked' }
  const rest = all.length > namedMax ? [`and ${all.length - namedMax} more, \`sluice release --all\``] : []
  const text = [...all.slice(0, namedMax).map(parkedText), ...rest].join('; ')
  return { status: 'fail', text: `claims failed on these and skip them: ${text}` }
}

/** `sluice release`. */
export function releaseCommand(): Command {
  return new Command('release')
    .description('release what is parked: what claims skip because it made them fail (`status` lists it)')
    .argument('[name]', 'a job, `limit:key` or `task in queue, lane id`, as `status` lists it')
    .option('--all', 'release all that is parked')
    .action(release)
}

async function release(name: string | undefined, { all }: { all?: boolean }, command: Command): Promise<void> {
  if ((name === undefined) === (all === undefined))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      'name what to release, or give --all; `sluice status` lists what is parked',
    )
  const settings = await settingsOf(command)
  const { out } = settings
  const released = await withSluice(settings, { creates: false }, async (sluice) => {
    const names = name === undefined ? (await sluice.parked()).map((one) => one.name) : [name]
    const were: string[] = []
    for (const one of names) if (await sluice.release(one)) were.push(one)
    return were
  })
  if (name !== undefined && released.length === 0)
    throw new SluiceError('SLUICE_NOT_PARKED', `"${name}" is not parked; \`sluice status\` lists what is`)
  for (const one of released) {
    if (out.json) out.object({ name: one, released: true })
    else out.line(`${one} is released`)
  }
  out.hint('`sluice status` lists it again if it makes claims fail again')
}
