/** `sluice work`: runs a worker until Ctrl-C or SIGTERM. */
import { Command, Option } from 'commander'
import { systemClock } from '../core/clock.ts'
import { UsageError } from '../core/errors.ts'
import { type Duration, parseRate, type Rate } from '../core/rate.ts'
import { env } from '../db/open.ts'
import { checkName } from '../tasks/checks.ts'
import { type DirectOptions, type Sluice, useSluice, type Work, type WorkOptions } from '../index.ts'
import { type CeleryWork, celeryWork } from '../worker/celery-work.ts'
import { readLabel } from '../worker/labels.ts'
import { graceMsOf } from '../worker/options.ts'
import { loadedFiles, needCode } from './config.ts'
import { workWithDispatcher, workWithoutStore } from './direct.ts'
import { showLive } from './live.ts'
import { many } from './output.ts'
import { screen } from './screen.ts'
import { nameOf, openSluice, type Settings, settingsOf, whole } from './settings.ts'
import { listenForStop, type Stop, surviveStrays } from './stop.ts'

/** Options of commands that run jobs. */
export interface WorkFlags {
  tasks?: string
  concurrency?: number
  grace?: string
  queues?: string
  celery?: string
  celeryEvents?: true
  celeryTrackStarted?: true
  rate?: string
  label?: readonly string[]
  /** Given by `sluice dev`: shows jobs and limits. */
  live?: boolean
}

/** A worker, or a dispatcher, that a command has started; see the methods of `Worker`. */
interface Running {
  readonly running: number
  stop(): Promise<void>
  abort(): Promise<void>
}

/** How a command has jobs executed. */
export interface Mode {
  start(sluice: Sluice, work: readonly Work[], options: WorkOptions): Promise<Running>
  /** The verb for the log: "working on" tasks. */
  verb: string
  /** True if the number of slots is this process's own. */
  hasSlots: boolean
  /** True if it claims jobs, and so sends those of schedules. */
  claims: boolean
}

const here: Mode = {
  start: (sluice, work, options) => sluice.work(work, options),
  verb: 'working on',
  hasSlots: true,
  claims: true,
}
const inFleet: Mode = {
  start: (sluice, work, options) => sluice.execute(work, options),
  verb: 'waiting for a dispatcher to send',
  hasSlots: true,
  claims: false,
}

const summaryMs = 10_000

/** The heading of options that most people do not need. */
const overBrokers = 'Options with RabbitMQ and Celery:'

/** `sluice work`. */
export function workCommand(): Command {
  const rare = (flags: string, text: string) => new Option(flags, text).helpGroup(overBrokers)
  return workFlags(new Command('work'))
    .description('run jobs until Ctrl-C or SIGTERM; running attempts finish first')
    .addOption(
      rare('--broker', 'work on what `sluice dispatch` gives over RabbitMQ (env AMQP_URL); needs no DATABASE_URL'),
    )
    .addOption(
      rare(
        '--direct',
        'without a store: execute --celery with grants of a Redis alone (env REDIS_URL, CELERY_BROKER_URL)',
      ),
    )
    .addOption(rare('--park', 'with --direct: put tasks that have failed for good into the queue <queue>.parked, too'))
    .addOption(
      rare('--acks <when>', 'with --direct: acknowledge when a task has ended, or begins (default late)').choices([
        'late',
        'early',
      ]),
    )
    .addOption(
      rare('--prefetch-multiplier <n>', 'with --direct: messages read ahead for each slot (default 1)').argParser(
        whole(1, 10_000),
      ),
    )
    .addOption(new Option('--live').hideHelp())
    .action(work)
}

type Flags = WorkFlags & Direct & { broker?: true; direct?: true; park?: true }
type Direct = Pick<DirectOptions, 'acks' | 'prefetchMultiplier'>

async function work(file: string | undefined, flags: Flags, command: Command): Promise<void> {
  if (flags.direct && flags.broker)
    throw new UsageError('SLUICE_BAD_OPTION', '--direct is for a worker without a store, --broker for one of a fleet')
  if (flags.direct) {
    const settings = await settingsOf(command)
    const { park = false, acks, prefetchMultiplier } = flags
    const how = { park, acks, prefetchMultiplier }
    return workWithoutStore(settings, tasksFile(file, flags), workOptions(settings, flags), how)
  }
  if (flags.acks !== undefined)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--acks is for --direct: with a store no message waits for the end of its job',
    )
  if (flags.prefetchMultiplier !== undefined)
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--prefetch-multiplier is for --direct: with a store a job is given to a free slot, and waits in no worker',
    )
  if (flags.park) throw new UsageError('SLUICE_BAD_OPTION', '--park is for --direct: a store keeps what has failed')
  if (flags.broker && flags.rate !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', 'a worker over a broker has no --rate: give it to `sluice dispatch`')
  if (flags.broker && flags.celery !== undefined)
    throw new UsageError('SLUICE_BAD_OPTION', 'a worker over a broker has no --celery: give it to `sluice dispatch`')
  if (flags.broker) {
    const settings = await settingsOf(command)
    if (settings.isImplicit) return workWithDispatcher(settings, tasksFile(file, flags), workOptions(settings, flags))
  }
  await runUntilStopped(flags.broker ? inFleet : here, file, flags, command)
}

/** Adds the options of commands that run jobs. */
export function workFlags(command: Command): Command {
  const celery = (flags: string, text: string) => new Option(flags, text).helpGroup(overBrokers)
  return command
    .argument('[tasks-file]', 'file that exports the tasks (env SLUICE_TASKS; default: as in sluice.config.ts)')
    .option('--tasks <file>', 'the same')
    .option('-c, --concurrency <n>', 'attempts at once (env SLUICE_CONCURRENCY; default 10)', whole(1, 10_000))
    .option('--queues <a,b>', 'queues to serve (env SLUICE_QUEUES; default all)')
    .option('--grace <span>', 'how long running attempts may go on at the end (env SLUICE_GRACE; default 25s)')
    .option('--rate <n/s>', 'attempts to begin at most in this process, such as 20/s (default: as limits allow)')
    .option(
      '--label <name=value>',
      "this worker's label, for limits by label; may be repeated (env SLUICE_LABELS; default host and ip)",
      (text: string, all: readonly string[] | undefined) => [...(all ?? []), text],
    )
    .addOption(
      celery(
        '--celery <a,b>',
        'queues of Celery whose messages become jobs (env SLUICE_CELERY_QUEUES; broker: CELERY_BROKER_URL, else AMQP_URL)',
      ),
    )
    .addOption(
      celery(
        '--celery-events',
        'send events for Flower and `celery events` from the start (default: once they want them)',
      ),
    )
    .addOption(celery('--celery-track-started', 'show producers of Celery the state STARTED (default: not)'))
}

/**
 * Reads the options of a worker: from the command line, else the environment, else the config.
 * @throws UsageError SLUICE_BAD_OPTION, SLUICE_BAD_TASK, SLUICE_BAD_RATE, SLUICE_BAD_DURATION
 */
export function workOptions(settings: Settings, flags: WorkFlags): WorkOptions {
  const { fields } = settings.config
  const concurrency = flags.concurrency ?? fromEnv() ?? fields.concurrency
  const queues = namesIn(flags.queues ?? env('SLUICE_QUEUES')) ?? fields.queues
  const celery = celeryOf(flags, fields.celery)
  for (const name of queues ?? []) checkName('queue', name)
  const rate = flags.rate as Rate | undefined
  if (rate !== undefined) parseRate(rate)
  const grace = flags.grace ?? env('SLUICE_GRACE') ?? fields.grace
  graceMsOf({ grace })
  const labels = flags.label && Object.fromEntries(flags.label.map(readLabel))
  return { labels, concurrency, grace: grace as Duration | undefined, queues, celery, rate }
}

/** @throws UsageError SLUICE_BAD_OPTION */
function celeryOf(flags: WorkFlags, given: WorkOptions['celery']): CeleryWork | undefined {
  const { celeryEvents: events, celeryTrackStarted: trackStarted } = flags
  const queues = namesIn(flags.celery ?? env('SLUICE_CELERY_QUEUES'))
  const more = { ...(events && { events }), ...(trackStarted && { trackStarted }) }
  if (given === undefined && queues === undefined) {
    if (Object.keys(more).length === 0) return undefined
    throw new UsageError(
      'SLUICE_BAD_OPTION',
      '--celery-events and --celery-track-started are for --celery: name its queues',
    )
  }
  const own = given === undefined ? { queues: [] } : celeryWork(given)
  return { ...own, ...(queues === undefined ? {} : { queues }), ...more }
}

function namesIn(text: string | undefined): string[] | undefined {
  return text?.split(',').map((name) => name.trim())
}

function fromEnv(): number | undefined {
  const text = env('SLUICE_CONCURRENCY')
  if (text === undefined) return undefined
  const value = /^\d{1,6}$/.test(text) ? Number(text) : NaN
  if (value >= 1 && value <= 10_000) return value
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    `SLUICE_CONCURRENCY is "${text}"; it must be a whole number from 1 to 10,000`,
  )
}

/** Returns the file of tasks, which an argument or a flag gives. @throws UsageError SLUICE_BAD_OPTION */
export function tasksFile(file: string | undefined, { tasks }: WorkFlags): string | undefined {
  if (file === undefined || tasks === undefined) return file ?? tasks
  throw new UsageError('SLUICE_BAD_OPTION', `give the file of tasks once: ${file}, or --tasks ${tasks}`)
}

/** Starts what `mode` starts, and stops it at Ctrl-C or SIGTERM. */
export async function runUntilStopped(
  mode: Mode,
  file: string | undefined,
  flags: WorkFlags,
  command: Command,
): Promise<void> {
  const settings = await settingsOf(command)
  const { out } = settings
  const stop = listenForStop()
  surviveStrays(out.log, stop)
  // Report the files to `sluice dev` even if loading failed, because saving one of them may repair it.
  const loading = needCode(settings.config, tasksFile(file, flags)).finally(() =>
    process.send?.({ files: loadedFiles() }),
  )
  const { tasks, handlers, schedules } = await loading
  const options = { ...workOptions(settings, flags), schedules }
  const sluice = await openSluice(settings)
  const ended = new AbortController()
  let reportExit: (code: number) => void = () => {}
  try {
    useSluice(sluice)
    const worker = await start(sluice, [...tasks, ...handlers], options, stop, mode)
    if (worker === undefined) return
    announce(mode, { tasks, handlers, schedules }, options, settings)
    if (flags.live) void showLive(sluice, settings.schema, { out, screen }, ended.signal)
    else if (process.stderr.isTTY) void summarise(sluice, worker, settings, ended.signal)
    reportExit = (code) => {
      if (worker.running > 0)
        out.log.error(
          `the process exits with code ${code} during ${many(worker.running, 'attempt')}: unless somebody ended it, a handler, or code that it uses, called process.exit()`,
        )
    }
    process.once('exit', reportExit)
    const gone = await Promise.race([stop.first, sluice.ended])
    if (gone !== undefined) throw gone
    out.log.info(
      worker.running === 0
        ? 'stopping; no job is running'
        : `stopping: waiting for ${many(worker.running, 'running job')}, ${options.grace ?? '25s'} at most; Ctrl-C again hands them back`,
    )
    const given = stop.second.then(() => worker.abort())
    given.catch(() => {})
    await worker.stop()
  } finally {
    ended.abort()
    await sluice.close().finally(() => process.off('exit', reportExit))
  }
  out.log.info('stopped')
}

/** Writes what has begun. */
function announce(
  { verb, hasSlots, claims }: Mode,
  { tasks, handlers, schedules }: Awaited<ReturnType<typeof needCode>>,
  { queues, concurrency = 10 }: WorkOptions,
  settings: Settings,
): void {
  const { out } = settings
  // A worker leaves these to dispatchers.
  const far = hasSlots ? tasks.filter(({ remote }) => remote !== undefined) : []
  const names = listed(tasks.filter((task) => !far.includes(task)))
  const hosted = handlers.length === 0 ? '' : `, ${many(handlers.length, 'handler')} of events`
  const firing = schedules.length === 0 || !claims ? '' : `, and ${many(schedules.length, 'schedule')}`
  const on = queues === undefined ? '' : `, queues ${queues.join(', ')}`
  const most = hasSlots ? `, ${concurrency} at once` : ''
  out.log.info(`${verb} ${names}${hosted}${firing} from ${nameOf(settings)}${on}${most}`)
  if (far.length > 0)
    out.log.info(`not working on ${listed(far)}: Celery workers execute that, and \`sluice dispatch\` gives it to them`)
}

const listed = (tasks: readonly { name: string }[]) => tasks.map(({ name }) => name).join(', ')

/** Starts a worker; undefined: a request to end came first. */
async function start(
  sluice: Sluice,
  tasks: readonly Work[],
  options: WorkOptions,
  stop: Stop,
  mode: Mode,
): Promise<Running | undefined> {
  const starting = mode.start(sluice, tasks, options)
  const stopped = stop.first.then(() => undefined)
  const worker = await Promise.race([starting, stopped])
  // Closing ends the start; a worker that is starting has no attempts yet.
  if (worker === undefined) await Promise.allSettled([sluice.close(), starting])
  return worker
}

async function summarise(sluice: Sluice, worker: Running, { out }: Settings, signal: AbortSignal): Promise<void> {
  for (;;) {
    await systemClock.sleep(summaryMs, signal, false)
    if (signal.aborted) return
    try {
      const { waiting, scheduled, failed } = await sluice.jobs.status()
      out.talk(`${worker.running} running here, ${waiting} waiting, ${scheduled} scheduled, ${failed} failed`)
    } catch (error) {
      out.log.warn('the status could not be read', { err: error })
    }
  }
}
