/** `sluice migrate`: brings the database to this version's schema. */
import { Command } from 'commander'
import { migrate, pending } from '../db/migrate.ts'
import { nameOf, settingsOf, withStore } from './settings.ts'

/** `sluice migrate`. */
export function migrateCommand(): Command {
  return new Command('migrate')
    .description("bring the database to this version's schema; safe while workers run")
    .option('--dry-run', 'print the SQL, and change nothing')
    .action(run)
}

async function run(flags: { dryRun?: boolean }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out, schema } = settings
  if (flags.dryRun === true) {
    const steps = await withStore(settings, { creates: false }, ({ db }) => pending(db, schema))
    for (const step of steps) {
      if (out.json) out.object(step)
      else out.line(`-- ${step.name}\n${step.sql}`)
    }
    return out.hint(
      steps.length === 0 ? 'nothing to do: the schema is up to date' : '`sluice migrate` applies these steps',
    )
  }
  const applied = await withStore(settings, { creates: true }, ({ db }) => migrate(db, schema))
  if (out.json) return out.object({ applied })
  for (const name of applied) out.line(name)
  out.talk(`${nameOf(settings)} ${applied.length === 0 ? 'was already' : 'is'} up to date`)
  out.hint('`sluice doctor`')
}
