/**
 * Serves PostgreSQL's wire protocol for the embedded engine, to sockets and to this process: one code path for all
 * clients.
 */
import { once } from 'node:events'
import { Duplex } from 'node:stream'
import type { Socket } from 'node:net'
import type { Clock } from '../core/clock.ts'
import type { Engine } from './engine.ts'
import { frame, frames, query, text } from './frame.ts'
import { Session } from './session.ts'
import type { Hub } from './session.ts'

/** A client that has not read this many bytes when there is more for it is disconnected. One reply may have any size. */
const maxUnreadBytes = 64 * 1024 * 1024

export interface WireOptions {
  clock: Clock
  /**
   * A socket client that sends nothing for this many ms with a transaction open is rolled back and disconnected. 1 or
   * more, default 10,000.
   */
  idleMs?: number
}

/** Serves any number of clients on one engine, one transaction at a time. */
export class Wire {
  readonly #hub: Hub
  readonly #idleMs: number
  readonly #sockets = new Map<Socket, Session>()
  #closed = false

  private constructor(hub: Hub, idleMs: number) {
    this.#hub = hub
    this.#idleMs = idleMs
  }

  /** Starts serving. Call it before anything else uses the engine. */
  static async start(engine: Engine, options: WireOptions): Promise<Wire> {
    const hub = {
      engine,
      clock: options.clock,
      sessions: new Set<Session>(),
      prepared: new Map(),
      greeting: await greet(engine),
      relisten: false,
    }
    return new Wire(hub, options.idleMs ?? 10_000)
  }

  /** Serves a client on `socket` until either side closes it. */
  serve(socket: Socket): void {
    // A client's connection error needs no handling here; 'close' follows.
    socket.on('error', () => {})
    if (this.#closed) return void socket.destroy()
    const send = (bytes: Buffer) => {
      if (socket.writableLength > maxUnreadBytes) socket.destroy()
      else if (socket.writable) socket.write(bytes)
    }
    const session = new Session(this.#hub, { send, hangUp: () => socket.end(() => socket.destroy()) }, this.#idleMs)
    this.#sockets.set(socket, session)
    socket.on('data', (chunk: Buffer) => {
      // Nothing more is read until this is processed and the client has read the reply.
      socket.pause()
      void session.receive(chunk).then(async () => {
        // A socket that is closed never drains; then nobody waits for this.
        if (socket.writableNeedDrain) await once(socket, 'drain').catch(() => {})
        socket.resume()
      })
    })
    socket.on('close', () => {
      this.#sockets.delete(socket)
      void session.end()
    })
    socket.resume()
  }

  /** Returns a stream to the engine for a client in this process: node-postgres takes it as `stream`. */
  line(): Duplex {
    return new Line(this.#hub)
  }

  /** Rejects new clients, and rolls back and disconnects those on sockets. Clients in this process are not affected. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(
      [...this.#sockets.values()].map((session) =>
        session.fail('57P01', 'the owner of the embedded engine is closing'),
      ),
    )
    for (const socket of this.#sockets.keys()) socket.destroy()
  }
}

/** A stream that resembles net.Socket enough for node-postgres. */
class Line extends Duplex {
  readonly #session: Session

  constructor(hub: Hub) {
    super({ allowHalfOpen: false })
    this.#session = new Session(
      hub,
      { send: (bytes) => void this.push(bytes), hangUp: () => void this.push(null) },
      undefined,
    )
  }

  connect(): this {
    setImmediate(() => this.emit('connect'))
    return this
  }

  setNoDelay(): this {
    return this
  }

  setKeepAlive(): this {
    return this
  }

  ref(): this {
    return this
  }

  unref(): this {
    return this
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    void this.#session.receive(chunk).then(done)
  }

  override _writev(chunks: { chunk: Buffer }[], done: () => void): void {
    void this.#session.receive(Buffer.concat(chunks.map((each) => each.chunk))).then(done)
  }

  override _final(done: () => void): void {
    void this.#session.end().then(() => {
      this.push(null)
      done()
    })
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    void this.#session.end().then(() => done(error))
  }
}

async function greet(engine: Engine): Promise<Buffer> {
  const names = [
    'server_version',
    'server_encoding',
    'client_encoding',
    'DateStyle',
    'IntervalStyle',
    'TimeZone',
    'integer_datetimes',
    'standard_conforming_strings',
  ]
  const answer = await engine.exec(query(names.map((name) => `show ${name}`).join(';')))
  const values = [...frames(answer)].filter((each) => each.type === 'D').map((each) => each.body.toString('utf8', 6))
  const parameters = names.map((name, i) => frame('S', text(name), text(values[i] ?? '')))
  return Buffer.concat([
    frame('R', Buffer.alloc(4)),
    ...parameters,
    frame('K', Buffer.alloc(8)),
    frame('Z', Buffer.from('I')),
  ])
}
