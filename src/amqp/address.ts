/** Where a RabbitMQ is: what its URL means. */
import { readFileSync } from 'node:fs'
import { UsageError } from '../core/errors.ts'

/** What a connection needs to know; see the fields. */
export interface BrokerAddress {
  /** The servers of one cluster, tried in turn. */
  hosts: { host: string; port: number }[]
  username: string
  password: string
  /** The virtual host. */
  vhost: string
  /** Interval in s at which both sides send a sign of life; a side that is silent for two of them is given up. */
  heartbeatS: number
  /** TLS, with PEM texts; undefined: none. */
  tls: { ca?: string; cert?: string; key?: string } | undefined
}

const form =
  /^amqp(?<tls>s)?:\/\/(?:(?<auth>[^/?#]*)@)?(?<hosts>[^/?#]+)(?:\/(?<vhost>[^?#/]*))?(?:\?(?<query>[^#]*))?$/
const files = ['ca', 'cert', 'key'] as const
/** A half-open connection is then noticed within 9 s, by either side. */
const usualHeartbeatS = 3
const bad = (why: string) =>
  new UsageError('SLUICE_BAD_URL', `AMQP_URL must be amqp://user:password@host:port/vhost (amqps:// with TLS): ${why}`)

/**
 * Reads `amqp://[user[:password]@]host[:port][,host…][/vhost]`; with `amqps` over TLS, by the machine's authorities or `?ca=`
 * (and `cert=`, `key=`: paths of PEM files). `?heartbeat=` is in seconds, default 3, at most 60; other names are ignored.
 * Defaults: guest, guest, ports 5672 and 5671, the virtual host `/`. @throws UsageError SLUICE_BAD_URL
 */
export function addressOf(url: string): BrokerAddress {
  const { tls, auth, hosts = '', vhost = '', query } = form.exec(url.trim())?.groups ?? {}
  if (hosts === '') throw bad('it has another form')
  const [username, password] = auth === undefined ? ['guest', 'guest'] : auth.split(/:(.*)/).map(decoded)
  const options = new URLSearchParams(query ?? '')
  const heartbeatS = Number(options.get('heartbeat') ?? usualHeartbeatS)
  if (!Number.isInteger(heartbeatS) || heartbeatS < 1 || heartbeatS > 60)
    throw bad('its heartbeat is not a number of seconds from 1 to 60')
  return {
    hosts: hosts.split(',').map((one) => hostOf(one, tls === undefined ? 5_672 : 5_671)),
    username: username ?? '',
    password: password ?? '',
    vhost: decoded(vhost) || '/',
    heartbeatS,
    tls: tls === undefined ? undefined : pemsOf(options),
  }
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    throw bad('its user, password or virtual host is not encoded as URLs are')
  }
}

function hostOf(text: string, usual: number): { host: string; port: number } {
  const [, host = '', port] = /^(\[[^\]]+\]|[^:]*)(?::(\d{1,5}))?$/.exec(text) ?? []
  if (host === '') throw bad('a host in it is empty, or its port is no number')
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port ?? usual) }
}

function pemsOf(options: URLSearchParams): NonNullable<BrokerAddress['tls']> {
  const pems: NonNullable<BrokerAddress['tls']> = {}
  for (const name of files) {
    const path = options.get(name)
    if (path === null) continue
    try {
      pems[name] = readFileSync(path, 'utf8')
    } catch (error) {
      throw bad(`the file of its ${name} cannot be read: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return pems
}
