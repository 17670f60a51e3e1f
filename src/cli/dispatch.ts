/** `sluice dispatch`: gives jobs to the workers of a fleet; with `--once` runs those that may start now, for cron and tests. */
import { Command } from 'commander'
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import { useSluice } from '../index.ts'
import { needCode } from './config.ts'
import { settingsOf, whole, withSluice } from './settings.ts'
import { listenForStop, stopSignal, surviveStrays } from './stop.ts'
import { type Mode, runUntilStopped, tasksFile, type WorkFlags, workFlags, workOptions } from './work.ts'

interface DispatchFlags extends WorkFlags {
  once?: true
  max?: number
}

/** `sluice dispatch`. */
export function dispatchCommand(): Command {
  return workFlags(new Command('dispatch'))
    .description('give jobs to the workers of a fleet, over RabbitMQ (env AMQP_URL), until Ctrl-C or SIGTERM')
    .option('--once', 'instead run here the jobs that may start now, and end; safe from cron at any frequency')
    .option('--max <n>', 'with --once: run at most n jobs', whole(1, 1_000_000_000))
    .action(dispatch)
}

const toFleet: Mode = {
  start: (sluice, work, options) => sluice.dispatch(work, options),
  verb: 'giving to the workers of the fleet:',
  hasSlots: false,
  claims: true,
}

async function dispatch(file: string | undefined, flags: DispatchFlags, command: Command): Promise<void> {
  if (flags.once) return once(file, flags, command)
  if (flags.max !== undefined || flags.concurrency !== undefined)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--max and --concurrency are for `sluice dispatch --once`; a fleet has as many slots as its workers',
    )
  await runUntilStopped(toFleet, file, flags, command)
}

async function once(file: string | undefined, flags: DispatchFlags, command: Command): Promise<void> {
  if (flags.celery !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', '--celery is for a dispatcher or a worker that goes on: leave out --once')
  const settings = await settingsOf(command)
  const { out } = settings
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  const signal = stopSignal(stop)
  signal.addEventListener('abort', () =>
    out.log.info('stopping: waiting for the running jobs; Ctrl-C again hands them back'),
  )
  const { tasks, handlers, schedules } = await needCode(settings.config, tasksFile(file, flags))
  const options = { ...workOptions(settings, flags), schedules, signal, ...present({ max: flags.max }) }
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
