/** Checks a Redis server for settings and events that would break what limits in it promise. */
import { type Clock, systemClock } from '../core/clock.ts'
import { SluiceError } from '../core/errors.ts'
import { span } from '../core/figures.ts'
import { sendCommand, type RedisClient } from './client.ts'
import { scriptOf } from './limiter.ts'

/**
 * The fault, for programs: the server evicts keys, or would with a `maxmemory`; it has evicted some; it is a replica; it is too old;
 * it does not run the scripts; its history of writes has no name, so that restarts go unnoticed; it does not show INFO; its clock
 * differs from ours.
 */
export type RedisFindingCode =
  | 'evicts'
  | 'may-evict'
  | 'evicted'
  | 'replica'
  | 'old'
  | 'no-scripts'
  | 'nameless'
  | 'no-info'
  | 'clock'

/** One thing that is wrong with a server. */
export interface RedisFinding {
  code: RedisFindingCode
  /** True if limits could be exceeded, or nothing is granted at all; false for what should be looked after. */
  isError: boolean
  /** The fault, and what to do about it. */
  text: string
}

/** Result of one check of a server. */
export interface ServerCheck {
  findings: RedisFinding[]
  /** How many keys the server has evicted since its start, for the next check; undefined: it does not show that. */
  evicted: number | undefined
}

/** What a check means for limits that are in the server: whether keys may be gone, and why it may not have limits at all. */
export function judgeServer({ findings }: ServerCheck): { hasEvicted: boolean; unfit: RedisFinding | undefined } {
  const errors = findings.filter(({ isError }) => isError)
  return {
    hasEvicted: errors.some(({ code }) => code === 'evicted'),
    unfit: errors.find(({ code }) => code !== 'evicted'),
  }
}

/** From this version on, scripts may write after they have read the clock. */
const majorLeast = 5
/** Clocks that are set by the network are closer than this by far. */
const apartMs = 10_000
const timeoutMs = 5_000

/**
 * Checks a server: before its first use, and now and then. Needs no CONFIG, which hosted servers often refuse.
 * @param past the check before, to see what was evicted since
 * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
 */
export async function checkServer(
  client: RedisClient,
  past?: ServerCheck,
  clock: Clock = systemClock,
): Promise<ServerCheck> {
  const info = await readInfo(client, clock)
  const evicted = info?.['evicted_keys'] === undefined ? undefined : Number(info['evicted_keys'])
  const found = [
    ...(info === undefined ? [noInfo] : [checkVersion(info), checkRole(info), checkEvictionPolicy(info)]),
    checkEvictions(evicted, past?.evicted),
    ...(await checkScripts(client, clock)),
    await checkClock(client, clock),
  ]
  return { findings: found.filter((one) => one !== undefined), evicted }
}

const createError = (code: RedisFindingCode, text: string): RedisFinding => ({ code, isError: true, text })
const createWarning = (code: RedisFindingCode, text: string): RedisFinding => ({ code, isError: false, text })

const noInfo = createWarning(
  'no-info',
  'Redis does not let us read INFO, so it is not known whether it evicts keys: give its user +info',
)

type Info = Partial<Record<string, string>>

async function readInfo(client: RedisClient, clock: Clock): Promise<Info | undefined> {
  try {
    const text = String(await sendCommand(client, 'INFO', [], timeoutMs, clock))
    return Object.fromEntries([...text.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name = '', value]) => [name, value]))
  } catch (cause) {
    if (isForbidden(cause)) return undefined
    throw cause
  }
}

/** True if the server answers, but refuses this command. */
function isForbidden(cause: unknown): boolean {
  if (SluiceError.is(cause)) return cause.code === 'SLUICE_REDIS_REFUSED' && cause.message.includes('NOPERM')
  return cause instanceof Error && /\b(ERR|unknown command)\b/i.test(cause.message)
}

/**
 * Reads how many clients a server has, and how many it accepts; undefined: it does not show that.
 * @throws StoreError SLUICE_REDIS_SILENT, SLUICE_REDIS_REFUSED; the client's errors
 */
export async function readLoad(
  client: RedisClient,
): Promise<{ connected: number | undefined; most: number | undefined }> {
  const { connected_clients: connected, maxclients: shown } = (await readInfo(client, systemClock)) ?? {}
  // Before Redis 6.2 only CONFIG shows it, which hosted servers often refuse.
  const most = shown ?? (await readSetting(client, 'maxclients'))
  return { connected: numberIn(connected), most: numberIn(most) }
}

const numberIn = (text: unknown) => (text === undefined ? undefined : Number(text))

async function readSetting(client: RedisClient, name: string): Promise<unknown> {
  try {
    const found = await sendCommand(client, 'CONFIG', ['GET', name], timeoutMs)
    return Array.isArray(found) ? found[1] : undefined
  } catch (cause) {
    if (isForbidden(cause)) return undefined
    throw cause
  }
}

function checkVersion({ redis_version: version = '' }: Info): RedisFinding | undefined {
  const major = Number(/^\d+/.exec(version)?.[0])
  if (!(major < majorLeast)) return undefined
  return createError(
    'old',
    `Redis ${version} does not let scripts write once they have read the clock: use 5.0 or newer`,
  )
}

function checkRole({ role: kind, master_host: host }: Info): RedisFinding | undefined {
  if (kind !== 'slave') return undefined
  return createError(
    'replica',
    `this Redis is a replica of ${host ?? 'another'}: give the address of the current master`,
  )
}

function checkEvictionPolicy({ maxmemory_policy: eviction, maxmemory }: Info): RedisFinding | undefined {
  if (eviction === 'noeviction') return undefined
  const cure = 'set maxmemory-policy noeviction'
  if (eviction === undefined)
    return createWarning('may-evict', `Redis does not show whether it evicts keys, which would open limits: ${cure}`)
  if (maxmemory === '0')
    return createWarning(
      'may-evict',
      `Redis would evict keys (${eviction}) once it has a maxmemory, and so open limits: ${cure}`,
    )
  return createError('evicts', `Redis evicts keys when its memory is full (${eviction}), and so opens limits: ${cure}`)
}

function checkEvictions(now: number | undefined, before: number | undefined): RedisFinding | undefined {
  const grown = (now ?? 0) - (before ?? 0)
  if (!(grown > 0)) return undefined
  const what = `Redis has evicted ${grown} keys ${before === undefined ? 'since it was started' : 'since the last look'}`
  if (before === undefined) return createWarning('evicted', `${what}; if limits were among them, begin a new epoch`)
  return createError(
    'evicted',
    `${what}, and limits may be among them: begin a new epoch, and set maxmemory-policy noeviction`,
  )
}

async function checkScripts(client: RedisClient, clock: Clock): Promise<(RedisFinding | undefined)[]> {
  const cannot = (why: string) => [createError('no-scripts', `Redis does not run the scripts of limits: ${why}`)]
  try {
    const answers = (await sendCommand(client, 'EVAL', [scriptOf('check'), '0'], timeoutMs, clock)) as unknown[]
    const [reads, packs, isNamed] = answers.map((one) => Number(one) === 1)
    if (!reads) return cannot('they may not read its clock (TIME)')
    if (!packs) return cannot('it lacks cmsgpack, struct or cjson')
    if (isNamed) return []
    const text = 'Redis does not show its master_replid to scripts, so a start from old data goes unnoticed'
    return [
      createWarning('nameless', `${text}: give its user +info, or begin a new epoch after each restart and failover`),
    ]
  } catch (cause) {
    if (isForbidden(cause)) return cannot('give its user +@scripting; docs/redis.md lists what else it needs')
    throw cause
  }
}

async function checkClock(client: RedisClient, clock: Clock): Promise<RedisFinding | undefined> {
  const time = await sendCommand(client, 'TIME', [], timeoutMs, clock).catch((why: unknown) => {
    // Then the scripts may not read the clock either, and `checkScripts` reports that.
    if (isForbidden(why)) return undefined
    throw why
  })
  if (time === undefined) return undefined
  const [seconds, micros] = (time as unknown[]).map(Number)
  const apart = (seconds ?? 0) * 1_000 + (micros ?? 0) / 1_000 - clock.wallMs()
  if (Math.abs(apart) < apartMs) return undefined
  const text = `Redis's clock is ${span(Math.abs(apart))} ${apart > 0 ? 'ahead of' : 'behind'} this machine's`
  return createWarning('clock', `${text}: limits and the periods of quotas go by Redis's; set the one that is wrong`)
}
