/** Settings of a command: from its options, else the environment, else sluice.config.ts, else the default. */
import { UsageError } from '../core/errors.ts'
import { present } from '../core/fields.ts'
import type { LogFormat, LogLevel } from '../core/log.ts'
import { Sluice } from '../index.ts'
import type { EventName, Listener } from '../report/events.ts'
import { Rulebook } from '../tasks/rule.ts'
import { checkSchema, type Sql, sqlOn } from '../db/store.ts'
import { warnInProduction } from '../db/default-store.ts'
import { env, openStore, place, type Opened } from '../db/open.ts'
import { systemClock } from '../core/clock.ts'
import fs from 'node:fs'
import v8 from 'node:v8'
import { type Command, InvalidArgumentError } from 'commander'
import { type Found, findConfig } from './config.ts'
import { type Output, output, type StoreFlags } from './output.ts'

/** Options that every command has. */
export interface Globals extends StoreFlags {
  json?: boolean
  color?: boolean
  logLevel?: LogLevel
  logFormat?: LogFormat
}

/** The settings of a command. */
export interface Settings {
  /** `postgres://…`, an absolute directory, or `memory:`. */
  store: string
  /** Nothing names the store. */
  isImplicit: boolean
  schema: string
  listenUrl: string | undefined
  /** URL of the Redis in which limits are shared; undefined: none. */
  redis: string | undefined
  /** URL of the RabbitMQ of a fleet; undefined: none. */
  amqp: string | undefined
  config: Found
  /** As given by flags. */
  logLevel: LogLevel | undefined
  logFormat: LogFormat | undefined
  out: Output
}

/** Reads options, environment and config file. @throws UsageError SLUICE_BAD_CONFIG, SLUICE_BAD_URL, SLUICE_BAD_SCHEMA */
export async function settingsOf(command: Command): Promise<Settings> {
  const globals = command.optsWithGlobals<Globals>()
  const config = await findConfig(globals.config)
  const { logLevel, logFormat } = config.fields
  const inFile = {
    ...(env('SLUICE_LOG_LEVEL') === undefined && logLevel !== undefined ? { logLevel } : {}),
    ...(env('SLUICE_LOG_FORMAT') === undefined && logFormat !== undefined ? { logFormat } : {}),
  }
  const out = output({ ...inFile, ...globals })
  const schema = globals.schema ?? env('SLUICE_SCHEMA') ?? config.fields.schema ?? 'sluice'
  checkSchema(schema)
  const given = globals.store ?? env('DATABASE_URL')
  const store =
    given === undefined ? place(config.fields.store ?? '.sluice/data', config.dir) : place(given, process.cwd())
  const listenUrl = env('SLUICE_LISTEN_URL') ?? config.fields.listenUrl
  const redis = env('REDIS_URL') ?? config.fields.redis
  const amqp = env('AMQP_URL') ?? config.fields.amqp
  const { logLevel: level, logFormat: format } = globals
  const isImplicit = given === undefined && config.fields.store === undefined
  return { store, isImplicit, schema, listenUrl, redis, amqp, config, logLevel: level, logFormat: format, out }
}

/** Returns the name of a store to show: without its password, and with its schema if that is not the default one. */
export function nameOf({ store, schema }: Pick<Settings, 'store' | 'schema'>): string {
  return schema === 'sluice' ? placeOf(store) : `${placeOf(store)} (schema ${schema})`
}

function placeOf(store: string): string {
  if (!store.startsWith('postgres')) return store
  try {
    const { host, pathname, searchParams } = new URL(store)
    return `${searchParams.get('host') ?? decodeURIComponent(host)}${pathname}`
  } catch {
    return 'the database'
  }
}

/** Returns whether the store is a directory of the embedded engine. */
function isDirectory(store: string): boolean {
  return store !== 'memory:' && !store.startsWith('postgres')
}

/** Opens the store for `body` and closes it afterwards. Only with `creates` it creates a store, or migrates its schema. */
export async function withSluice<T>(
  settings: Settings,
  how: { creates: boolean },
  body: (sluice: Sluice, sql: Sql) => Promise<T>,
): Promise<T> {
  if (!how.creates) mustExist(settings.store)
  keepBaselineCode()
  const sluice = await openSluice(settings, how.creates)
  try {
    return await body(sluice, sqlOn(sluice.db, settings.schema))
  } finally {
    await sluice.close()
  }
}

/**
 * Opens the store of a command, which must exist, for `body`, and closes it. Resolves to the command's output, and to what `body`
 * returned.
 */
export async function inStore<T>(
  command: Command,
  body: (sluice: Sluice, sql: Sql, settings: Settings) => Promise<T>,
): Promise<[out: Output, found: T]> {
  const settings = await settingsOf(command)
  const found = await withSluice(settings, { creates: false }, (sluice, sql) => body(sluice, sql, settings))
  return [settings.out, found]
}

/** Returns a field of the config file, unless the environment has its value, which the library reads. */
export function unlessIn<T>(name: string, field: T): T | undefined {
  return env(name) === undefined ? field : undefined
}

/** Opens the store; with `migrate` brings its schema up to date. */
export async function openSluice(settings: Settings, migrate = true): Promise<Sluice> {
  const { store, schema, listenUrl, redis, out } = settings
  const { retention, prune, alarms, rules, routes, on = {}, ...fields } = settings.config.fields
  if (settings.isImplicit) warnInProduction(store)
  const sluice = await Sluice.open({
    store,
    schema,
    migrate,
    log: out.log,
    listenUrl,
    connections: fields.connections,
    redis,
    redisPrefix: unlessIn('SLUICE_REDIS_PREFIX', fields.redisPrefix),
    redisStores: unlessIn('SLUICE_REDIS_STORES', fields.redisStores),
    amqp: unlessIn('AMQP_URL', fields.amqp),
    events: unlessIn('SLUICE_EVENTS', fields.events),
    service: unlessIn('SLUICE_SERVICE', fields.service),
    allowPrivate: unlessIn('SLUICE_ALLOW_PRIVATE', fields.allowPrivate),
    retention,
    prune,
    alarms,
    rules,
    routes,
  })
  for (const [name, listener] of Object.entries(on)) sluice.on(name as EventName, listener as Listener<EventName>)
  return sluice
}

/** Opens the store for `body` and closes it afterwards, without checking its schema. */
export async function withStore<T>(
  settings: Settings,
  how: { creates: boolean },
  body: (store: Opened) => Promise<T>,
): Promise<T> {
  const { store, listenUrl, out } = settings
  if (!how.creates) mustExist(store)
  keepBaselineCode()
  const opened = await openStore({
    store,
    clock: systemClock,
    log: (message) => (out.json ? undefined : out.talk(message)),
    ...present({ listenUrl }),
  })
  try {
    return await body(opened)
  } finally {
    await opened.db.close()
  }
}

/**
 * Has V8 run the embedded engine as its first, fast compiler leaves it. The optimising one would spend 1.5 s of a core on the
 * start of a command that lasts as long; what it makes is faster by a third.
 */
function keepBaselineCode(): void {
  for (const flag of ['--no-wasm-dynamic-tiering', '--no-wasm-tier-up']) v8.setFlagsFromString(flag)
}

/** Rejects a missing directory, so that a command that only reads does not create a database at a mistyped path. */
function mustExist(store: string): void {
  if (!isDirectory(store) || fs.existsSync(store)) return
  throw new UsageError(
    'SLUICE_NO_STORE',
    `there is no store in ${store}; \`sluice dev\` creates one, or give another by --store or DATABASE_URL`,
  )
}

/** Makes a parser of an option that is a whole number. */
export function whole(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d{1,12}$/.test(text) ? Number(text) : NaN
    if (value >= least && value <= most) return value
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`)
  }
}

/** Parses the time of an option. @throws UsageError SLUICE_BAD_OPTION */
export function timeOf(flag: string, text: string): Date {
  const time = new Date(text)
  // Only whole ISO times, because `new Date` reads "5" or "tomorrow 1" as some year.
  if (/^\d{4}-\d\d-\d\d(T|$)/.test(text) && Number.isFinite(time.getTime())) return time
  throw new UsageError('SLUICE_BAD_OPTION', `${flag} is "${text}"; write it as 2030-01-31T12:00:00Z`)
}

/** Returns the options that were given to a command, as words of a command line, but for one of them. */
export function givenOptions(command: Command, but: string): string[] {
  const given = command.options.filter(
    (option) => option.long !== but && command.getOptionValueSource(option.attributeName()) === 'cli',
  )
  return given.flatMap((option) => {
    const value: unknown = command.getOptionValue(option.attributeName())
    const flag = String(option.long)
    if (value === true) return [flag]
    if (typeof value !== 'object' || value === null) return [flag, String(value)]
    const all = Array.isArray(value) ? value.map(String) : Object.entries(value).map((pair) => pair.join('='))
    return all.flatMap((one) => [flag, one])
  })
}

/** Makes the rulebook from the rules and routes of the config file. */
export function rulebookOf({ config }: Settings): Rulebook {
  return new Rulebook(config.fields.rules, config.fields.routes)
}
