/** `sluice prune`: deletes old data now, or reports what it would delete. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import type { Sql } from '../db/store.ts'
import type { Duration, Pruned } from '../index.ts'
import { isWanted } from './bulk.ts'
import { many, size } from './output.ts'
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
    .option(
      '--value <value>',
      'instead delete ended jobs, events and Celery calls that have this value anywhere in their input',
    )
    .option('--yes', 'with --value: confirm in advance')
    .action((flags: Flags, command: Command) =>
      flags.value === undefined ? prune(flags, command) : pruneValue(flags.value, flags, command),
    )
}

interface Flags {
  dryRun?: boolean
  keepDone?: Duration
  keepFailed?: Duration
  value?: string
  yes?: true
}

async function prune({ dryRun = false, keepDone, keepFailed }: Flags, command: Command): Promise<void> {
  const [out, pruned] = await inStore(command, (sluice) => sluice.prune({ dryRun, keepDone, keepFailed }))
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

/** A Celery producer still waits for the result of the job t. */
const isUnsent = 'exists (select 1 from sluice.celery_call c where c.job = t.id and c.replied_at is null)'

/** The rows that can have a value: their name in JSON and in words, and where it is. */
const valued: readonly Valued[] = [
  { name: 'done', what: 'done or cancelled job', table: 'sluice.done', column: 'input', and: `not ${isUnsent}` },
  { name: 'failed', what: 'failed job', table: 'sluice.failed', column: 'input', and: `not ${isUnsent}` },
  { name: 'events', what: 'event', table: 'sluice.emitted', column: 'event' },
  { name: 'calls', what: 'Celery call', table: 'sluice.celery_call', column: 'call', and: 'replied_at is not null' },
]
/** The jobs that are left out. */
const unsent = {
  name: 'unsent',
  what: 'job',
  table: '(select id, input from sluice.done union all select id, input from sluice.failed)',
  column: 'input',
  and: isUnsent,
}

/** Deletes what has a value, such as the id of a customer. Unfinished jobs are left; `sluice cancel` ends them. */
async function pruneValue(value: string, { dryRun, yes, ...keep }: Flags, command: Command): Promise<void> {
  if (keep.keepDone !== undefined || keep.keepFailed !== undefined)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--value deletes whatever its age: leave out --keep-done and --keep-failed',
    )
  const [out, found] = await inStore(command, async (_, sql, settings) => {
    const left = await countRows(sql, value, [unsent])
    const there = yes && !dryRun ? undefined : await countRows(sql, value, valued)
    if (there !== undefined) {
      if (dryRun || there.every(({ n }) => n === 0)) return { rows: there, left }
      const act = { verb: 'delete', done: 'deleted' }
      if (!(await isWanted(settings.out, act, inWords(there), ', or check with --dry-run'))) return undefined
    }
    const rows = await countRows(sql, value, valued, (each) => `${each.replace('select 1', 'delete')} returning 1`)
    return { rows, left }
  })
  if (found === undefined) return
  const counts = Object.fromEntries([...found.rows, ...found.left].map(({ name, n }) => [name, n]))
  if (out.json) return out.object({ dryRun: dryRun === true, ...counts })
  out.line(`${dryRun ? 'would delete' : 'deleted'}: ${inWords(found.rows)}`)
  if (found.left.some(({ n }) => n > 0))
    out.line(`left out: ${inWords(found.left)} whose result has not been sent to its Celery producer`)
  out.hint(
    dryRun
      ? 'the same command without --dry-run'
      : '`sluice jobs --input <path=value>` lists those that have not ended',
  )
}

interface Valued {
  name: string
  what: string
  table: string
  column: string
  and?: string
}
type Count = Pick<Valued, 'name' | 'what'> & { n: number }

/** Counts the rows that have a value. @param change changes the statement that selects them */
async function countRows(
  sql: Sql,
  value: string,
  kinds: readonly Valued[],
  change = (rows: string) => rows,
): Promise<Count[]> {
  const text = JSON.stringify(value)
  // A number may be stored as one, or as a text. Its digits stay as given: a Number would round a long one.
  const number = /^-?(0|[1-9]\d*)(\.\d+)?$/.test(value) ? value : text
  const counts: Count[] = []
  for (const { name, what, table, column, and = 'true' } of kinds) {
    const has = `jsonb_path_exists(${column}, '$.** ? (@ == $text || @ == $number)', $1)`
    const rows = change(`select 1 from ${table} t where ${has} and ${and}`)
    const args = [`{"text":${text},"number":${number}}`]
    const [found] = await sql.query<{ n: string }>(`with found as (${rows}) select count(*) as n from found`, args)
    counts.push({ name, what, n: Number(found?.n ?? 0) })
  }
  return counts
}

function inWords(counts: readonly Count[]): string {
  const some = counts.filter(({ n }) => n > 0).map(({ what, n }) => many(n, what))
  return some.length === 0 ? 'nothing' : some.join(', ')
}
