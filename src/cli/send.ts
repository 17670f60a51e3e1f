/** `sluice send`: records jobs. */
import { text as readAll } from 'node:stream/consumers'
import { Command } from 'commander'
import { systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import type { Duration } from '../core/rate.ts'
import { admit } from '../dispatch/admit.ts'
import type { AnyTask, SendOptions } from '../dispatch/task.ts'
import { loadCode, withHttp } from './config.ts'
import { settingsOf, whole, withSluice } from './settings.ts'

interface SendFlags {
  tasks?: string
  repeat: number
  delay?: string
  at?: string
  priority?: number
  tag: string[]
  key?: string
  id?: string
  queue?: string
  dryRun?: boolean
}

const batch = 1_000

/** `sluice send`. */
export function sendCommand(): Command {
  return new Command('send')
    .description('record a job; prints its id once it is durable')
    .argument('<task>', 'its name; `http` is built in: {"method","url","headers","json"|"form"|"text"}')
    .argument('[json]', 'its input; `-` reads it from stdin', '{}')
    .option('--tasks <file>', 'where the task is defined (env SLUICE_TASKS; default: sluice.config.ts)')
    .option('--repeat <n>', 'so many jobs with the same input', whole(1, 100_000), 1)
    .option('--delay <span>', 'not before so long from now: 30s, 5min, 2h, 7d')
    .option('--at <time>', 'not before this time: 2030-01-31T12:00:00Z')
    .option('--priority <n>', 'higher first', whole(-1_000, 1_000))
    .option('--tag <tag>', 'for finding it again; may be repeated', (tag, tags: string[]) => [...tags, tag], [])
    .option('--key <key>', 'idempotency key: a second job with it, within 24 h, is not made')
    .option('--id <uuid>', 'its id, a UUIDv7; sending it again changes nothing')
    .option('--queue <name>', "default: the task's")
    .option('--dry-run', 'check the input against the schema and the limits; record nothing')
    .action(send)
}

async function send(name: string, json: string, flags: SendFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const { tasks } = await loadCode(settings.config, flags.tasks)
  const task = find(withHttp(tasks), name)
  const input = parse(json === '-' ? await readAll(process.stdin) : json)
  const options = sendOptions(flags)
  if (flags.dryRun === true) {
    const {
      id: _id,
      lane: _lane,
      given: _given,
      input: stored,
      ...job
    } = await admit(task, input, options, systemClock)
    if (out.json) out.object({ ...job, input: JSON.parse(stored) as unknown })
    else
      out.line(`${task.name} on queue ${job.queue}${job.takes === null ? '' : `, limited by ${job.takes.join(', ')}`}`)
    return
  }
  const ids = await withSluice(settings, { creates: true }, async (sluice) => {
    const sent: string[] = []
    while (sent.length < flags.repeat) {
      const count = Math.min(batch, flags.repeat - sent.length)
      sent.push(...(await Promise.all(Array.from({ length: count }, () => sluice.send(task, input, options)))))
    }
    return sent
  })
  for (const id of ids) {
    if (out.json) out.object({ id })
    else out.line(id)
  }
  out.hint(`\`sluice why ${ids[0]}\` tells what it waits for; \`sluice work\` runs it`)
}

function find(tasks: readonly AnyTask[], name: string): AnyTask {
  const task = tasks.find((each) => each.name === name)
  if (task !== undefined) return task
  throw new UsageError(
    'SLUICE_NO_SUCH_TASK',
    `no task "${name}" is known; known are ${tasks.map((each) => each.name).join(', ')}`,
  )
}

function parse(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new UsageError(
      'SLUICE_BAD_JSON',
      `the input is not JSON (${why}); in a shell quote it: '{"accountId":"a1"}'`,
      { cause: error },
    )
  }
}

function sendOptions(flags: SendFlags): SendOptions {
  const { delay, at, priority, tag, key, id, queue } = flags
  if (flags.repeat > 1 && (key !== undefined || id !== undefined)) {
    throw new UsageError('SLUICE_BAD_OPTION', '--repeat makes different jobs; it does not go with --id or --key')
  }
  return {
    ...(delay === undefined ? {} : { delay: delay as Duration }),
    ...(at === undefined ? {} : { at: timeOf(at) }),
    ...(priority === undefined ? {} : { priority }),
    tags: tag,
    ...(key === undefined ? {} : { idempotencyKey: key }),
    ...(id === undefined ? {} : { id }),
    ...(queue === undefined ? {} : { queue }),
  }
}

function timeOf(text: string): Date {
  const time = new Date(text)
  // Only whole ISO times: `new Date` reads "5" or "tomorrow 1" as some year.
  if (/^\d{4}-\d\d-\d\d(T|$)/.test(text) && Number.isFinite(time.getTime())) return time
  throw new UsageError('SLUICE_BAD_OPTION', `--at is "${text}"; write it as 2030-01-31T12:00:00Z`)
}
