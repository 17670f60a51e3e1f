/** `sluice status`: the whole in numbers. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { span } from './output.ts'
import { nameOf, settingsOf, withSluice } from './settings.ts'

/** `sluice status`. */
export function statusCommand(): Command {
  return new Command('status').description('how many jobs wait, run and failed, and who works').action(status)
}

async function status(_: object, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const numbers = await withSluice(settings, { creates: false }, (sluice) => sluice.jobs.status())
  const { oldest, waiting = 0, scheduled = 0, running = 0, done = 0, failed = 0, workers = 0, slots = 0 } = numbers
  const oldestMs = oldest === 0 ? null : Math.max(0, systemClock.wallMs() - oldest)
  if (out.json)
    return out.object({ waiting, scheduled, running, done, failed, workers, slots, oldestWaitingMs: oldestMs })
  out.talk(nameOf(settings.store))
  // Counting stops there, so that the answer never takes long (store/status.sql).
  const most = (count: number) => (count > 10_000 ? 'more than 10,000' : String(count))
  const rows = [
    ['waiting', `${waiting}${oldestMs === null ? '' : `, the oldest for ${span(oldestMs)}`}`],
    ['scheduled', most(scheduled)],
    ['running', String(running)],
    ['done', `about ${done}`],
    ['failed', most(failed)],
    ['workers', `${workers} with ${slots} slots`],
  ]
  for (const [name = '', value = ''] of rows) out.line(`${out.paint('dim', name.padEnd(11))}${value}`)
  if (workers === 0 && waiting > 0) out.hint('`sluice work` starts a worker')
  else out.hint(failed > 0 ? '`sluice jobs --state failed`' : '`sluice jobs`')
}
