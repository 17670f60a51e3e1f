/** `sluice pause`, `resume`, `pauses`: pauses of queues, tasks and limits. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { SluiceError } from '../core/errors.ts'
import type { Pausable, Pause } from '../index.ts'
import { resumeOf } from '../operations/words.ts'
import { mustKnow } from '../operations/known.ts'
import { brief, span } from './output.ts'
import { inStore } from './settings.ts'

/** `sluice pause`. */
export function pauseCommand(): Command {
  return named(new Command('pause'))
    .description('start no more jobs of a queue, a task or a limit, in any process; running jobs continue')
    .requiredOption('--reason <text>', 'shown where jobs wait for it')
    .action(pause)
}

/** `sluice resume`. */
export function resumeCommand(): Command {
  return named(new Command('resume')).description('end a pause; workers continue at once').action(resume)
}

/** `sluice pauses`. */
export function pausesCommand(): Command {
  return new Command('pauses').description('list pauses, and rules that start jobs only at certain hours').action(list)
}

function named(command: Command): Command {
  return command
    .option('--queue <name>', 'a queue; * matches any text')
    .option('--task <name>', 'a task; * matches any text')
    .option('--limit <name>', 'a limit: all of its keys')
    .option('--key <key>', 'only this key of the limit')
}

interface Given {
  queue?: string
  task?: string
  limit?: string
  key?: string
}

/** Pauses what the options name. */
export async function pause({ reason, ...given }: Given & { reason: string }, command: Command): Promise<void> {
  const what = given as Pausable
  const [out] = await inStore(command, async (sluice, sql) => {
    if (given.limit !== undefined) await mustKnow(sql, 'limit', given.limit)
    await sluice.pause(what, { reason })
  })
  if (out.json) return out.object({ ...what, paused: true })
  out.line(`${nameOf(what)} is paused`)
  out.hint(`${resumeOf(given)} ends it`)
}

/** Ends the pause that the options name. */
export async function resume(given: Given, command: Command): Promise<void> {
  const what = given as Pausable
  const [out, was] = await inStore(command, (sluice) => sluice.resume(what))
  if (!was) throw new SluiceError('SLUICE_NOT_PAUSED', `${nameOf(what)} is not paused; \`sluice pauses\` lists what is`)
  if (out.json) return out.object({ ...what, resumed: true })
  out.line(`${nameOf(what)} is resumed`)
  out.hint('`sluice pauses` lists what is still paused')
}

async function list(_: object, command: Command): Promise<void> {
  const [out, pauses] = await inStore(command, (sluice) => sluice.pauses())
  if (out.json) return pauses.forEach((each) => out.object(each))
  if (pauses.length === 0) {
    out.talk('nothing is paused')
    return out.hint("`sluice pause --queue <name> --reason '…'`")
  }
  out.table([['WHAT', 'STATE', 'AGE', 'BY', 'REASON'], ...pauses.map(cells)])
  const first = pauses.find(({ what }) => what !== undefined)?.what
  out.hint(first === undefined ? '`sluice why <id>`' : resumeOf(first))
}

function cells({ what, gate, isClosed, until, since, by, reason }: Pause): string[] {
  const now = !isClosed ? 'open' : until === undefined ? 'paused' : `closed until ${until.toISOString()}`
  const name = what === undefined ? `${gate?.name}` : nameOf(what)
  return [name, now, span(systemClock.wallMs() - since.getTime()), by, brief(reason, 60)]
}

function nameOf(what: Pausable): string {
  return Object.entries(what)
    .map(([kind, name]: [string, string]) => `${kind} ${name}`)
    .join(' ')
}
