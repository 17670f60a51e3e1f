/** `sluice limits rekey`: waiting jobs of one key wait under another. */
import { Command } from 'commander'
import { type Act, eachFound } from './bulk.ts'
import { settingsOf, withSluice } from './settings.ts'

interface Flags {
  from: string
  to: string
  yes?: boolean
  dryRun?: boolean
}

/** `sluice limits rekey`. */
export function rekeyCommand(): Command {
  return new Command('rekey')
    .description('have jobs that wait or are scheduled under one key wait under another; those that run keep theirs')
    .argument('<limit>')
    .requiredOption('--from <key>', 'the key that they have')
    .requiredOption('--to <key>', 'the key that they get; new jobs take what their input says')
    .option('--yes', 'do not ask')
    .option('--dry-run', 'tell how many they are, and change nothing')
    .action(rekey)
}

async function rekey(name: string, flags: Flags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const keys = { from: flags.from, to: flags.to }
  const act: Act = {
    verb: 'rekey',
    done: 'rekeyed',
    states: ['scheduled', 'waiting'],
    many: (sluice, _, options) => sluice.limits.rekey(name, keys, options),
  }
  await withSluice(settings, { creates: false }, async (sluice) => {
    await sluice.limits.show(name)
    await eachFound(sluice, settings.out, { limitKey: `${name}:${flags.from}`, state: act.states }, flags, act)
  })
}
