/** `sluice prune`: drops and deletes what is old now, or says what would go. */
import { Command } from 'commander'
import type { Duration, Pruned } from '../index.ts'
import { size } from './output.ts'
import { settingsOf, withSluice } from './settings.ts'

/** `sluice prune`. */
export function pruneCommand(): Command {
  return new Command('prune')
    .description('drop history that was kept for long enough, and delete what is over; workers do this by themselves')
    .option('--dry-run', 'only say what would go')
    .option('--keep-done <span>', 'keep done and cancelled jobs for so long after their end (default: as agreed, 7d)')
    .option('--keep-failed <span>', 'the same for failed ones')
    .action(prune)
}

interface Flags {
  dryRun?: boolean
  keepDone?: Duration
  keepFailed?: Duration
}

async function prune(flags: Flags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const dryRun = flags.dryRun === true
  const pruned = await withSluice(settings, { creates: false }, (sluice) => sluice.prune(flags))
  if (out.json) return out.object({ dryRun, ...pruned })
  const said = lines(pruned, dryRun)
  for (const line of said) out.line(`${dryRun ? 'would go: ' : ''}${line}`)
  if (said.length === 0) out.talk('nothing is old enough')
  out.hint(dryRun ? '`sluice prune`' : '`sluice status --storage`')
}

function lines({ partitions, late, keys, ledger, buckets = 0 }: Pruned, dryRun: boolean): string[] {
  const named = partitions.map(
    ({ name, rows, bytes }) => `${name} (${rows > 10_000 ? 'about ' : ''}${rows} jobs, ${size(bytes)})`,
  )
  const counted = [
    [late, 'jobs that finished after the partition of their day was dropped'],
    [keys, 'idempotency keys'],
    [ledger, 'rows of the ledger'],
    [buckets, 'buckets of keys that did not come back'],
  ] as const
  return [
    ...named,
    ...counted
      .filter(([count]) => count > 0)
      .map(
        ([count, what]) =>
          `${dryRun && count > 100_000 ? 'more than ' : ''}${dryRun ? Math.min(count, 100_000) : count} ${what}`,
      ),
  ]
}
