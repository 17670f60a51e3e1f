/** `sluice schedules`: lists, shows, triggers, pauses, resumes and removes schedules. */
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { SluiceError, UsageError } from '../core/errors.ts'
import { redact } from '../core/redact.ts'
import { type ScheduleLine, type Sluice, useSluice } from '../index.ts'
import { loadCode } from './config.ts'
import { unknown } from '../operations/known.ts'
import { brief, type Output, span, writeFacts } from './output.ts'
import { inStore, settingsOf, whole, withSluice } from './settings.ts'

/** `sluice schedules` and its commands. */
export function schedulesCommand(): Command {
  const show = new Command('show')
    .description('show a schedule, and what happened at its last times')
    .argument('<name>')
    .option('--max <n>', 'show at most n times', whole(1, 1_000), 20)
    .action(showOne)
  const trigger = new Command('trigger')
    .description('send a job of a schedule now, even if it is not due')
    .argument('<name>')
    .option('--tasks <file>', 'file that exports the schedule (env SLUICE_TASKS; default: as in sluice.config.ts)')
    .action(triggerOne)
  return new Command('schedules')
    .description('list the schedules that workers have stored, and when they are due')
    .action(list)
    .addCommand(show)
    .addCommand(trigger)
    .addCommand(each('pause', 'pause schedules: no jobs are sent at their times', 'paused'))
    .addCommand(each('resume', 'resume schedules, from their next time on', 'resumed'))
    .addCommand(
      each('remove', 'delete schedules; remove them from the code first, or a worker stores them again', 'removed'),
    )
}

async function list(_: object, command: Command): Promise<void> {
  const [out, found] = await inStore(command, (sluice) => sluice.schedules.list())
  const all = found.map(shown)
  if (out.json) return all.forEach((line) => out.object(line))
  if (all.length === 0) {
    out.talk('no schedules are stored; a worker stores those that its tasks file exports')
    return out.hint('`export const nightly = schedule(…)`, then `sluice work`')
  }
  out.table([['NAME', 'TASK', 'WHEN', 'NEXT', 'LAST', 'STATE'], ...all.map(cells)])
  for (const { name, error } of all) if (error !== null) out.talk(`${name}: ${error}`)
  out.hint(`\`sluice schedules show ${all[0]?.name}\``)
}

/** Redacts secrets in a schedule's input, and in the error that its input function threw. */
function shown(line: ScheduleLine): ScheduleLine {
  const { error } = redact({ error: line.error })
  return { ...line, error, ...('input' in line ? { input: redact(line.input) } : {}) }
}

function cells(line: ScheduleLine): string[] {
  const [next] = line.next
  const last = line.last === null ? '' : `${line.last.outcome} ${formatDistance(line.last.until)}`
  const due = next === undefined ? '' : `${moment(next)} (${formatDistance(next)})`
  return [line.name, line.task, brief(when(line), 40), due, last, line.state]
}

function when({ cron, zone, every }: ScheduleLine): string {
  return cron === undefined ? `every ${typeof every === 'number' ? `${every}ms` : every}` : `${cron} ${zone}`
}

function moment(at: Date): string {
  return at.toISOString().replace('.000Z', 'Z')
}

function formatDistance(at: Date): string {
  const ms = at.getTime() - systemClock.wallMs()
  return ms < 0 ? `${span(-ms)} ago` : `in ${span(ms)}`
}

async function showOne(name: string, flags: { max: number }, command: Command): Promise<void> {
  const [out, { line, history }] = await inStore(command, async ({ schedules }) => ({
    line: shown(await findSchedule(schedules, name)),
    history: await schedules.history(name, flags),
  }))
  if (out.json) return out.object({ ...line, history })
  describe(out, line)
  for (const { at, until, outcome, job } of history) {
    const times = at.getTime() === until.getTime() ? moment(at) : `${moment(at)} to ${moment(until)}`
    out.line(`  ${times}  ${outcome}${job === null ? '' : `  ${job}`}`)
  }
  const job = history.find((each) => each.job !== null)?.job
  if (line.state === 'overdue')
    out.hint('start a worker that has its code (`sluice work`), or `sluice schedules remove` it')
  else out.hint(job ? `\`sluice jobs show ${job}\`` : `\`sluice schedules trigger ${name}\``)
}

function describe(out: Output, line: ScheduleLine): void {
  const facts: [string, string][] = [
    ['task', line.task],
    ['when', when(line)],
    ['state', line.state],
    ...line.next.map((at, i): [string, string] => [i === 0 ? 'next' : '', `${moment(at)} (${formatDistance(at)})`]),
    ['catchUp', line.catchUp],
    ['overlap', line.overlap],
    ...(line.jitterMs > 0 ? [['jitter', span(line.jitterMs)] as [string, string]] : []),
    ['input', 'input' in line ? JSON.stringify(line.input) : '(made by a function)'],
    ...(line.error === null ? [] : [['error', line.error] as [string, string]]),
  ]
  out.line(out.paint('bold', line.name))
  writeFacts(out, facts, 13)
}

async function findSchedule(schedules: Sluice['schedules'], name: string): Promise<ScheduleLine> {
  const all = await schedules.list()
  const found = all.find((line) => line.name === name)
  if (found !== undefined) return found
  const names = all.map((line) => line.name)
  throw unknown('schedule', name, names, '`sluice schedules`')
}

async function triggerOne(name: string, flags: { tasks?: string }, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const { schedules } = await loadCode(settings.config, flags.tasks)
  const found = schedules.find((each) => each.name === name)
  if (found === undefined) {
    const where = 'the file that exports schedules (--tasks, SLUICE_TASKS or sluice.config.ts)'
    // The store may know it, but the input is in the code.
    if (schedules.length === 0)
      throw new UsageError('SLUICE_NO_SUCH_SCHEDULE', `this command has no code of schedule "${name}": give ${where}`)
    throw unknown(
      'schedule',
      name,
      schedules.map((each) => each.name),
      where,
    )
  }
  const id = await withSluice(settings, { creates: true }, (sluice) => {
    useSluice(sluice)
    return sluice.schedules.trigger(found)
  })
  if (out.json) out.object({ name, id })
  else out.line(id)
  out.hint(`\`sluice why ${id}\``)
}

function each(act: 'pause' | 'resume' | 'remove', description: string, done: string): Command {
  return new Command(act)
    .description(description)
    .argument('<name...>')
    .action(async (names: string[], _: object, command: Command) => {
      const missed: string[] = []
      const [out] = await inStore(command, async ({ schedules }, _, settings) => {
        // Checked before the first one is changed.
        for (const name of names) await findSchedule(schedules, name)
        for (const name of names) {
          const found = await schedules[act](name)
          if (!found) missed.push(`"${name}"`)
          if (settings.out.json) settings.out.object({ name, [done]: found })
          else if (found) settings.out.line(`${name} ${done}`)
        }
      })
      if (missed.length > 0)
        throw new SluiceError(
          'SLUICE_NOT_PAUSED',
          `not paused: ${missed.join(', ')}; \`sluice schedules\` lists the states`,
        )
      out.hint('`sluice schedules`')
    })
}
