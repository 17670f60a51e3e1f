/** `sluice dispatch --once`: runs the jobs that may start now, for cron and tests. */
import { Command } from 'commander'
import { useSluice } from '../index.ts'
import { needCode } from './config.ts'
import { settingsOf, whole, withSluice } from './settings.ts'
import { listenForStop, surviveStrays } from './stop.ts'
import { type WorkFlags, workFlags, workOptions } from './work.ts'

interface DispatchFlags extends WorkFlags {
  once: true
  max?: number
}

/** `sluice dispatch`. */
export function dispatchCommand(): Command {
  return workFlags(new Command('dispatch'))
    .description('run the jobs that the limits allow now, and end; safe from cron at any frequency')
    .requiredOption('--once', 'required; `sluice work` keeps running')
    .option('--max <n>', 'run at most n jobs', whole(1, 1_000_000_000))
    .action(dispatch)
}

async function dispatch(flags: DispatchFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  const ending = new AbortController()
  void stop.first.then(() => {
    out.log.info('stopping: waiting for the running jobs; Ctrl-C again hands them back')
    ending.abort()
  })
  void stop.second.then(() => process.exit(1))
  const { tasks, handlers, schedules } = await needCode(settings.config, flags.tasks)
  const options = {
    ...workOptions(settings, flags),
    schedules,
    signal: ending.signal,
    ...(flags.max === undefined ? {} : { max: flags.max }),
  }
  const dispatched = await withSluice(settings, { creates: true }, async (sluice) => {
    useSluice(sluice)
    return await sluice.dispatchOnce([...tasks, ...handlers], options)
  })
  if (out.json) out.object({ dispatched })
  else out.line(String(dispatched))
  out.hint(
    dispatched === 0
      ? '`sluice status` shows whether jobs wait, `sluice why <id>` for what'
      : '`sluice jobs --state done`',
  )
}
