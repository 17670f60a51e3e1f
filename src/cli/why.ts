/** `sluice why`: shows what a job waits for, by the same conditions that claims use. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import { redact, redactText } from '../core/redact.ts'
import type { Sql } from '../db/store.ts'
import type { Job, Reason, Why } from '../index.ts'
import { checkIdPart, idOf, noSuchJob } from './ids.ts'
import { mustKnow } from '../operations/known.ts'
import { brief, type Output, span } from './output.ts'
import { inStore } from './settings.ts'

/** `sluice why`. */
export function whyCommand(): Command {
  return new Command('why')
    .description(
      'show every reason why a job waits, the binding one first; when it can start at the earliest, and about when',
    )
    .argument('[id]', 'id of the job, its beginning or its end')
    .option('--task <name>', 'explain the job of this task that is next')
    .action(explain)
}

async function explain(text: string | undefined, { task }: { task?: string }, command: Command): Promise<void> {
  if (text !== undefined && task !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', 'give the id of a job, or --task <name>; not both')
  if (text === undefined && task === undefined)
    throw new UsageError('SLUICE_BAD_OPTION', 'give the id of a job (`sluice jobs` lists them), or --task <name>')
  if (text !== undefined) checkIdPart(text)
  const [out, { id, why, job }] = await inStore(command, async (sluice, sql) => {
    const id = text === undefined ? await nextOf(sql, task as string) : await idOf(sql, text)
    const answer = await sluice.why(id)
    return {
      id,
      why: answer,
      // It does not wait.
      job: answer === undefined || answer.reasons.length === 0 ? await sluice.jobs.get(id) : undefined,
    }
  })
  if (why === undefined && job === undefined) throw noSuchJob(id)
  if (why === undefined) return showEnd(out, job as Job)
  // A limit's key may be a URL with its token.
  if (out.json) return out.object(redact(why))
  showWait(out, why, job)
}

/** Finds the job of a task that is next. @throws SluiceError SLUICE_NO_SUCH_JOB, SLUICE_NO_SUCH_TASK */
async function nextOf(sql: Sql, task: string): Promise<string> {
  await mustKnow(sql, 'task', task)
  const [next] = await sql.run<{ id: string }>('operations/find_next_job', [task])
  if (next !== undefined) return next.id
  throw new SluiceError(
    'SLUICE_NO_SUCH_JOB',
    `no job of task ${task} waits; \`sluice jobs --task ${task}\` lists those that run`,
  )
}

function showEnd(out: Output, job: Job): void {
  const { id, state, attempt, finishedAt } = job
  const reason = job.reason === null ? null : redactText(job.reason)
  if (out.json) return out.object({ id, state, reason, reasons: [], finishedAt })
  const error = job.error?.message
  const why = reason === null ? '' : ` (${reason})`
  const after = ` after ${attempt} attempt${attempt === 1 ? '' : 's'}`
  const last = state === 'failed' && error !== undefined ? `; last error: ${brief(redactText(error), 200)}` : ''
  out.line(`${state}${why} at ${finishedAt?.toISOString() ?? 'an unknown time'}${attempt > 0 ? after : ''}${last}`)
  out.hint(state === 'failed' ? `\`sluice retry ${id}\`, or \`sluice jobs show ${id}\`` : `\`sluice jobs show ${id}\``)
}

function showWait(out: Output, why: Why, job: Job | undefined): void {
  const { id, state, reasons, notBefore, about } = why
  if (state === 'dispatched') {
    const { worker = null, dispatchedAt = null } = job ?? {}
    const by = worker === null ? 'a dispatcher' : `the dispatcher on ${worker.host}, pid ${worker.pid},`
    const since = dispatchedAt === null ? '' : ` since ${dispatchedAt.toISOString()}`
    out.line(`dispatched${since}: ${by} has claimed it, and no worker has reported that it has begun`)
    return out.hint(`\`sluice jobs show ${id}\``)
  }
  if (state === 'running') {
    const since = job?.dispatchedAt ?? undefined
    out.line(`running${since === undefined ? '' : ` since ${since.toISOString()}`}`)
    return out.hint(`\`sluice jobs show ${id}\``)
  }
  out.line(`${out.paint('bold', state)}  ${id}`)
  for (const reason of reasons) {
    out.line(`- ${redactText(reason.text)}`)
    for (const line of linesBelow(reason)) out.line(`    ${redactText(line)}`)
  }
  if (notBefore !== undefined)
    out.line(`starts at the earliest ${moment(notBefore)}${about === undefined ? '' : `, about ${moment(about)}`}`)
  // Beside another reason its next attempt would not begin sooner.
  const isRetry = reasons.every(({ kind }) => kind === 'retry' || kind === 'throttled' || kind === 'snoozed')
  const show = `\`sluice jobs show ${id}\``
  const otherwise = isRetry ? `\`sluice retry ${id}\` begins the next attempt now; ${show}` : show
  out.hint(reasons.find(({ todo }) => todo !== undefined)?.todo ?? otherwise)
}

/** The lines below a reason: its time, and what somebody has to do. */
function linesBelow({ notBefore, acts, todo }: Reason): string[] {
  return [
    ...(notBefore === undefined || msUntil(notBefore) === 0 ? [] : [`not before ${moment(notBefore)}`]),
    ...(todo === undefined ? [] : [`${acts === 'worker' ? 'needs a worker' : 'needs you'}: ${todo}`]),
  ]
}

function moment(at: Date): string {
  const ms = msUntil(at)
  return ms === 0 ? 'now' : `${at.toISOString()} (in ${span(ms)})`
}

function msUntil(at: Date): number {
  return Math.max(0, at.getTime() - systemClock.wallMs())
}
