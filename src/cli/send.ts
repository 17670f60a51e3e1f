/** `sluice send`: sends jobs. */
import { text as readAll } from 'node:stream/consumers'
import { Command, Option } from 'commander'
import { systemClock } from '../core/clock.ts'
import { UsageError, textOfError } from '../core/errors.ts'
import { nearest } from '../core/nearest.ts'
import { present } from '../core/fields.ts'
import type { Duration } from '../core/rate.ts'
import type { EventHandler } from '../events/handler.ts'
import { matches } from '../events/names.ts'
import type { Job } from '../index.ts'
import type { NewJob } from '../store/send.ts'
import { admit } from '../tasks/admit.ts'
import type { SendOptions } from '../tasks/send-options.ts'
import type { AnyTask } from '../tasks/task.ts'
import { loadCode, withHttp } from './config.ts'
import { unknown } from '../operations/known.ts'
import type { Output } from './output.ts'
import { rulebookOf, settingsOf, timeOf, whole, withSluice } from './settings.ts'
import { mustBeWhole } from './shown-input.ts'
import { standardInput } from './stdin.ts'

interface SendFlags {
  tasks?: string
  repeat: number
  delay?: string
  at?: string
  priority?: number
  tag?: string[]
  maxWait?: string
  idempotencyKey?: string | false
  replace?: boolean
  id?: string
  queue?: string
  dryRun?: boolean
  from?: string
  onError?: 'stop' | 'skip'
  badRows?: string
}

const batch = 1_000

/** `sluice send`. */
export function sendCommand(): Command {
  return new Command('send')
    .description('send a job, and print its id once it is durable')
    .argument('<task>', 'name of the task; `http` is built in: {"method","url","headers","json"|"form"|"text"}')
    .argument('[json]', 'input of the job; `-` reads it from stdin (default: {})')
    .option('--from <file>', 'send a job for each row of a CSV or NDJSON file; `-` is stdin')
    .option('--tasks <file>', 'file that exports the task (env SLUICE_TASKS; default: as in sluice.config.ts)')
    .option('--repeat <n>', 'send n jobs with the same input, and print how many', whole(1, 100_000), 1)
    .option('--delay <span>', 'do not start before this time from now: 30s, 5min, 2h, 7d')
    .option('--at <time>', 'do not start before this time: 2030-01-31T12:00:00Z')
    .option('--max-wait <span>', "fail the job if it has not begun within this time (default: the task's)")
    .option('--priority <n>', 'priority of the job, -1000 to 1000; higher first', whole(-1_000, 1_000))
    .option(
      '--tag <tag>',
      'tag to find the job by; may be repeated',
      (tag: string, all: readonly string[] | undefined) => [...(all ?? []), tag],
    )
    .option(
      '--idempotency-key <key>',
      "a second job with the same key within 24 h is not sent; with --from a column or '{a}/{b}' (default: the file's content and the line)",
    )
    .option('--replace', 'with --idempotency-key: replace the job with this key if it has not begun')
    .option('--no-idempotency-key', 'with --from: send all rows, also those that were sent before')
    .addOption(
      new Option('--on-error <what>', 'with --from: what to do at a bad row (default: skip)').choices(['stop', 'skip']),
    )
    .option('--bad-rows <file>', 'with --from: write bad rows to this file, to correct and send them')
    .option('--id <id>', 'id of the job, a UUIDv7; sending the same id again changes nothing')
    .option('--queue <name>', "queue of the job (default: the task's)")
    .option('--dry-run', 'check the input against the schema and the limits, and send nothing')
    .action(send)
}

async function send(name: string, json: string | undefined, flags: SendFlags, command: Command): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const code = await loadCode(settings.config, flags.tasks)
  const task = find(withHttp(code.tasks), name, code.handlers)
  checkTogether(json, flags)
  const { from, idempotencyKey: key, onError = 'skip', badRows, dryRun = false } = flags
  if (from !== undefined) {
    const how = { from, key, onError, dryRun, ...(badRows === undefined ? {} : { badRows }) }
    // Loaded here, because reading tables takes packages that nothing else needs.
    const { importRows } = await import('./import.ts')
    return importRows(settings, task, how, sendOptions({ ...flags, idempotencyKey: false }))
  }
  const input = await readInput(out, json ?? '{}')
  const options = sendOptions(flags)
  if (flags.dryRun === true) {
    const job = await admit(task, input, options, systemClock, rulebookOf(settings))
    const would = previewOf(job, options)
    if (out.json) out.object(would)
    else out.line(previewText(would))
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
  if (out.json) for (const id of ids) out.object({ id })
  else out.line(ids.length === 1 ? String(ids[0]) : `${ids.length} sent`)
  const runs =
    task.remote === undefined
      ? 'a worker runs it (`sluice dev`, `sluice work`)'
      : 'a Celery worker runs it, behind `sluice dispatch`'
  out.hint(`\`sluice why ${ids[0]}\` shows what it waits for; ${runs}`)
}

/** What a send would record, under the names of a job's record, with the options that the record does not have. */
type Preview = Pick<
  Job,
  | 'state'
  | 'reason'
  | 'task'
  | 'queue'
  | 'priority'
  | 'weight'
  | 'limits'
  | 'tags'
  | 'dueAt'
  | 'expiresAt'
  | 'ruled'
  | 'input'
> &
  Pick<SendOptions, 'id' | 'idempotencyKey' | 'replace'> & {
    /** Units for each of `limits`. */
    costs: readonly number[]
  }

function previewOf(job: NewJob, { id, idempotencyKey, replace }: SendOptions): Preview {
  const { task, queue, priority, weight, buckets, costs, delayUs, atUs, waitUs, discard, input } = job
  const limits = buckets ?? []
  const nowMs = systemClock.wallMs()
  const dueMs = delayUs !== null ? nowMs + delayUs / 1_000 : atUs !== null ? atUs / 1_000 : undefined
  const isDue = dueMs === undefined || dueMs <= nowMs
  return {
    ...present({ id, idempotencyKey, replace }),
    state: discard !== null ? 'cancelled' : isDue ? 'waiting' : 'scheduled',
    reason: discard ?? (isDue ? null : 'delay'),
    task,
    queue,
    priority,
    weight,
    limits,
    costs: limits.map((_, at) => costs?.[at] ?? 1),
    tags: job.tags ?? [],
    dueAt: isDue ? null : new Date(dueMs),
    expiresAt: waitUs === null ? null : new Date((isDue ? nowMs : dueMs) + waitUs / 1_000),
    ruled: [job.ruled ?? []].flat() as Job['ruled'],
    input: JSON.parse(input) as unknown,
  }
}

function previewText({ task, queue, limits, dueAt, state, reason }: Preview): string {
  const all = [
    `would send ${task} to queue ${queue}`,
    ...(limits.length === 0 ? [] : [`limited by ${limits.join(', ')}`]),
    ...(dueAt === null ? [] : [`not before ${dueAt.toISOString()}`]),
    ...(state === 'cancelled' ? [String(reason)] : []),
  ]
  return all.join(', ')
}

function find(tasks: readonly AnyTask[], name: string, handlers: readonly EventHandler[]): AnyTask {
  const task = tasks.find((each) => each.name === name)
  if (task !== undefined) return task
  const renamed = tasks.find(({ formerly }) => formerly?.includes(name))
  if (renamed !== undefined)
    throw new UsageError('SLUICE_NO_SUCH_TASK', `task "${name}" is called "${renamed.name}" now`)
  if (handlers.some(({ pattern }) => matches(pattern, name)))
    throw new UsageError(
      'SLUICE_NO_SUCH_TASK',
      `no task "${name}" is known, but a handler gets events of this type: \`sluice events emit ${name}\``,
    )
  const known = tasks.map((each) => each.name)
  if (known.every((one) => one === 'http') && nearest(name, known) === undefined)
    throw new UsageError(
      'SLUICE_NO_SUCH_TASK',
      `no task "${name}" is known here: its schema and its limits are in its code, so name the file that exports it: --tasks <file>, SLUICE_TASKS, or \`tasks\` in sluice.config.ts. Without the code: \`select sluice.send('${name}', '{…}')\` in SQL`,
    )
  throw unknown('task', name, known, 'the file of tasks (--tasks, SLUICE_TASKS or sluice.config.ts)')
}

/** Parses an input; `-` reads it from stdin. @throws UsageError SLUICE_BAD_JSON */
export async function readInput(out: Output, json: string): Promise<unknown> {
  const text = json === '-' ? await readAll(standardInput(out, 'the input', process.stdin)) : json
  let input: unknown
  try {
    input = JSON.parse(text)
  } catch (error) {
    const why = textOfError(error)
    throw new UsageError(
      'SLUICE_BAD_JSON',
      `the input is not JSON (${why}); in a shell quote it: '{"accountId":"a1"}'`,
      { cause: error },
    )
  }
  mustBeWhole(input)
  return input
}

/** Rejects options that cannot be combined. @throws UsageError SLUICE_BAD_OPTION */
function checkTogether(json: string | undefined, flags: SendFlags): void {
  const { from, repeat, idempotencyKey: key, id, onError, badRows, replace } = flags
  if (from === undefined && (key === false || onError !== undefined || badRows !== undefined))
    throw new UsageError('SLUICE_BAD_OPTION', '--no-idempotency-key, --on-error and --bad-rows need --from')
  if (from !== undefined && (json !== undefined || repeat > 1 || id !== undefined))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--from sends a job for each row; it cannot be used with an input, --repeat or --id',
    )
  if (replace && (from !== undefined || key === undefined))
    throw new UsageError('SLUICE_BAD_OPTION', '--replace needs --idempotency-key, and cannot be used with --from')
  if (repeat > 1 && (key !== undefined || id !== undefined))
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--repeat sends different jobs; it cannot be used with --id or --idempotency-key',
    )
}

function sendOptions(flags: SendFlags): SendOptions {
  const { delay, at, maxWait, priority, tag: tags = [], idempotencyKey: key, replace, id, queue } = flags
  const times = { delay: delay as Duration | undefined, maxWait: maxWait as Duration | undefined }
  const idempotencyKey = typeof key === 'string' ? key : undefined
  const dueAt = at === undefined ? undefined : timeOf('--at', at)
  return present({ ...times, at: dueAt, priority, tags, idempotencyKey, replace, id, queue })
}
