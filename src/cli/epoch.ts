/** Checks whether the store was restored or failed over, or its clock has stepped: for `sluice doctor` and `sluice status`. */
import type { Sql } from '../db/store.ts'
import { ok, warn, type Finding } from './finding.ts'
import { span } from './output.ts'
import { has, type StorageAt } from './storage.ts'

interface Lost {
  n: string
  identified: boolean
  since_ms: number | null
  names: string[] | null
  until_ms: number | null
  longer: string[] | null
  stepped_us: string | null
  stepped_ms: string | null
}

/** How long a step of the store's clock is reported. */
const stepMs = 86_400_000

async function look({ sql }: StorageAt): Promise<Lost | undefined> {
  return (await has(sql, 'epoch')) ? (await sql.call<Lost>('describe_store_loss'))[0] : undefined
}

/** Checks whether the store has lost acknowledged data, and which limits are closed for that reason. */
export async function restores(at: StorageAt): Promise<Finding | undefined> {
  const lost = await look(at)
  if (lost === undefined) return undefined
  const { n, identified, since_ms: sinceMs, names, until_ms: untilMs, longer } = lost
  if (!identified) {
    const text =
      'this server does not show its identity and log position, so a restore or a failover cannot be detected; after one, run `sluice limits close` before the first worker starts'
    return warn(text)
  }
  if (sinceMs === null) return ok('the store was not restored and did not fail over')
  const was = `restored or failed over at ${new Date(sinceMs).toISOString()} (epoch ${n}); acknowledged data may be lost`
  const rest =
    longer === null
      ? ''
      : `; ${longer.join(', ')}: longer than an hour, and count earlier grants only as far as the store still has them`
  if (names !== null && untilMs !== null) return warn(`${was}; ${closed(names, untilMs)}${rest}`)
  return { status: longer === null ? 'ok' : 'warn', text: `${was}${rest}` }
}

function closed(names: readonly string[], untilMs: number): string {
  return `limits closed until ${new Date(untilMs).toISOString()} at the latest, so that none is exceeded: ${names.join(', ')}`
}

/** Begins another epoch, which closes all limits as after a restore. Resolves to which, and until when, in words. */
export async function closeLimits(sql: Sql): Promise<string> {
  await sql.run('limits/clock/begin_epoch')
  const [{ names = null, until_ms: untilMs = null } = {}] = await sql.call<Partial<Lost>>('describe_store_loss')
  return names === null || untilMs === null ? 'no limit looks back: none is closed' : closed(names, untilMs)
}

/** Checks whether the store's clock has stepped within the last day. */
export async function steps(at: StorageAt): Promise<Finding | undefined> {
  const { stepped_us: us, stepped_ms: ms } = (await look(at)) ?? {}
  if (us === undefined) return undefined
  if (us === null || ms === null || ms === undefined || Number(ms) > stepMs)
    return ok("the store's clock did not step within the last day")
  const by = Number(us) / 1_000
  const how = by > 0 ? `stepped forward by ${span(by)}` : `was set back by ${span(-by)}`
  const text = `the store's clock ${how}, ${span(Math.max(0, Number(ms)))} ago; limits are not affected, schedules and delays follow the clock: check its time service`
  return warn(text)
}
