/** `sluice dispatch --once`: runs what is allowed now, for cron and tests. */
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
    .description('run what the limits allow now, and end; safe from cron at any frequency')
    .requiredOption('--once', 'to go on for ever is `sluice work`')
    .option('--max <n>', 'at most so many jobs', whole(1, 1_000_000_000))
    .action(dispatch)
}

async function dispatch(flags: DispatchFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  const ending = new AbortController()
  void stop.first.then(() => {
    out.log.info('ending after the attempts under way; once more to leave them to a rescuer')
    ending.abort()
  })
  void stop.second.then(() => process.exit(1))
  const { tasks, schedules } = await needCode(settings.config, flags.tasks)
  const options = {
    ...workOptions(settings, flags),
    schedules,
    signal: ending.signal,
    ...(flags.max === undefined ? {} : { max: flags.max }),
  }
  const dispatched = await withSluice(settings, { creates: true }, async (sluice) => {
    useSluice(sluice)
    return await sluice.dispatchOnce(tasks, options)
  })
  if (out.json) out.object({ dispatched })
  else out.line(String(dispatched))
  out.hint(
    dispatched === 0 ? '`sluice status` tells what waits, `sluice why <id>` for what' : '`sluice jobs --state done`',
  )
}
