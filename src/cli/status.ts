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
  const { waiting, scheduled, running, done, failed, workers, slots, stuck, oldestWaitingAt, countedTo } = numbers
  const oldestWaitingMs =
    oldestWaitingAt === null ? null : Math.max(0, systemClock.wallMs() - oldestWaitingAt.getTime())
  if (out.json)
    return out.object({ waiting, scheduled, running, done, failed, workers, slots, stuck, oldestWaitingMs, countedTo })
  out.talk(nameOf(settings.store))
  const most = (count: number) => (count > countedTo ? `more than ${countedTo}` : String(count))
  const about = (count: number) => (count > countedTo ? `about ${count}` : String(count))
  const rows = [
    ['waiting', `${about(waiting)}${oldestWaitingMs === null ? '' : `, the oldest for ${span(oldestWaitingMs)}`}`],
    ['scheduled', most(scheduled)],
    ['running', String(running)],
    ['done', about(done)],
    ['failed', most(failed)],
    ['workers', `${workers} with ${slots} slots${stuck > 0 ? `, ${stuck} stuck handler(s): see their logs` : ''}`],
  ]
  for (const [name = '', value = ''] of rows) out.line(`${out.paint('dim', name.padEnd(11))}${value}`)
  if (workers === 0 && waiting > 0) out.hint('`sluice work` starts a worker')
  else out.hint(failed > 0 ? '`sluice jobs --state failed`' : '`sluice jobs`')
}
