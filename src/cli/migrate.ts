/** `sluice migrate`: brings the database to this version's schema. */
import { Command } from 'commander'
import { grantsOf, migrate, pending } from '../db/migrate.ts'
import { nameOf, settingsOf, withStore } from './settings.ts'

/** `sluice migrate`. */
export function migrateCommand(): Command {
  return new Command('migrate')
    .description("bring the database to this version's schema; safe while workers run")
    .option('--dry-run', 'print the SQL, and change nothing')
    .option('--grant <role>', 'then let this role, which owns nothing, send and work')
    .action(run)
}

async function run({ dryRun, grant }: { dryRun?: true; grant?: string }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out, schema } = settings
  const grants = grant === undefined ? [] : [{ name: `grant-${grant}`, sql: grantsOf(schema, grant) }]
  if (dryRun) {
    const steps = await withStore(settings, { creates: false }, ({ db }) => pending(db, schema))
    for (const step of [...steps, ...grants]) {
      if (out.json) out.object(step)
      else out.line(`-- ${step.name}\n${step.sql}`)
    }
    return out.hint(
      steps.length + grants.length === 0
        ? 'nothing to do: the schema is up to date'
        : 'the same command without --dry-run applies these steps',
    )
  }
  const applied = await withStore(settings, { creates: true }, async ({ db }) => {
    const names = await migrate(db, schema)
    for (const { sql } of grants) await db.script(sql)
    return names
  })
  if (out.json) return out.object({ applied })
  for (const name of applied) out.line(name)
  out.talk(`${nameOf(settings)} ${applied.length === 0 ? 'was already' : 'is'} up to date`)
  if (grant !== undefined) out.talk(`${grant} may send and work`)
  out.hint('`sluice doctor`')
}
