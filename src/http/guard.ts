/** Decides which addresses a request may go to: public ones, and those that the code allows. */
import type { LookupAddress } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import ipaddr from 'ipaddr.js'
import { AttemptError, UsageError } from '../core/errors.ts'

type Address = ipaddr.IPv4 | ipaddr.IPv6

interface Entry {
  /** Written as in a URL: lower case, Punycode, no trailing dot. */
  readonly name?: string
  readonly range?: [Address, number]
  readonly port?: number
}

const nat64 = ipaddr.IPv6.parse('64:ff9b::')
const globalUnicast = ipaddr.IPv6.parse('2000::')
/** A public address, but inside Azure it is the machine's own host. */
const wireServer = '168.63.129.16'
/** Ports of other protocols, which `fetch` rejects by the standard; `allow` cannot open them. */
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

/** The code of the error when a request was not sent because its address is forbidden. */
export const blockedCode = 'SLUICE_BLOCKED_ADDRESS'

/**
 * Lets requests pass to public addresses, ports 80, 443 and from 1024 on. Everything else (loopback, private, link-local
 * with the clouds' metadata, carrier-grade NAT, unique local, multicast, reserved; IPv4 also where it is mapped or behind
 * NAT64) passes only when `allow` lists it: an address (`10.0.0.5`), a range (`10.0.0.0/8`), or a host's name, whatever
 * it resolves to. A port may follow an address or a name (`internal.example:8080`, `[::1]:8080`); without a port, the
 * ports above are allowed.
 */
export class Guard {
  readonly #allow: readonly Entry[]

  /** @throws UsageError SLUICE_BAD_OPTION for an entry of any other form */
  constructor(allow: readonly string[] = []) {
    this.#allow = allow.map((text) => parseEntry(text.trim()))
  }

  /**
   * Returns why nothing may be sent there, judged by the URL alone (scheme, port, a literal address), or undefined.
   * Final.
   */
  check(url: URL): AttemptError | undefined {
    if (url.protocol !== 'http:' && url.protocol !== 'https:')
      return refusalError(`a ${url.protocol} URL was not called: only http: and https: are`)
    const port = portOf(url)
    if (badPorts.has(port))
      return refusalError(`nothing was sent to ${url.origin}: port ${port} belongs to another protocol`)
    const isNamed = this.#allow.some((entry) => entry.port === port && matchesHost(entry, url))
    if (port < 1024 && port !== 80 && port !== 443 && !isNamed)
      return blockedError(url, `port ${port} is not one of 80, 443 and 1024 to 65535`)
    const literal = url.hostname.replace(/^\[(.*)\]$/, '$1')
    if (isIP(literal) === 0 || this.#allows(literal, port)) return undefined
    return blockedError(url, `it is not a public address but ${kindOf(parse(literal))}`)
  }

  /**
   * Returns the look-up for connections to one origin: as by `resolve`, but it fails when any of the addresses is
   * forbidden. The socket connects to the checked address; no name is looked up twice.
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
          return done(blockedError(url, why), '')
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

/**
 * Parses an address. Returns the IPv4 address that is reached if it is mapped (`::ffff:`) or behind NAT64
 * (`64:ff9b::/96`).
 */
function parse(text: string): Address | undefined {
  if (isIP(text) === 0 || !ipaddr.isValid(text)) return undefined
  const address = ipaddr.process(text)
  if (address.kind() === 'ipv4' || !address.match(nat64, 96)) return address
  return new ipaddr.IPv4(address.toByteArray().slice(12))
}

/** Returns the kind of an address; undefined for a public one. */
function kindOf(address: Address | undefined): string | undefined {
  if (address === undefined) return 'no address'
  const range: string = address.range()
  const isPublic = range === 'unicast' && (address.kind() === 'ipv4' || address.match(globalUnicast, 3))
  if (!isPublic) return kinds[range] ?? (range === 'unicast' ? 'reserved' : range)
  return address.toString() === wireServer ? 'a platform service' : undefined
}

function blockedError(url: URL, why: string): AttemptError {
  return refusalError(
    `nothing was sent to ${url.origin}: ${why}. To allow it, set \`allowPrivate: ['${url.host}']\` on the task (for a take: of \`Sluice.open\`), or SLUICE_ALLOW_PRIVATE for a whole process`,
  )
}

function refusalError(text: string): AttemptError {
  return new AttemptError(blockedCode, text, { retryable: false })
}

function parseEntry(text: string): Entry {
  const entry = rangeOf(text) ?? hostOf(text)
  if (entry !== undefined) return entry
  throw new UsageError(
    'SLUICE_BAD_OPTION',
    `allowPrivate: "${text}" is not an address (10.0.0.5), a range (10.0.0.0/8), a host name, or an address or name with a port (internal.example:8080, [::1]:8080)`,
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
  // Read as in a URL: `2130706433` is an address, and `Bücher.example` has another spelling.
  const name = new URL(`http://${host}/`).hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '')
  const port = digits === undefined ? {} : { port: Number(digits) }
  if (isIP(name) !== 0) return { range: wholeOf(name), ...port }
  return /^[a-z0-9_.-]+$/.test(name) ? { name, ...port } : undefined
}

function wholeOf(text: string): [Address, number] {
  const address = parse(text) as Address
  return [address, address.kind() === 'ipv4' ? 32 : 128]
}
