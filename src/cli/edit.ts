/** `sluice jobs edit`: retries a failed job with another input. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { SluiceError } from '../core/errors.ts'
import { admit } from '../tasks/admit.ts'
import { loadCode, withHttp } from './config.ts'
import { idOf, noSuchJob } from './ids.ts'
import { readInput } from './send.ts'
import { settingsOf, withSluice } from './settings.ts'

interface EditFlags {
  tasks?: string
  dryRun?: boolean
}

/** `sluice jobs edit`. */
export function editCommand(): Command {
  return new Command('edit')
    .description('retry a failed job with another input; checked before that if the code of its task is here')
    .argument('<id>')
    .argument('<json>', 'the new input; `-` reads it from stdin')
    .option('--tasks <file>', 'file that exports the task (env SLUICE_TASKS; default: as in sluice.config.ts)')
    .option('--dry-run', 'check the input, and change nothing')
    .action(edit)
}

async function edit(text: string, json: string, flags: EditFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const input = await readInput(out, json)
  const { tasks } = await loadCode(settings.config, flags.tasks)
  await withSluice(settings, { creates: false }, async (sluice, sql) => {
    const id = await idOf(sql, text)
    const job = await sluice.jobs.get(id)
    if (job === undefined) throw noSuchJob(id)
    const task = withHttp(tasks).find(({ name, formerly = [] }) => [name, ...formerly].includes(job.task))
    const isFailed = job.state === 'failed'
    if (flags.dryRun === true && isFailed) {
      if (task !== undefined) await admit(task, input, { queue: job.queue }, systemClock)
    } else if (!isFailed || !(await sluice.jobs.retryWith(id, input, task)))
      throw new SluiceError('SLUICE_NOT_FAILED', `job ${id} is ${job.state}; only a failed job can be edited`)
    if (out.json) return out.object({ id, retried: flags.dryRun !== true, checked: task !== undefined })
    out.line(flags.dryRun === true ? `${id} would be retried with this input` : `${id} retried with its new input`)
    if (task === undefined)
      out.talk(`the code of task "${job.task}" is not known here; a worker checks the input before the job starts`)
    out.hint(`\`sluice jobs show ${id}\``)
  })
}
