/** Reads the URL of a RabbitMQ. */
import { UsageError } from '../core/errors.ts'
import { decodedPart, type Host, hostsOf, type Pems, pemsOf } from '../core/server-url.ts'

/** The address of a connection; see the fields. */
export interface BrokerAddress {
  /** The servers of one cluster, tried in turn. */
  hosts: Host[]
  username: string
  password: string
  /** The virtual host. */
  vhost: string
  /** Interval in s at which both sides send a sign of life; a side that is silent for two of them is given up. */
  heartbeatS: number
  /** TLS, with PEM texts; undefined: none. */
  tls: Pems | undefined
}

const form =
  /^(?:py)?amqp(?<tls>s)?:\/\/(?:(?<auth>[^/?#]*)@)?(?<hosts>[^/?#]+)(?:\/(?<vhost>\/?[^?#/]*))?(?:\?(?<query>[^#]*))?$/
/** A half-open connection is then noticed within 9 s, by either side. */
const usualHeartbeatS = 3
const badUrl = (why: string) =>
  new UsageError('SLUICE_BAD_URL', `AMQP_URL must be amqp://user:password@host:port/vhost (amqps:// with TLS): ${why}`)
const decodePart = (part: string) => decodedPart(part, badUrl)

/**
 * Reads `amqp://[user[:password]@]host[:port][,host…][/vhost]`; with `amqps` over TLS, by the machine's authorities or `?ca=`
 * (and `cert=`, `key=`: paths of PEM files). `?heartbeat=` is in seconds, default 3, at most 60; other names are ignored.
 * Defaults: guest, guest, ports 5672 and 5671, the virtual host `/`. As Celery does, `pyamqp` may be written, and `//` for that virtual
 * host. @throws UsageError SLUICE_BAD_URL
 */
export function addressOf(url: string): BrokerAddress {
  const { tls, auth, hosts = '', vhost = '', query } = form.exec(url.trim())?.groups ?? {}
  if (/^rediss?[+:]/.test(url.trim()))
    throw badUrl(
      'this is a Redis. Messages of Celery producers are read from one that CELERY_BROKER_URL names; remote tasks and fleets need a RabbitMQ',
    )
  if (hosts === '') throw badUrl('it has another form')
  const [username, password] = auth?.split(/:(.*)/).map(decodePart) ?? []
  const options = new URLSearchParams(query ?? '')
  const heartbeatS = Number(options.get('heartbeat') ?? usualHeartbeatS)
  if (!Number.isInteger(heartbeatS) || heartbeatS < 1 || heartbeatS > 60)
    throw badUrl('its heartbeat is not a number of seconds from 1 to 60')
  return {
    hosts: hostsOf(hosts, tls === undefined ? 5_672 : 5_671, badUrl),
    username: username || 'guest',
    password: password ?? 'guest',
    vhost: decodePart(vhost) || '/',
    heartbeatS,
    tls: tls === undefined ? undefined : pemsOf(options, badUrl),
  }
}
