/** What became of the store: restored, failed over, its clock stepped. Said by `sluice doctor`, and by `sluice status` while it matters. */
import type { Finding } from './finding.ts'
import { span } from './output.ts'
import { has, type StorageAt } from './storage.ts'

interface Lost {
  n: string
  told: boolean
  since_ms: number | null
  names: string[] | null
  until_ms: number | null
  longer: string[] | null
  stepped_us: string | null
  stepped_ms: string | null
}

/** A step of the store's clock is told of for so long. */
const stepMs = 86_400_000

async function look({ sql }: StorageAt): Promise<Lost | undefined> {
  return (await has(sql, 'epoch')) ? (await sql.call<Lost>('lost'))[0] : undefined
}

/** Whether the store still knows what it had acknowledged, and which limits are closed because it does not. */
export async function restores(at: StorageAt): Promise<Finding | undefined> {
  const lost = await look(at)
  if (lost === undefined) return undefined
  const { n, told, since_ms: sinceMs, names, until_ms: untilMs, longer } = lost
  if (!told) {
    const text =
      'this server does not tell its identity and its position in the log: after a restore or a failover nobody notices what it lacks; stop the workers for as long as the longest window'
    return { status: 'warn', text }
  }
  if (sinceMs === null) return { status: 'ok', text: 'the store is the one it was' }
  const was = `restored or failed over at ${new Date(sinceMs).toISOString()} (epoch ${n}); it may lack what was acknowledged before`
  const rest =
    longer === null
      ? ''
      : `; ${longer.join(', ')} look(s) back for longer than an hour, and count(s) what was granted before only as far as the store still knows it`
  if (names !== null && untilMs !== null) {
    const text = `${was}; closed until ${new Date(untilMs).toISOString()} at the latest, so that none lets through more than it may: ${names.join(', ')}${rest}`
    return { status: 'warn', text }
  }
  return { status: longer === null ? 'ok' : 'warn', text: `${was}${rest}` }
}

/** Whether the store's clock has stepped of late. */
export async function steps(at: StorageAt): Promise<Finding | undefined> {
  const { stepped_us: us, stepped_ms: ms } = (await look(at)) ?? {}
  if (us === undefined) return undefined
  if (us === null || ms === null || ms === undefined || Number(ms) > stepMs)
    return { status: 'ok', text: "the store's clock goes evenly" }
  const by = Number(us) / 1_000
  const how = by > 0 ? `stepped forward by ${span(by)}` : `was set back by ${span(-by)}`
  const text = `the store's clock ${how}, ${span(Math.max(0, Number(ms)))} ago; limits went on evenly, schedules and delays follow the clock: see to its time service`
  return { status: 'warn', text }
}
