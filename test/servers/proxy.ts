import { createServer, connect, type AddressInfo, type Socket } from 'node:net'
import { systemClock } from '../../src/core/clock.ts'

/** Where a proxy sends its connections. */
export interface Target {
  /** Default 127.0.0.1. */
  host?: string
  port: number
}

/** Selects the lost reply. A reply is what the server sends after a request, so requests must not be pipelined. */
export interface Swallow {
  /** The request must contain this text, or satisfy this predicate over its bytes so far. Default: any request. */
  when?: string | ((request: Buffer) => boolean)
  /** The client's side afterwards: `open`, a socket on which nothing comes, or `closed`. Default `open`. */
  leave?: 'open' | 'closed'
  /** True when this end of the reply is the reply's end. Default: its first chunk ends it; for PostgreSQL `isReady`. */
  until?: (replyEnd: Buffer) => boolean
}

/** The direction of bytes. */
export type Side = 'client' | 'server'

/** A TCP proxy whose faults are switched while connections are open. */
export interface Proxy {
  port: number
  /** Connections open now. */
  readonly connections: number
  /** The same URL, through the proxy. */
  url(direct: string): string
  /** Everything works again; what `halfOpen` held back arrives, as after a healed partition. */
  pass(): Promise<void>
  /** Each chunk, in both directions, arrives this much later. 0 ends it. */
  delay(delayMs: number): void
  /** Lets one request through and drops its reply. Resolves when the server has replied, so its work is done. */
  swallow(how?: Swallow): Promise<void>
  /** Forwards nothing in either direction and closes nothing; new connections are accepted and as silent. */
  halfOpen(): void
  /** Forwards nothing more on the open connections, and closes none, like a firewall that lost its state; new ones work. */
  strand(): void
  /** Resets every open connection, at both ends. New ones work. */
  reset(): void
  /** New connections are refused; open ones stay. */
  refuse(): Promise<void>
  /** Forwards this many more bytes sent by `side`, then resets their connection. Resolves at the reset. */
  cutAfter(bytes: number, side?: Side): Promise<void>
  close(): Promise<void>
}

/** True when a PostgreSQL reply ends with ReadyForQuery: all requested work is then committed or rolled back. */
export function isReady(replyEnd: Buffer): boolean {
  return (
    replyEnd.length >= 6 &&
    replyEnd.readUInt8(replyEnd.length - 6) === 0x5a &&
    replyEnd.readInt32BE(replyEnd.length - 5) === 5
  )
}

interface Link {
  client: Socket
  server: Socket
  /** The client's bytes since the server last sent some. */
  request: Buffer
  /** The swallow that drops this link's reply, and the last bytes dropped for it. */
  caught?: Armed
  dropped: Buffer
}
type Armed = Swallow & { done: () => void }

/** The faults in force, and the connections they are in force on. */
interface State {
  links: Set<Link>
  delayMs: number
  isHeld: boolean
  armed: Armed | undefined
  cut: { left: number; side: Side; done: () => void } | undefined
}

const requestMax = 64 * 1024
const replyEndMax = 64

/** Starts a proxy on a free port of 127.0.0.1. It passes everything until a fault is switched on. */
export async function startProxy(target: Target): Promise<Proxy> {
  const state: State = { links: new Set(), delayMs: 0, isHeld: false, armed: undefined, cut: undefined }
  const listener = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const server = connect({ host: target.host ?? '127.0.0.1', port: target.port, allowHalfOpen: true, noDelay: true })
    const link: Link = { client, server, request: Buffer.alloc(0), dropped: Buffer.alloc(0) }
    state.links.add(link)
    pump(state, link, 'client')
    pump(state, link, 'server')
  })
  const listen = (at: number) =>
    new Promise<void>((resolve, reject) => listener.once('error', reject).listen(at, '127.0.0.1', resolve))
  await listen(0)
  const own = (listener.address() as AddressInfo).port
  return {
    port: own,
    get connections() {
      return state.links.size
    },
    url: (direct) => Object.assign(new URL(direct), { hostname: '127.0.0.1', port: String(own) }).href,
    async pass() {
      Object.assign(state, { delayMs: 0, armed: undefined, cut: undefined })
      hold(state, false)
      if (!listener.listening) await listen(own)
    },
    delay: (delayMs) => void (state.delayMs = delayMs),
    swallow: (how = {}) => new Promise((done) => (state.armed = { ...how, done })),
    halfOpen: () => hold(state, true),
    strand: () => state.links.forEach(pause),
    reset: () => state.links.forEach(reset),
    refuse: async () => void listener.close(),
    cutAfter: (left, side = 'server') => new Promise((done) => (state.cut = { left, side, done })),
    async close() {
      const closed = new Promise((resolve) => listener.close(resolve))
      state.links.forEach(reset)
      await closed
    },
  }
}

/** Carries the bytes that `side` of a link sends to the other side, through the faults. */
function pump(state: State, link: Link, side: Side): void {
  const from = link[side]
  const to = link[side === 'client' ? 'server' : 'client']
  if (state.isHeld) from.pause()
  const later = inOrder(() => state.delayMs)
  from.on('data', (chunk: Buffer) => {
    if (side === 'client') catchRequest(state, link, chunk)
    else if (isSwallowed(link, chunk)) return
    later(() => forward(state, link, side, chunk))
  })
  from.on('end', () => later(() => to.end()))
  from.on('error', () => to.resetAndDestroy())
  from.on('close', () => {
    if (to.destroyed) state.links.delete(link)
    else if (from.errored === null) later(() => to.end())
  })
}

/** Does this request meet the armed swallow? Then its reply falls to it. */
function catchRequest(state: State, link: Link, chunk: Buffer): void {
  link.request = Buffer.concat([link.request, chunk]).subarray(-requestMax)
  if (state.armed === undefined || link.caught) return
  const { when = () => true } = state.armed
  if (!(typeof when === 'string' ? link.request.includes(when) : when(link.request))) return
  link.caught = state.armed
  state.armed = undefined
}

function isSwallowed(link: Link, chunk: Buffer): boolean {
  link.request = Buffer.alloc(0)
  const { caught } = link
  if (caught === undefined) return false
  link.dropped = Buffer.concat([link.dropped, chunk]).subarray(-replyEndMax)
  if (caught.until && !caught.until(link.dropped)) return true
  delete link.caught
  link.dropped = Buffer.alloc(0)
  if (caught.leave === 'closed') for (const socket of [link.client, link.server]) socket.destroy()
  caught.done()
  return true
}

function forward(state: State, link: Link, side: Side, chunk: Buffer): void {
  const to = link[side === 'client' ? 'server' : 'client']
  const { cut } = state
  if (to.destroyed) return
  if (cut?.side === side && chunk.length >= cut.left) {
    state.cut = undefined
    // The last bytes leave first: a reset would discard what is not yet sent.
    to.write(chunk.subarray(0, cut.left), () => {
      reset(link)
      cut.done()
    })
    return
  }
  if (cut?.side === side) cut.left -= chunk.length
  to.write(chunk)
}

function hold(state: State, isHeld: boolean): void {
  state.isHeld = isHeld
  for (const link of state.links) {
    if (isHeld) pause(link)
    else for (const socket of [link.client, link.server]) socket.resume()
  }
}

function pause({ client, server }: Link): void {
  client.pause()
  server.pause()
}

function reset({ client, server }: Link): void {
  client.resetAndDestroy()
  server.resetAndDestroy()
}

/** Runs actions in the order they came, each no sooner than the delay in force when it came. */
function inOrder(delayMs: () => number): (action: () => void) => void {
  const waiting: { action: () => void; dueMs: number }[] = []
  let isArmed = false
  const drain = (): void => {
    isArmed = false
    const nowMs = systemClock.monotonicMs()
    while (waiting[0] && waiting[0].dueMs <= nowMs) waiting.shift()?.action()
    if (!waiting[0]) return
    isArmed = true
    setTimeout(drain, Math.ceil(waiting[0].dueMs - nowMs))
  }
  return (action) => {
    waiting.push({ action, dueMs: systemClock.monotonicMs() + delayMs() })
    if (!isArmed) drain()
  }
}
