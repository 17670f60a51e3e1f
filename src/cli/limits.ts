/** `sluice limits`: the definitions in force, with what each guarantees. */
import { Command } from 'commander'
import { redactText } from '../core/redact.ts'
import { inSchema } from '../db/migrate.ts'
import { guarantees, type Limit } from '../index.ts'
import { keyLine, keyRooms } from './members.ts'
import { settingsOf, withSluice } from './settings.ts'

/** `sluice limits`. */
export function limitsCommand(): Command {
  return new Command('limits').description('the limits in force and what each guarantees').action(limits)
}

interface Defined {
  name: string
  version: number
  spec: Pick<Limit, 'rules' | 'grantUs' | 'transitUs' | 'classic' | 'keyed'> & {
    path: string | null
    pool?: string[]
    label?: string
  }
  created_at: Date
}

async function limits(_: object, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const rows = await withSluice(settings, { creates: false }, async ({ db }) => {
    const found = await db.query<Defined>(
      inSchema(
        'select distinct on (name) name, version, spec, created_at from sluice.limit_def order by name, version desc',
        settings.schema,
      ),
    )
    return Promise.all(
      found.map(async (one) => ({ ...one, keys: await keyRooms(db, settings.schema, one.name, one.spec) })),
    )
  })
  for (const { name, version, spec, created_at, keys } of rows) {
    const promises = guarantees(spec)
    const marginMs = (spec.grantUs + spec.transitUs) / 1_000
    const rates = promises.map(({ kind, rate }) => (kind === 'rate' ? rate : `${kind} ${rate}`))
    if (out.json) {
      out.object({
        name,
        version,
        rates,
        keyed: spec.keyed,
        path: spec.path,
        classic: spec.classic,
        marginMs,
        definedAt: created_at,
        guarantees: promises,
        ...(keys === undefined ? {} : { label: spec.label ?? null, keys }),
      })
      continue
    }
    const own = spec.label === undefined ? spec.pool && `of its ${spec.pool.length} members` : `label ${spec.label}`
    const key = spec.keyed
      ? `, for each ${spec.path ?? 'key (a function of the input)'}`
      : own
        ? `, for each ${own}`
        : ''
    out.line(`${out.paint('bold', name)}  ${rates.join(' and ')}${key} (version ${version}, margin ${marginMs} ms)`)
    for (const promise of promises) out.line(`  ${promise.text}`)
    for (const one of keys ?? []) out.line(`  ${redactText(keyLine(one))}`)
  }
  if (rows.length === 0 && !out.json)
    out.talk('no limits are defined yet; sending to a task, or working on it, defines its limits')
  out.hint('`sluice status`')
}
