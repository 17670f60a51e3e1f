/** Finds, loads and checks sluice.config.ts and the files that export tasks. */
import fs from 'node:fs'
import path from 'node:path'
import type { Jiti } from 'jiti'
import * as testing from '../testing/index.ts'
import { defineConfig, type SluiceConfig } from '../config.ts'
import { systemClock } from '../core/clock.ts'
import { SluiceError, UsageError, textOfError } from '../core/errors.ts'
import { checkFields } from '../core/fields.ts'
import { env } from '../db/open.ts'
import { Rulebook } from '../tasks/rule.ts'
import { checkName } from '../tasks/checks.ts'
import { tasksIn, type Work } from '../events/groups.ts'
import { type EventHandler, isHandler } from '../events/handler.ts'
import type { AnyTask } from '../tasks/task.ts'
import { Guard } from '../http/guard.ts'
import * as library from '../index.ts'
import type { Schedule } from '../index.ts'
import { retentionSettings } from '../fleet/retention.ts'
import { eventNames } from '../report/events.ts'
import { logStyle } from '../report/options.ts'
import { celeryWork } from '../worker/celery-work.ts'
import { graceMsOf } from '../worker/options.ts'
import { joinLines } from './failure.ts'
import { screen } from './screen.ts'

/** A config file's content and place. */
export interface Found {
  /** Undefined: there is none. */
  file: string | undefined
  /** The directory of the file, else the current one; relative paths in the file are relative to it. */
  dir: string
  fields: SluiceConfig
}

const names = ['ts', 'mts', 'js', 'mjs', 'cjs'].map((end) => `sluice.config.${end}`)
const known = [
  'store',
  'schema',
  'logLevel',
  'logFormat',
  'listenUrl',
  'connections',
  'redis',
  'amqp',
  'events',
  'redisPrefix',
  'redisStores',
  'service',
  'allowPrivate',
  'concurrency',
  'grace',
  'queues',
  'celery',
  'tasks',
  'schedules',
  'rules',
  'routes',
  'alarms',
  'on',
  'retention',
  'prune',
]

/** How long a file is loaded before the command names it. */
const quietMs = 5_000

let jiti: Jiti | undefined

/** Returns what loads a user's files. It is loaded itself only then. */
async function loader(): Promise<Jiti> {
  const { createJiti } = await import('jiti')
  // A user's file must get this copy of the library, because a second copy would send to another store.
  jiti ??= createJiti(import.meta.url, {
    virtualModules: { sluice: { ...library, defineConfig }, 'sluice/testing': testing },
  })
  return jiti
}

/** Loads the nearest config file upward from the current directory, or `named`. @throws UsageError SLUICE_BAD_CONFIG */
export async function findConfig(named: string | undefined): Promise<Found> {
  const file = named === undefined ? nearest(process.cwd()) : path.resolve(named)
  if (file === undefined) return { file, dir: process.cwd(), fields: {} }
  const loaded = await load(file)
  // Checked by the keys, because jiti makes up a default export where there is none.
  const fields = Object.keys(loaded).includes('default') ? loaded['default'] : undefined
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) {
    throw bad(file, 'it must have a default export: `export default { … }`')
  }
  // Its fields would count as not given.
  if (fields instanceof Promise) throw bad(file, 'its default export is a promise; write `export default await …`')
  return { file, dir: path.dirname(file), fields: check(file, fields as Record<string, unknown>) }
}

function nearest(dir: string): string | undefined {
  const found = names.map((name) => path.join(dir, name)).find((file) => fs.existsSync(file))
  if (found !== undefined || path.dirname(dir) === dir) return found
  return nearest(path.dirname(dir))
}

function check(file: string, fields: Record<string, unknown>): SluiceConfig {
  checkFields('SLUICE_BAD_CONFIG', file, fields, known)
  for (const name of ['store', 'schema', 'service', 'listenUrl', 'redis', 'redisPrefix', 'amqp']) {
    const value = fields[name]
    if (value !== undefined && (typeof value !== 'string' || value === '')) throw bad(file, `${name} must be a text`)
  }
  const { queues, celery, tasks, schedules } = fields
  try {
    retentionSettings(fields)
    logStyle(fields as SluiceConfig, 'info')
    graceMsOf(fields as SluiceConfig)
    if (celery !== undefined) celeryWork(celery as readonly string[])
  } catch (error) {
    throw bad(file, textOfError(error))
  }
  for (const [name, most] of Object.entries({ concurrency: 10_000, connections: 1_000 })) {
    const value = fields[name] ?? 1
    if (!Number.isInteger(value) || Number(value) < 1 || Number(value) > most)
      throw bad(file, `${name} must be a whole number from 1 to ${most.toLocaleString('en')}`)
  }
  checkNames(file, 'queues', queues, 'leave it out to serve all')
  for (const queue of (queues ?? []) as string[]) checkName('queue', queue)
  if (tasks !== undefined && typeof tasks !== 'string' && !(Array.isArray(tasks) && tasks.every(isWork))) {
    throw bad(
      file,
      'tasks must be a list of tasks made by task(…) and handlers of events, or the path of a file that exports them',
    )
  }
  if (schedules !== undefined && !(Array.isArray(schedules) && schedules.every(isSchedule))) {
    throw bad(file, 'schedules must be a list of schedules made by schedule(…)')
  }
  const { rules = [], routes = {}, allowPrivate = [], on = {} } = fields as SluiceConfig
  checkFields('SLUICE_BAD_CONFIG', `${file}: on`, on, eventNames)
  const odd = Object.entries(on).find(([, listener]) => typeof listener !== 'function')
  if (odd !== undefined) throw bad(file, `on.${odd[0]} must be a function`)
  if (!Array.isArray(allowPrivate) || !allowPrivate.every((each) => typeof each === 'string'))
    throw bad(file, 'allowPrivate must be a list of addresses, ranges or host names')
  try {
    // Their constructors check them.
    void new Rulebook(rules, routes)
    void new Guard(allowPrivate)
  } catch (error) {
    throw bad(file, textOfError(error))
  }
  return fields as SluiceConfig
}

function bad(file: string, why: string): UsageError {
  return new UsageError('SLUICE_BAD_CONFIG', `${file}: ${why}`)
}

async function load(file: string): Promise<Record<string, unknown>> {
  if (!fs.statSync(file, { throwIfNoEntry: false })?.isFile()) throw bad(file, 'there is no such file')
  const loaded = new AbortController()
  // It keeps the process alive: if the file waits for nothing that can come, Node ends without naming the file.
  void systemClock.sleep(quietMs, loaded.signal).then(() => {
    const text = `still loading ${file}: an \`await\` at its top level, or in a file that it imports, may never end\n`
    if (!loaded.signal.aborted) screen.write(text)
  })
  try {
    return await (await loader()).import(file)
  } catch (error) {
    const message = `${file} cannot be loaded: ${joinLines(textOfError(error))}`
    throw new UsageError(SluiceError.is(error) ? error.code : 'SLUICE_BAD_CONFIG', message, { cause: error })
  } finally {
    loaded.abort()
  }
}

/** The user's code: tasks, including those of schedules, handlers of events, and schedules. */
export interface Code {
  tasks: readonly AnyTask[]
  handlers: readonly EventHandler[]
  schedules: readonly Schedule[]
}

/**
 * Loads tasks, handlers of events and schedules from the file `named`, else from the file `SLUICE_TASKS`, else from the config; empty if none
 * of these gives any. Each may also be exported in a list.
 * @throws UsageError SLUICE_BAD_CONFIG, SLUICE_NO_TASKS (a file without tasks and handlers)
 */
export async function loadCode(config: Found, named: string | undefined): Promise<Code> {
  const { tasks = [], schedules = [] } = config.fields
  const given = named ?? env('SLUICE_TASKS')
  const own = given === undefined ? schedules : []
  if (given === undefined && typeof tasks !== 'string') return codeOf(tasks, own)
  const file = given === undefined ? path.resolve(config.dir, tasks as string) : path.resolve(given)
  const exported = Object.values(await load(file)).flat()
  const found = codeOf(exported.filter(isWork), [...own, ...exported.filter(isSchedule)])
  if (found.tasks.length + found.handlers.length === 0)
    throw new UsageError('SLUICE_NO_TASKS', `${file} exports no task; write \`export const … = task(…)\``)
  return found
}

function codeOf(work: readonly Work[], schedules: readonly Schedule[]): Code {
  return {
    tasks: [...new Set([...tasksIn(work), ...schedules.map(({ task }) => task)])],
    handlers: [...new Set(work.filter(isHandler))],
    schedules: [...new Set(schedules)],
  }
}

/** Adds the built-in task `http`, unless a task has that name. */
export function withHttp(tasks: readonly AnyTask[]): readonly AnyTask[] {
  return tasks.some((task) => task.name === library.http.name) ? tasks : [...tasks, library.http as AnyTask]
}

/** Loads code for commands that run jobs: as `loadCode`, with `http`. @throws UsageError SLUICE_NO_TASKS if there are no tasks */
export async function needCode(config: Found, named: string | undefined): Promise<Code> {
  const code = await loadCode(config, named)
  if (code.tasks.length + code.handlers.length > 0) return { ...code, tasks: withHttp(code.tasks) }
  throw noTasks()
}

/** Recognises a task by its shape, because the file may have used another copy of this package. */
function isTask(value: unknown): value is AnyTask {
  if (typeof value !== 'object' || value === null) return false
  const { name, schema, limits, run, send } = value as Record<string, unknown>
  return (
    typeof name === 'string' &&
    // ArkType's schemas are functions.
    ['object', 'function'].includes(typeof schema) &&
    Array.isArray(limits) &&
    typeof run === 'function' &&
    typeof send === 'function'
  )
}

function isWork(value: unknown): value is Work {
  return isTask(value) || isHandler(value)
}

/** Recognises a schedule by its shape, like `isTask`. */
function isSchedule(value: unknown): value is Schedule {
  if (typeof value !== 'object' || value === null) return false
  const { name, task, timing, inputAt } = value as Record<string, unknown>
  return typeof name === 'string' && isTask(task) && typeof timing === 'object' && typeof inputAt === 'function'
}

/** Lists the user's files that were loaded, which `dev` watches. */
export function loadedFiles(): string[] {
  return Object.keys(jiti?.cache ?? {}).filter(
    (file) => path.isAbsolute(file) && !file.includes(`${path.sep}node_modules${path.sep}`),
  )
}

/** Returns the error for a project without tasks. */
export function noTasks(): UsageError {
  return new UsageError(
    'SLUICE_NO_TASKS',
    'there are no tasks; list them in sluice.config.ts (`sluice init` writes one), or give their file by --tasks or SLUICE_TASKS',
  )
}

function checkNames(file: string, field: string, names: unknown, otherwise: string): void {
  if (names === undefined) return
  if (!Array.isArray(names) || names.length === 0 || !names.every((name) => typeof name === 'string' && name !== ''))
    throw bad(file, `${field} must be a list of names; ${otherwise}`)
}
