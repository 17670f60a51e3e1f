/** `sluice jobs show`: one job's whole record. */
import { Command } from 'commander'
import { limitOf } from '../core/bucket.ts'
import { systemClock } from '../core/clock.ts'
import { amount } from '../core/money.ts'
import type { Sql } from '../db/store.ts'
import type { Job, JobAttempt, JobError, JobLog } from '../index.ts'
import { isFinal } from '../operations/jobs.ts'
import { framesOf } from '../report/format.ts'
import { idOf, noSuchJob } from './ids.ts'
import { redactJob } from './record.ts'
import { brief, type Output, span, writeFacts } from './output.ts'
import { inStore } from './settings.ts'

/** `sluice jobs show`. */
export function showCommand(): Command {
  return new Command('show')
    .description("show a job's whole record: its attempts, errors, log lines, input and result; secrets as [redacted]")
    .argument('<id>')
    .option('--reveal', 'show secrets, too')
    .action(showJob)
}

async function showJob(text: string, flags: { reveal?: boolean }, command: Command): Promise<void> {
  const [out, [found, currencies]] = await inStore(command, async ({ jobs }, sql) => {
    const job = await jobs.get(await idOf(sql, text))
    return [job, await currenciesOf(sql, job)] as const
  })
  if (found === undefined) throw noSuchJob(text)
  const { id } = found
  const job = redactJob(found, flags.reveal)
  if (out.json) return out.object(job)
  writeJob(job, out, systemClock.wallMs(), currencies)
  if (job.state === 'failed') out.hint(`\`sluice retry ${id}\`; \`sluice jobs edit ${id}\` changes its input first`)
  else if (!isFinal(job.state)) out.hint(`\`sluice why ${id}\``)
}

/** The currencies of limits in money, by the limit's name. */
type Currencies = ReadonlyMap<string, string>

async function currenciesOf(sql: Sql, job: Job | undefined): Promise<Currencies> {
  const names = (job?.attempts ?? []).flatMap(({ units }) => units.map(({ limit }) => limitOf(limit)))
  if (names.length === 0) return new Map()
  const rows = await sql.query<{ name: string; currency: string | null }>(
    `select distinct on (name) name, spec ->> 'currency' as currency
       from sluice.limit_def where name = any ($1) order by name, version desc`,
    [[...new Set(names)]],
  )
  return new Map(rows.flatMap(({ name, currency }) => (currency === null ? [] : [[name, currency]])))
}

/** Writes a record for people. */
export function writeJob(job: Job, out: Output, nowMs: number, currencies: Currencies = new Map()): void {
  const colour = job.state === 'failed' ? 'red' : job.state === 'done' ? 'green' : 'yellow'
  const state = out.paint(colour, job.reason === null ? job.state : `${job.state} (${job.reason})`)
  out.line(`${out.paint('bold', job.task)} ${job.id} ${state}`)
  writeFacts(out, facts(job, nowMs), 10)
  if (job.attempts.length > 0) {
    out.line('')
    out.table(attemptRows(job.attempts, currencies))
  }
  if (job.error !== null) block(out, 'last error', errorLines(job.error))
  const { lines, omitted } = job.log
  const dropped = omitted === 0 ? '' : ` (${omitted} earlier lines were not kept)`
  if (lines.length > 0) block(out, `log of the last attempt${dropped}`, logLines(lines))
  block(out, 'input', valueLines(job.input))
  if (job.result !== null) block(out, 'result', valueLines(job.result))
}

/** Returns the short facts of a record, by name. */
function facts(job: Job, nowMs: number): [string, string][] {
  const ago = (date: Date) => `${timeOf(date)} (${span(Math.max(0, nowMs - date.getTime()))} ago)`
  const { worker, progress, startedAt, finishedAt, dueAt, expiresAt } = job
  const where = worker === null ? '' : ` on ${worker.host}, pid ${worker.pid}, worker ${worker.id} (${worker.version})`
  const all: [string, string | false | null][] = [
    ['queue', job.queue],
    ['priority', job.priority !== 0 && String(job.priority)],
    ['weight', job.weight !== 1 && String(job.weight)],
    ['limits', job.limits.join(', ')],
    ['tags', job.tags.join(', ')],
    ['sent', ago(job.createdAt)],
    ['due', dueAt && `${timeOf(dueAt)}${dueAt.getTime() > nowMs ? ` (in ${span(dueAt.getTime() - nowMs)})` : ''}`],
    ['expires', expiresAt && timeOf(expiresAt)],
    ['dispatched', job.state === 'dispatched' && job.dispatchedAt && `${ago(job.dispatchedAt)}${where}`],
    ['running', job.state === 'running' && startedAt !== null && `since ${ago(startedAt)}${where}`],
    ['progress', progress && progressText(progress)],
    ['ended', finishedAt && ago(finishedAt)],
    ['failures', job.failed > 0 && `${job.failed} of ${job.attempt} attempts`],
    [
      'throttled',
      job.throttled > 0 &&
        `${job.throttled} of ${job.attempt} attempts were not served by the vendor: refused, or it was down`,
    ],
    ['crashes', job.crashes > 0 && `${job.crashes}: its worker was lost`],
    ['ambiguous', job.ambiguous && 'the outcome of an attempt is unknown; it may have done its work'],
    ...job.ruled.map((each): [string, string] => ['rule', JSON.stringify(each)]),
    ...(job.parked ?? []).map((each): [string, string] => ['parked', each]),
  ]
  return all.filter((fact): fact is [string, string] => typeof fact[1] === 'string' && fact[1] !== '')
}

function progressText({ done, total }: NonNullable<Job['progress']>): string {
  const percent = `${Math.floor((done * 100) / total)} %`
  return total === 100 ? percent : `${percent} (${done} of ${total})`
}

/** Returns the attempts as rows of a table; a row of dots stands for those that were not kept. */
function attemptRows(attempts: readonly JobAttempt[], currencies: Currencies): string[][] {
  const rows = attempts.flatMap((each, i) => {
    const isGap = i > 0 && each.attempt > (attempts[i - 1]?.attempt ?? 0) + 1
    return [...(isGap ? [['…']] : []), attemptRow(each, currencies)]
  })
  const charged = attempts.some(isUnusual)
  const heading = ['ATTEMPT', 'BEGAN', 'TOOK', 'WAITED', 'OUTCOME', 'WHERE', ...(charged ? ['UNITS'] : []), 'ERROR']
  if (!charged) for (const row of rows) row.splice(6, 1)
  return [heading, ...rows]
}

function attemptRow(attempt: JobAttempt, currencies: Currencies): string[] {
  const { startedAt, endedAt, waitedMs, waitedFor, outcome, retryInMs, worker, host, version, error } = attempt
  const until = endedAt === null ? '' : span(endedAt.getTime() - startedAt.getTime())
  const waited = waitedMs === null ? '' : `${span(waitedMs)}${waitedFor === null ? '' : ` for ${waitedFor}`}`
  return [
    String(attempt.attempt),
    timeOf(startedAt),
    until,
    waited,
    retryInMs === null ? outcome : `${outcome} in ${span(retryInMs)}`,
    [host, worker === null ? null : `#${worker}`, version].filter((part) => part !== null).join(' '),
    isUnusual(attempt) ? attempt.units.map((each) => unitText(each, currencies)).join(', ') : '',
    brief(error?.message ?? '', 60),
  ]
}

/** Returns true if units show more than that each limit was charged for one call. */
function isUnusual({ units }: JobAttempt): boolean {
  return units.some(({ charged, settled }) => charged !== 1 || settled !== null)
}

function unitText({ limit, charged, settled }: JobAttempt['units'][number], currencies: Currencies): string {
  const inUnits = (units: number) => amount(units, currencies.get(limitOf(limit)))
  return `${limit} ${inUnits(charged)}${settled === null ? '' : ` settled ${inUnits(settled)}`}`
}

function errorLines(error: JobError): string[] {
  const { name = 'Error', message, code, stack, cause } = error
  const head = `${name}: ${message}`
  // A stack mostly begins with the name and the message.
  const text = stack?.includes(message) ? stack : `${head}${stack === undefined ? '' : `\n${stack}`}`
  const lines = text.split('\n')
  const words = lines.filter((line) => !/^\s+at /.test(line))
  const coded = code === undefined ? [] : [`code ${code}`]
  return [...words, ...framesOf(lines), ...coded, ...(cause === undefined ? [] : ['caused by', ...errorLines(cause)])]
}

function logLines(lines: JobLog['lines']): string[] {
  return lines.map(({ at, level, message, details }) =>
    `${at.toISOString().slice(11, 23)} ${level.padEnd(5)} ${message} ${details === undefined ? '' : JSON.stringify(details)}`.trimEnd(),
  )
}

function valueLines(value: unknown): string[] {
  return (JSON.stringify(value, null, 2) ?? 'null').split('\n')
}

function block(out: Output, title: string, lines: readonly string[]): void {
  out.line('')
  out.line(out.paint('dim', title))
  for (const line of lines) out.line(`  ${line}`)
}

function timeOf(date: Date): string {
  return date
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, 'Z')
}
