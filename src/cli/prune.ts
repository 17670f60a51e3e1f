/** `sluice prune`: deletes old data now, or reports what it would delete. */
import { Command } from 'commander'
import type { Duration, Pruned } from '../index.ts'
import { size } from './output.ts'
import { inStore } from './settings.ts'

/** `sluice prune`. */
export function pruneCommand(): Command {
  return new Command('prune')
    .description('delete old history and other expired data now; workers do this by themselves')
    .option('--dry-run', 'only print what would be deleted')
    .option(
      '--keep-done <span>',
      'how long to keep done and cancelled jobs after their end (default: as configured, 7d)',
    )
    .option('--keep-failed <span>', 'how long to keep failed jobs after their end (default: as configured, 7d)')
    .action(prune)
}

interface Flags {
  dryRun?: boolean
  keepDone?: Duration
  keepFailed?: Duration
}

async function prune(flags: Flags, command: Command): Promise<void> {
  const dryRun = flags.dryRun === true
  const [out, pruned] = await inStore(command, (sluice) => sluice.prune(flags))
  if (out.json) return out.object({ dryRun, ...pruned })
  const report = lines(pruned, dryRun)
  for (const line of report) out.line(`${dryRun ? 'would delete: ' : ''}${line}`)
  if (report.length === 0) out.talk('nothing is old enough')
  out.hint(dryRun ? '`sluice prune`' : '`sluice status --storage`')
}

function lines({ partitions, late, keys, ledger, buckets = 0 }: Pruned, dryRun: boolean): string[] {
  const named = partitions.map(
    ({ name, rows, bytes }) => `${name} (${rows > 10_000 ? 'about ' : ''}${rows} jobs, ${size(bytes)})`,
  )
  const counted = [
    [late, 'jobs that finished after the partition of their day was dropped'],
    [keys, 'idempotency keys'],
    [ledger, 'records of grants in the ledger'],
    [buckets, 'unused keys of limits'],
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
