/** `sluice why`: shows what a job waits for, by the same conditions that claims use. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { redact, redactText } from '../core/redact.ts'
import type { Reason } from '../index.ts'
import { noSuchJob } from './record.ts'
import { span } from './output.ts'
import { settingsOf, withSluice } from './settings.ts'

/** `sluice why`. */
export function whyCommand(): Command {
  return new Command('why')
    .description('show every reason why a job waits, the binding one first')
    .argument('<id>')
    .action(explain)
}

async function explain(id: string, _: object, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const { why, job } = await withSluice(settings, { creates: false }, async (sluice) => {
    const asked = await sluice.why(id)
    return { why: asked, job: asked === undefined ? await sluice.jobs.get(id) : undefined }
  })
  if (why === undefined) {
    if (job === undefined) throw noSuchJob(id)
    const reason = job.reason === null ? null : redactText(job.reason)
    if (out.json) return out.object({ id, state: job.state, reason, reasons: [], finishedAt: job.finishedAt })
    out.line(
      `${job.state}${reason === null ? '' : ` (${reason})`} since ${job.finishedAt?.toISOString() ?? 'now'}; the job is not waiting`,
    )
    return out.hint(`\`sluice jobs show ${id}\``)
  }
  // A limit's key may be a URL with its token.
  if (out.json) return out.object(redact(why))
  out.line(out.paint('bold', why.state))
  for (const reason of why.reasons) out.line(`- ${redactText(reason.text)}${when(reason)}`)
  const needsWorker = why.reasons.some((reason) => reason.kind === 'no-worker')
  out.hint(needsWorker ? '`sluice work` starts a worker' : `\`sluice jobs show ${id}\``)
}

function when({ notBefore }: Reason): string {
  if (notBefore === undefined) return ''
  return `; not before ${notBefore.toISOString()} (in ${span(Math.max(0, notBefore.getTime() - systemClock.wallMs()))})`
}
