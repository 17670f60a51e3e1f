/** Where a Redis is: what the URL of one server, of sentinels or of a cluster means. */
import { readFileSync } from 'node:fs'
import { UsageError } from '../core/errors.ts'

/** What a connection needs to know; see the fields. */
export interface RedisAddress {
  /** One server; the master that sentinels name; or a cluster. */
  kind: 'server' | 'sentinel' | 'cluster'
  /** The server, the sentinels, or some nodes of the cluster. */
  hosts: { host: string; port: number }[]
  /** Name of the master that the sentinels watch. */
  master: string
  username: string | undefined
  password: string | undefined
  sentinelPassword: string | undefined
  db: number
  /** TLS, with PEM texts; undefined: none. */
  tls: { ca?: string; cert?: string; key?: string } | undefined
}

const form =
  /^redis(?<tls>s)?(?:\+(?<kind>sentinel|cluster))?:\/\/(?:(?<auth>[^/?#]*)@)?(?<hosts>[^/?#]+)(?<path>\/[^?#]*)?(?:\?(?<query>[^#]*))?$/
const files = ['ca', 'cert', 'key'] as const
const bad = (why: string) =>
  new UsageError(
    'SLUICE_BAD_URL',
    `REDIS_URL must be redis://host:port/db (rediss:// with TLS), redis+sentinel://host:port,host:port/master/db or redis+cluster://host:port,host:port: ${why}`,
  )

/**
 * Reads `redis://[user:password@]host[:port][/db]`, `redis+sentinel://…host[:port],…/master[/db]` or
 * `redis+cluster://…host[:port],…`; with `rediss` over TLS, by the machine's authorities or `?ca=` (and `cert=`, `key=`: paths
 * of PEM files). `?db=`, `?username=` and `?password=` override what stands before, `?sentinelPassword=` is for the
 * sentinels; other names are ignored. Default ports: 6379, sentinels 26379. @throws UsageError SLUICE_BAD_URL
 */
export function addressOf(url: string): RedisAddress {
  const { tls, kind = 'server', auth, hosts: list = '', path = '', query } = form.exec(url.trim())?.groups ?? {}
  if (list === '') throw bad('it has another form')
  const [user, password] = (auth ?? '').split(/:(.*)/).map((part) => decoded(part) || undefined)
  const parts = path.split('/').slice(1).map(decoded)
  const master = kind === 'sentinel' ? (parts.shift() ?? '') : ''
  if (kind === 'sentinel' && master === '') throw bad('it names no master')
  const options = new URLSearchParams(query ?? '')
  const db = Number(options.get('db') ?? parts[0] ?? '')
  if (!Number.isInteger(db) || db < 0) throw bad('what follows the host is not the number of a database')
  if (kind === 'cluster' && db !== 0) throw bad('a cluster has only the database 0')
  return {
    kind: kind as RedisAddress['kind'],
    hosts: list.split(',').map((one) => hostOf(one, kind === 'sentinel' ? 26_379 : 6_379)),
    master,
    username: options.get('username') ?? user,
    password: options.get('password') ?? password,
    sentinelPassword: options.get('sentinelPassword') ?? undefined,
    db,
    tls: tls === undefined ? undefined : pemsOf(options),
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw bad('its user, password or path is not encoded as URLs are')
  }
}

function hostOf(text: string, usual: number): { host: string; port: number } {
  const [, host = '', port] = /^(\[[^\]]+\]|[^:]*)(?::(\d{1,5}))?$/.exec(text) ?? []
  if (host === '') throw bad('a host in it is empty, or its port is no number')
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port ?? usual) }
}

function pemsOf(options: URLSearchParams): NonNullable<RedisAddress['tls']> {
  const pems: NonNullable<RedisAddress['tls']> = {}
  for (const name of files) {
    const path = options.get(name)
    if (path === null) continue
    try {
      pems[name] = readFileSync(path, 'utf8')
    } catch (error) {
      throw bad(`its ${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return pems
}
