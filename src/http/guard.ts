/** Which addresses a request may go to: public ones, and those that the code has named. */
import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import ipaddr from 'ipaddr.js'
import { AttemptError, UsageError } from '../core/errors.ts'

type Address = ipaddr.IPv4 | ipaddr.IPv6

interface Entry {
  /** As a URL has it: lower case, Punycode, no dot at its end. */
  readonly name?: string
  readonly range?: [Address, number]
  readonly port?: number
}

const nat64 = ipaddr.IPv6.parse('64:ff9b::')
const globalUnicast = ipaddr.IPv6.parse('2000::')
/** Public by its number, but inside Azure it is the machine's own host. */
const wireServer = '168.63.129.16'
/** Ports of other protocols, which `fetch` refuses by the standard: nothing can allow them. */
const badPorts: ReadonlySet<number> = new Set([
  1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
  111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
  540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
  6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
])
const kinds: Readonly<Record<string, string>> = {
  linkLocal: 'link-local',
  carrierGradeNat: 'carrier-grade NAT',
  uniqueLocal: 'unique local',
}

/** The code of the error of a request that was not sent because of where it would have gone. */
export const blockedCode = 'SLUICE_BLOCKED_ADDRESS'

/**
 * Lets requests pass to public addresses, ports 80, 443 and from 1024 on. Everything else (loopback, private, link-local
 * with the clouds' metadata, carrier-grade NAT, unique local, multicast, reserved; IPv4 also where it is mapped or behind
 * NAT64) only when `allow` names it: an address (`10.0.0.5`), a range (`10.0.0.0/8`), or a host's name, whatever it
 * resolves to; a port may follow an address or a name (`internal.example:8080`, `[::1]:8080`), without one it is any of
 * those.
 */
export class Guard {
  readonly #allow: readonly Entry[]

  /** @throws UsageError SLUICE_BAD_OPTION for an entry that is none of these */
  constructor(allow: readonly string[] = []) {
    this.#allow = allow.map((text) => parseEntry(text.trim()))
  }

  /** Why nothing may be sent there, as far as the URL itself tells: scheme, port, a literal address. Final. */
  check(url: URL): AttemptError | undefined {
    if (url.protocol !== 'http:' && url.protocol !== 'https:')
      return refusal(`a ${url.protocol} URL was not called: only http: and https: are`)
    const port = portOf(url)
    if (badPorts.has(port))
      return refusal(`nothing was sent to ${url.origin}: port ${port} belongs to another protocol`)
    const isNamed = this.#allow.some((entry) => entry.port === port && matchesHost(entry, url))
    if (port < 1024 && port !== 80 && port !== 443 && !isNamed)
      return blocked(url, `port ${port} is not one of 80, 443 and 1024 to 65535`)
    const literal = url.hostname.replace(/^\[(.*)\]$/, '$1')
    if (isIP(literal) === 0 || this.#allows(literal, port)) return undefined
    return blocked(url, `it is not a public address but ${kindOf(parse(literal))}`)
  }

  /**
   * How the names of one origin are looked up for connecting: as by `resolve`, but refused when any of the addresses may
   * not be called. The socket connects to what was checked; nothing is looked up twice.
   */
  lookup(url: URL, resolve: LookupFunction): LookupFunction {
    const port = portOf(url)
    if (this.#allow.some((entry) => entry.name !== undefined && matches(entry, port) && matchesHost(entry, url)))
      return resolve
    return (hostname, options, done) =>
      resolve(hostname, { ...options, all: true }, (error, found) => {
        if (error !== null) return done(error, '')
        const addresses = found as LookupAddress[]
        const odd = addresses.find(({ address }) => !this.#allows(address, port))
        if (odd !== undefined) {
          const why = `its name leads to ${odd.address}, which is not public but ${kindOf(parse(odd.address))}`
          return done(blocked(url, why), '')
        }
        if (options.all === true) return done(null, addresses)
        return done(null, addresses[0]?.address ?? '', addresses[0]?.family)
      })
  }

  #allows(text: string, port: number): boolean {
    const address = parse(text)
    if (address === undefined) return false
    return kindOf(address) === undefined || this.#allow.some((entry) => matches(entry, port) && isIn(address, entry))
  }
}

function portOf(url: URL): number {
  return url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port)
}

function matches(entry: Entry, port: number): boolean {
  return entry.port === undefined || entry.port === port
}

function matchesHost(entry: Entry, { hostname }: URL): boolean {
  if (entry.name !== undefined) return hostname.replace(/\.$/, '') === entry.name
  const address = parse(hostname.replace(/^\[(.*)\]$/, '$1'))
  return address !== undefined && isIn(address, entry)
}

function isIn(address: Address, { range }: Entry): boolean {
  return range !== undefined && range[0].kind() === address.kind() && address.match(range)
}

/** An address; the IPv4 one where that is what will be reached: mapped (`::ffff:`), and behind NAT64 (`64:ff9b::/96`). */
function parse(text: string): Address | undefined {
  if (isIP(text) === 0 || !ipaddr.isValid(text)) return undefined
  const address = ipaddr.process(text)
  if (address.kind() === 'ipv4' || !address.match(nat64, 96)) return address
  return new ipaddr.IPv4(address.toByteArray().slice(12))
}

/** What kind of address it is; undefined: a public one. */
function kindOf(address: Address | undefined): string | undefined {
  if (address === undefined) return 'no address'
  const range: string = address.range()
  const isPublic = range === 'unicast' && (address.kind() === 'ipv4' || address.match(globalUnicast, 3))
  if (!isPublic) return kinds[range] ?? (range === 'unicast' ? 'reserved' : range)
  return address.toString() === wireServer ? 'a platform service' : undefined
}

function blocked(url: URL, why: string): AttemptError {
  return refusal(
    `nothing was sent to ${url.origin}: ${why}. If it may be called, let the task say so, \`allowPrivate: ['${url.host}']\`, or all tasks of a process by SLUICE_ALLOW_PRIVATE`,
  )
}

function refusal(text: string): AttemptError {
  return new AttemptError(blockedCode, text, { retryable: false })
}

function parseEntry(text: string): Entry {
  const entry = rangeOf(text) ?? hostOf(text)
  if (entry !== undefined) return entry
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    `allowPrivate: "${text}" is none of an address (10.0.0.5), a range (10.0.0.0/8), a host name, or an address or name with a port (internal.example:8080, [::1]:8080)`,
  )
}

function rangeOf(text: string): Entry | undefined {
  const [address = '', bits, ...rest] = text.split('/')
  if (isIP(address) === 0 || !ipaddr.isValid(address) || rest.length > 0) return undefined
  const most = isIP(address) === 4 ? 32 : 128
  if (bits === undefined) return { range: wholeOf(address) }
  if (!/^\d{1,3}$/.test(bits) || Number(bits) > most) return undefined
  return { range: [ipaddr.parse(address), Number(bits)] }
}

function hostOf(text: string): Entry | undefined {
  const [, host = '', digits] = /^(\[[0-9a-f:.]+\]|[^\s:/?#@[\]\\]+)(?::(\d{1,5}))?$/i.exec(text) ?? []
  if (host === '' || Number(digits ?? 1) < 1 || Number(digits ?? 1) > 65_535) return undefined
  if (!URL.canParse(`http://${host}/`)) return undefined
  // As a URL would read it: `2130706433` is an address, and `Bücher.example` has another spelling.
  const name = new URL(`http://${host}/`).hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
  const port = digits === undefined ? {} : { port: Number(digits) }
  if (isIP(name) !== 0) return { range: wholeOf(name), ...port }
  return /^[a-z0-9_.-]+$/.test(name) ? { name, ...port } : undefined
}

function wholeOf(text: string): [Address, number] {
  const address = parse(text) as Address
  return [address, address.kind() === 'ipv4' ? 32 : 128]
}
