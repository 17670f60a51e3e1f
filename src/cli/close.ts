/** `sluice limits close`: closes all limits, because the store was put back to an older state, which it cannot notice. */
import { Command } from 'commander'
import { isWanted } from './bulk.ts'
import { closeLimits } from './epoch.ts'
import { inStore } from './settings.ts'

/** `sluice limits close`. */
export function closeCommand(): Command {
  return new Command('close')
    .description(
      'close all limits for as long as they look back (an hour at most): an older copy of the data was put back by hand',
    )
    .option('--yes', 'confirm in advance')
    .action(close)
}

async function close({ yes }: { yes?: true }, command: Command): Promise<void> {
  const [out, text] = await inStore(command, async (_, sql, settings) => {
    const isMeant = yes || (await isWanted(settings.out, { verb: 'close', done: 'closed' }, 'all limits'))
    return isMeant ? closeLimits(sql) : undefined
  })
  if (text === undefined) return
  if (out.json) return out.object({ closed: true, text })
  out.line(text)
  out.hint('`sluice doctor`')
}
