/** Reads the URL of a Redis: of one server, of sentinels or of a cluster. */
import { UsageError } from '../core/errors.ts'
import { decodedPart, type Host, hostsOf, type Pems, pemsOf } from '../core/server-url.ts'

/** The address of a connection; see the fields. */
export interface RedisAddress {
  /** One server; the master that sentinels name; or a cluster. */
  kind: 'server' | 'sentinel' | 'cluster'
  /** The server, the sentinels, or some nodes of the cluster. */
  hosts: Host[]
  /** Name of the master that the sentinels watch. */
  master: string
  username: string | undefined
  password: string | undefined
  sentinelPassword: string | undefined
  db: number
  /** TLS, with PEM texts; undefined: none. */
  tls: Pems | undefined
}

const form =
  /^redis(?<tls>s)?(?:\+(?<kind>sentinel|cluster))?:\/\/(?:(?<auth>[^/?#]*)@)?(?<hosts>[^/?#]+)(?<path>\/[^?#]*)?(?:\?(?<query>[^#]*))?$/
const bad = (why: string) =>
  new UsageError(
    'SLUICE_BAD_URL',
    `REDIS_URL must be redis://host:port/db (rediss:// with TLS), redis+sentinel://host:port,host:port/master/db or redis+cluster://host:port,host:port: ${why}`,
  )
const decodePart = (part: string) => decodedPart(part, bad)

/**
 * Reads `redis://[user:password@]host[:port][/db]`, `redis+sentinel://…host[:port],…/master[/db]` or
 * `redis+cluster://…host[:port],…`; with `rediss` over TLS, by the machine's authorities or `?ca=` (and `cert=`, `key=`: paths
 * of PEM files). `?db=`, `?username=` and `?password=` override what stands before, `?sentinelPassword=` is for the
 * sentinels; other names are ignored. Default ports: 6379, sentinels 26379. @throws UsageError SLUICE_BAD_URL
 */
export function addressOf(url: string): RedisAddress {
  const { tls, kind = 'server', auth, hosts: list = '', path = '', query } = form.exec(url.trim())?.groups ?? {}
  if (list === '') throw bad('it has another form')
  const [user, password] = (auth ?? '').split(/:(.*)/).map((part) => decodePart(part) || undefined)
  const parts = path.split('/').slice(1).map(decodePart)
  const master = kind === 'sentinel' ? (parts.shift() ?? '') : ''
  if (kind === 'sentinel' && master === '') throw bad('it names no master')
  const options = new URLSearchParams(query ?? '')
  const db = Number(options.get('db') ?? parts[0] ?? '')
  if (!Number.isInteger(db) || db < 0) throw bad('what follows the host is not the number of a database')
  if (kind === 'cluster' && db !== 0) throw bad('a cluster has only the database 0')
  return {
    kind: kind as RedisAddress['kind'],
    hosts: hostsOf(list, kind === 'sentinel' ? 26_379 : 6_379, bad),
    master,
    username: options.get('username') ?? user,
    password: options.get('password') ?? password,
    sentinelPassword: options.get('sentinelPassword') ?? undefined,
    db,
    tls: tls === undefined ? undefined : pemsOf(options, bad),
  }
}
