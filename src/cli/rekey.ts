/** `sluice limits rekey`: moves waiting jobs from one key of a limit to another. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { type Act, changeFound } from './bulk.ts'
import { withLimit } from './known.ts'

interface Flags {
  key: string
  to: string
  yes?: boolean
  dryRun?: boolean
}

/** `sluice limits rekey`. */
export function rekeyCommand(): Command {
  return new Command('rekey')
    .description('move waiting and scheduled jobs from one key to another; running jobs keep theirs')
    .argument('<limit>')
    .requiredOption('--key <key>', 'the key of the limit that the jobs have')
    .requiredOption('--to <key>', 'the key that the jobs get; new jobs still get the key of their input')
    .option('--yes', 'confirm in advance')
    .option('--dry-run', 'print how many jobs match, and change nothing')
    .action(rekey)
}

async function rekey(name: string, flags: Flags, command: Command): Promise<void> {
  if (flags.key === flags.to)
    throw new UsageError('SLUICE_BAD_OPTION', `--key and --to are the same key "${flags.to}": nothing would change`)
  const keys = { from: flags.key, to: flags.to }
  const act: Act = {
    verb: 'rekey',
    done: 'rekeyed',
    states: ['scheduled', 'waiting'],
    many: (sluice, _, options) => sluice.limits.rekey(name, keys, options),
  }
  const wanted = { limit: name, key: flags.key, state: act.states }
  await withLimit(command, name, (sluice, _, { out }) => changeFound(sluice, out, wanted, flags, act))
}
