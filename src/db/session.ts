/**
 * One client's session on the single backend: it keeps the turn while its transaction is open, and keeps its prepared
 * statements and channels separate from those of other clients. Session settings (SET) and session-level advisory locks
 * belong to the backend and so are shared by all clients; use SET LOCAL and transaction-level locks.
 */
import type { Clock } from '../core/clock.ts'
import { span } from '../core/figures.ts'
import type { Engine } from './engine.ts'
import { Cutter, errorFrame, frame, frames, maxFrameBytes, query, readText, text } from './frame.ts'
import type { Frame } from './frame.ts'
import { textOfError } from '../core/errors.ts'

/** The parts that all sessions of one engine share. */
export interface Hub {
  readonly engine: Engine
  readonly clock: Clock
  readonly sessions: Set<Session>
  /** Statements that exist in the backend, and the sessions that prepared them. '' is the unnamed one. */
  readonly prepared: Map<string, Session>
  /** The first reply to a new client: authenticated, parameters, ready. */
  readonly greeting: Buffer
  /** True if the backend may have dropped channels that sessions still listen to. */
  relisten: boolean
}

/** The client's end of the connection. */
export interface Peer {
  send(bytes: Buffer): void
  hangUp(): void
}

interface Statement {
  name: string
  server: string
  frame: Buffer
  listens: string | undefined
  previous: Statement | undefined
}

const sync = frame('S')
const flush = frame('H')
const copyFail = frame('f', text('COPY FROM STDIN is not supported by the embedded engine'))
const listens = /\b(listen|unlisten)\s+("(?:[^"]|"")+"|[\w$]+|\*)/gi
let sessionCount = 0

export class Session {
  readonly channels = new Set<string>()
  readonly #id = ++sessionCount
  readonly #hub: Hub
  readonly #peer: Peer
  readonly #idleMs: number | undefined
  readonly #cutter = new Cutter()
  readonly #statements = new Map<string, Statement>()
  readonly #names = new Set<string>()
  #work: Promise<void> = Promise.resolve()
  /** The unit that the backend runs. */
  #unit: Promise<unknown> | undefined
  #started = false
  #ended = false
  #pass: (() => void) | undefined
  /**
   * The backend's state after the last unit: I idle, T in a transaction, E in a failed one, H busy: flushed or failed,
   * not yet synced.
   */
  #state = 'I'
  #idle: AbortController | undefined
  #mayCopy = false
  #count = 0
  /** The unit being collected: frames up to the next sync, flush or simple query. */
  #batch: Buffer[] = []
  #batchBytes = 0
  #parses: { statement: Statement; replay: boolean }[] = []
  #closes: string[] = []
  #texts: string[] = []

  /** `idleMs`: a client that sends nothing for this many ms with a transaction open is disconnected; undefined: never. */
  constructor(hub: Hub, peer: Peer, idleMs: number | undefined) {
    this.#hub = hub
    this.#peer = peer
    this.#idleMs = idleMs
    hub.sessions.add(this)
  }

  /** Processes bytes from the client; resolves when all complete frames in them are answered. Never rejects. */
  receive(chunk: Buffer): Promise<void> {
    this.#work = this.#work.then(() => this.#receive(chunk))
    return this.#work
  }

  /** Ends the session: rolls back what the client left open. Resolves when nothing of it remains. */
  end(): Promise<void> {
    if (this.#ended) return this.#work
    this.#ended = true
    this.#idle?.abort()
    this.#hub.sessions.delete(this)
    this.#work = this.#work.then(() => this.#cleanUp())
    return this.#work
  }

  /** Ends the session with an error. What was begun is answered before it, so a unit that gets the error instead was not run. */
  async fail(code: string, message: string): Promise<void> {
    if (this.#ended) {
      this.#peer.hangUp()
      return this.#work
    }
    const ending = this.end()
    await this.#unit?.catch(() => {})
    this.#peer.send(errorFrame('FATAL', code, message))
    this.#peer.hangUp()
    return ending
  }

  /** Forwards a notification if the client listens to its channel. */
  notify(channel: string, notification: Buffer): void {
    if (this.channels.has(channel)) this.#peer.send(notification)
  }

  async #receive(chunk: Buffer): Promise<void> {
    this.#idle?.abort()
    this.#cutter.push(chunk)
    try {
      while (!this.#ended) {
        const next = this.#started ? this.#cutter.next() : this.#cutter.nextStartup()
        if (next === undefined) break
        if (this.#started) await this.#take(next)
        else this.#start(next.body)
      }
    } catch (error) {
      // It is not awaited, because the end waits for this very call. The backend may have run what it did not answer.
      const code = error instanceof RangeError ? '08P01' : '57P02'
      void this.fail(code, textOfError(error))
    }
    if (this.#pass !== undefined && !this.#ended) this.#watchIdle()
  }

  #start(body: Buffer): void {
    const code = body.length < 4 ? 0 : body.readUInt32BE(0)
    // Requests for TLS and GSS encryption; the connection is local.
    if (code === 80877103 || code === 80877104) return this.#peer.send(Buffer.from('N'))
    // A cancel request: the backend is a single thread and cannot receive it.
    if (code === 80877102) {
      this.#peer.hangUp()
      return void this.end()
    }
    if (code >>> 16 !== 3) throw new RangeError('this server speaks version 3 of the protocol')
    if ((code & 0xffff) !== 0) this.#peer.send(frame('v', Buffer.from([0, 0, 0, 0, 0, 0, 0, 0])))
    this.#started = true
    this.#peer.send(this.#hub.greeting)
  }

  async #take({ type, raw, body }: Frame): Promise<void> {
    switch (type) {
      case 'P':
        return this.#addParse(body)
      case 'B': {
        const [, at] = readText(body, 0)
        const [name, rest] = readText(body, at)
        const server = this.#resolve(name)
        return this.#add(frame('B', body.subarray(0, at), text(server), body.subarray(rest)))
      }
      case 'D':
      case 'C':
        return this.#addNamed(type, body)
      case 'E':
        // PostgreSQL would end the backend for a longer one.
        if (body.length > 2_000) throw new RangeError('a portal name is too long')
        this.#add(raw)
        return this.#guardCopy()
      case 'S':
      case 'H':
        this.#add(type === 'S' ? sync : flush)
        return this.#run()
      case 'Q':
        this.#read(body.toString('utf8', 0, Math.max(0, body.length - 1)))
        this.#add(raw)
        this.#guardCopy()
        this.#hub.prepared.delete('')
        return this.#run()
      case 'X':
        this.#peer.hangUp()
        return void this.end()
      case 'd':
      case 'c':
      case 'f':
        // Frames that a client still sends after its COPY was rejected.
        return
      default:
        // PostgreSQL ends the backend for an unknown letter; here that would end all clients.
        throw new RangeError(`frames of type ${JSON.stringify(type)} are not supported`)
    }
  }

  #add(bytes: Buffer): void {
    this.#batchBytes += bytes.length
    if (this.#batchBytes > 2 * maxFrameBytes) throw new RangeError('too much was sent without a sync')
    this.#batch.push(bytes)
  }

  /** While PostgreSQL reads COPY data that never comes, it ends the backend; so a CopyFail frame always follows. */
  #guardCopy(): void {
    if (this.#mayCopy) this.#add(copyFail)
  }

  #read(sql: string): string | undefined {
    if (/copy/i.test(sql)) this.#mayCopy = true
    if (!/listen/i.test(sql)) return undefined
    this.#texts.push(sql)
    return sql
  }

  #addParse(body: Buffer): void {
    const [name, at] = readText(body, 0)
    const [sql] = readText(body, at)
    const previous = name === '' ? undefined : this.#statements.get(name)
    const again = previous !== undefined && this.#hub.prepared.has(previous.server)
    const server = name === '' ? '' : again ? previous.server : `s${this.#id}_${++this.#count}`
    const statement = {
      name,
      server,
      frame: frame('P', text(server), body.subarray(at)),
      listens: this.#read(sql),
      previous,
    }
    this.#statements.set(name, statement)
    if (name !== '') this.#names.add(server)
    this.#parses.push({ statement, replay: false })
    this.#add(statement.frame)
  }

  #addNamed(type: 'D' | 'C', body: Buffer): void {
    const kind = body.subarray(0, 1)
    const [name] = readText(body, 1)
    if (kind.toString() !== 'S') return this.#add(frame(type, kind, text(name.slice(0, 1_000))))
    if (type === 'D') return this.#add(frame('D', kind, text(this.#resolve(name))))
    const server = this.#statements.get(name)?.server ?? 'none'
    this.#statements.delete(name)
    this.#hub.prepared.delete(server)
    this.#closes.push(server)
    this.#add(frame('C', kind, text(server)))
  }

  /**
   * Returns the backend's name of a client's statement; prepares it again, unseen by the client, if others have displaced
   * it.
   */
  #resolve(name: string): string {
    const statement = this.#statements.get(name)
    if (statement === undefined) return 'none'
    const waiting = this.#parses.some((each) => each.statement === statement)
    if (!waiting && this.#hub.prepared.get(statement.server) !== this) {
      this.#parses.push({ statement, replay: true })
      this.#add(statement.frame)
    }
    if (statement.listens !== undefined) this.#texts.push(statement.listens)
    return statement.server
  }

  async #run(): Promise<void> {
    this.#pass ??= await this.#hub.engine.waitForTurn()
    const input = this.#batch.length === 1 ? this.#batch[0]! : Buffer.concat(this.#batch)
    this.#batch = []
    this.#batchBytes = 0
    if (this.#ended) return this.#release()
    // Stays so until the backend is ready again: after an error it ignores even simple queries up to the next sync.
    if (this.#state === 'I') this.#state = 'H'
    const unit = this.#hub.engine.exec(input).then((answer) => this.#peer.send(this.#readReply(answer)))
    this.#unit = unit
    try {
      await unit
    } catch (error) {
      this.#release()
      throw error
    } finally {
      this.#unit = undefined
    }
    if (this.#state === 'I') await this.#finish()
    // Without this, clients in this process that send statements without pause would keep sockets and timers from being
    // served.
    await new Promise<void>((resolve) => setImmediate(resolve))
  }

  /** Updates the session's state from the backend's reply, and removes frames that are not for this client. */
  #readReply(answer: Buffer): Buffer {
    const cuts = new Set<number>()
    let failed = false
    for (const each of frames(answer)) {
      if (each.type === 'E') failed = true
      else if (!this.#readFrame(each)) cuts.add(each.raw.byteOffset)
    }
    for (const { statement, replay } of this.#parses) if (!replay) this.#forget(statement)
    this.#parses = []
    if (!failed) for (const name of this.#closes) this.#names.delete(name)
    this.#closes = []
    this.#texts = []
    if (cuts.size === 0) return answer
    return Buffer.concat([...frames(answer)].map(({ raw }) => raw).filter(({ byteOffset }) => !cuts.has(byteOffset)))
  }

  /** Updates the session's state from one frame; returns false if it is not for this client. */
  #readFrame({ type, body, raw }: Frame): boolean {
    if (type === '1') {
      const parse = this.#parses.shift()
      if (parse !== undefined) this.#hub.prepared.set(parse.statement.server, this)
      return parse?.replay !== true
    }
    if (type === 'A') {
      const [channel] = readText(body, 4)
      for (const session of this.#hub.sessions) if (session !== this) session.notify(channel, raw)
      return this.channels.has(channel)
    }
    if (type === 'C') this.#readCommandTag(body.toString('utf8', 0, body.length - 1))
    else if (type === 'Z') this.#state = String.fromCharCode(body[0]!)
    return true
  }

  #forget(statement: Statement): void {
    if (this.#statements.get(statement.name) !== statement) return
    if (statement.previous === undefined) this.#statements.delete(statement.name)
    else this.#statements.set(statement.name, statement.previous)
  }

  #readCommandTag(tag: string): void {
    if (tag === 'LISTEN' || tag === 'UNLISTEN') {
      for (const [, verb, word] of this.#texts.splice(0).flatMap((sql) => [...sql.matchAll(listens)])) {
        const channel = word!.startsWith('"') ? word!.slice(1, -1).replaceAll('""', '"') : word!.toLowerCase()
        if (verb!.toLowerCase() === 'listen') this.channels.add(channel)
        else if (word === '*') this.channels.clear()
        else this.channels.delete(channel)
      }
      if (tag === 'UNLISTEN') this.#hub.relisten = true
    } else if (tag === 'DISCARD ALL') {
      this.channels.clear()
      this.#hub.relisten = true
      this.#hub.prepared.clear()
    } else if (tag === 'DEALLOCATE ALL') this.#hub.prepared.clear()
  }

  async #finish(): Promise<void> {
    try {
      if (this.#hub.relisten) {
        this.#hub.relisten = false
        const wanted = new Set([...this.#hub.sessions].flatMap((session) => [...session.channels]))
        const commands = ['unlisten *', ...[...wanted].map((channel) => `listen "${channel.replaceAll('"', '""')}"`)]
        await this.#hub.engine.exec(query(commands.join(';')))
      }
      await this.#hub.engine.checkpointIfGrown()
    } finally {
      this.#release()
    }
  }

  #release(): void {
    this.#pass?.()
    this.#pass = undefined
  }

  async #cleanUp(): Promise<void> {
    if (this.#pass === undefined && this.#names.size === 0 && this.channels.size === 0) return
    try {
      this.#pass ??= await this.#hub.engine.waitForTurn()
      const parts: Buffer[] = []
      if (this.#state !== 'I') {
        // A sync alone would commit what was flushed and never synced; an error before it makes it roll back.
        parts.push(frame('P', text(''), text('the client is gone'), Buffer.from([0, 0])), sync, query('rollback'))
        this.#hub.prepared.delete('')
      }
      for (const name of this.#names) {
        parts.push(frame('C', Buffer.from('S'), text(name)))
        this.#hub.prepared.delete(name)
      }
      if (this.channels.size > 0) this.#hub.relisten = true
      await this.#hub.engine.exec(Buffer.concat([...parts, sync]))
      await this.#finish()
    } catch {
      // The backend has stopped, and with it everything that this client left.
    } finally {
      this.#release()
    }
  }

  #watchIdle(): void {
    const idleMs = this.#idleMs
    if (idleMs === undefined) return
    const idle = new AbortController()
    this.#idle = idle
    void this.#hub.clock.sleep(idleMs, idle.signal, false).then(() => {
      if (!idle.signal.aborted)
        void this.fail(
          '25P03',
          `the transaction was open and idle for ${span(idleMs)}; it was rolled back so that other clients can continue`,
        )
    })
  }
}
