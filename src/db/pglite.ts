/** The embedded engine as a `Db`: PostgreSQL in this process, its files in a directory or in memory. */
import fs from 'node:fs'
import path from 'node:path'
import type pg from 'pg'
import { driver } from './driver.ts'
import type { Clock } from '../core/clock.ts'
import { closedError, StoreError, UsageError, textOfError } from '../core/errors.ts'
import { type Db, type Row, silentRollbackError, SingleConnection, transactionOverError, type Tx } from './db.ts'
import { syncDirectory } from './directory.ts'
import type { Engine } from './engine.ts'
import { maxFrameBytes } from './frame.ts'
import { takeOwnership } from './owner.ts'
import type { Owner } from './owner.ts'
import { Wire } from './wire.ts'

/** Options for the embedded engine. */
export interface PgliteOptions {
  /** Directory of the data, created when missing; one process owns it. Default: in memory, lost with the process. */
  dir?: string
  clock: Clock
  /** The schema to which a new database is going to be migrated. Default: none. */
  schema?: string | undefined
  /** Called with a message about slow work, such as the first opening. */
  log?: (message: string) => void
}

/** The embedded engine, with its additional methods. */
export interface PgliteDb extends Db {
  readonly kind: 'pglite'
  /** fsyncs that reached the disk since the opening; always 0 in memory. For `doctor` and tests. */
  syncs(): number
}

/**
 * Opens the embedded engine. In a directory, a commit is on disk when its reply arrives, and other processes may connect
 * (owner.ts `connectInfo`) while this one runs.
 * @throws UsageError SLUICE_STORE_OWNED when another process owns the directory.
 * @throws StoreError SLUICE_STORE_UNREACHABLE when the engine does not start.
 */
export async function openPglite(options: PgliteOptions): Promise<PgliteDb> {
  const dir = options.dir === undefined ? undefined : path.resolve(options.dir)
  let owner: Owner | undefined
  let engine: Engine | undefined
  try {
    if (dir !== undefined) {
      makeDirectory(dir)
      owner = await takeOwnership(dir)
    }
    const data = dir === undefined ? undefined : path.join(fs.realpathSync(dir), 'pg')
    if (data !== undefined && !fs.existsSync(data))
      options.log?.(`creating a database in ${dir}; this takes some seconds, once`)
    // Loaded here, because a process on a server has no use for it.
    engine = await (await import('./engine.ts')).Engine.open(data, options.schema)
    const wire = await Wire.start(engine, { clock: options.clock })
    const db = new EmbeddedDb(engine, wire, owner, dir ?? 'memory')
    await db.connect()
    owner?.onClient((socket) => wire.serve(socket))
    return db
  } catch (error) {
    await engine?.close().catch(() => {})
    await owner?.release()
    if (error instanceof StoreError || error instanceof UsageError) throw error
    const why = textOfError(error)
    // An error of the file system: in a container DATABASE_URL was mostly forgotten.
    const isOfDirectory = dir !== undefined && error instanceof Error && 'syscall' in error
    const next = /pglite\.(data|wasm)/.test(why)
      ? '; a file of the engine is missing: a bundler has to leave the package out (`external`), or it has to be installed again'
      : isOfDirectory
        ? '; set DATABASE_URL to a server, or give a directory that this process can write to'
        : ''
    throw new StoreError(
      'SLUICE_STORE_UNREACHABLE',
      `the embedded engine did not start in ${dir ?? 'memory'} (${why})${next}`,
      { cause: error },
    )
  }
}

/** A directory is durable only if the names of the directories above it are. */
function makeDirectory(dir: string): void {
  const first = fs.mkdirSync(dir, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let at = dir; at.length >= first.length; at = path.dirname(at)) syncDirectory(path.dirname(at))
}

/** A longer message ends its connection, of which there are only two for all statements. The rest is for what frames it. */
const statementBytesMax = maxFrameBytes - 65_536

/** Returns how many bytes the texts in a value have, those in objects not counted. */
function sizeOf(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, each) => sum + sizeOf(each), 0)
  return typeof value === 'string' || Buffer.isBuffer(value) ? Buffer.byteLength(value) : 0
}

class EmbeddedDb implements PgliteDb {
  readonly kind = 'pglite'
  readonly where: string
  readonly ended: Promise<StoreError>
  readonly #engine: Engine
  readonly #wire: Wire
  readonly #owner: Owner | undefined
  /** Two connections to the one backend, which interleaves them between transactions, so neither needs a lock here. */
  readonly #calls: pg.Client
  readonly #transactions: pg.Client
  readonly #sole = new SingleConnection()
  readonly #listeners = new Map<string, Set<(payload: string) => void>>()
  readonly #lastQuery = new Map<pg.Client, Promise<unknown>>()
  #lastTransaction: Promise<unknown> = Promise.resolve()
  #closed: Promise<void> | undefined

  constructor(engine: Engine, wire: Wire, owner: Owner | undefined, where: string) {
    this.#engine = engine
    this.#wire = wire
    this.#owner = owner
    this.where = where
    this.ended = engine.ended
    this.#calls = client(wire)
    this.#transactions = client(wire)
    this.#calls.on('notification', ({ channel, payload }) => {
      for (const onNotice of this.#listeners.get(channel) ?? []) onNotice(payload ?? '')
    })
  }

  async connect(): Promise<void> {
    await Promise.all([this.#calls.connect(), this.#transactions.connect()])
  }

  async query<R = Row>(sql: string, params?: readonly unknown[]): Promise<R[]> {
    this.#check()
    return await this.#run<R>(this.#calls, { text: sql, ...(params && { values: [...params] }) })
  }

  async call<R = Row>(name: string, sql: string, params: readonly unknown[]): Promise<R[]> {
    this.#check()
    return await this.#run<R>(this.#calls, { name, text: sql, values: [...params] })
  }

  async script(sql: string): Promise<void> {
    this.#check()
    await this.#run(this.#calls, { text: sql })
  }

  async transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T> {
    this.#check()
    const turn = this.#lastTransaction.then(() => this.#transact(body))
    this.#lastTransaction = turn.catch(() => {})
    return await turn
  }

  async listen(channel: string, onNotice: (payload: string) => void): Promise<() => Promise<void>> {
    this.#check()
    const quoted = driver.escapeIdentifier(channel)
    const set = this.#listeners.get(channel) ?? new Set()
    this.#listeners.set(channel, set.add(onNotice))
    await this.#run(this.#calls, { text: `listen ${quoted}` })
    return async () => {
      set.delete(onNotice)
      if (set.size > 0 || this.#closed !== undefined) return
      this.#listeners.delete(channel)
      await this.#run(this.#calls, { text: `unlisten ${quoted}` })
    }
  }

  listening(): boolean {
    return this.#listeners.size > 0 && this.#closed === undefined && this.#engine.stopped === undefined
  }

  checkOutside(what?: string): void {
    this.#sole.check(what)
  }

  syncs(): number {
    return this.#engine.syncs
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    await this.#lastTransaction
    await this.#wire.close()
    await Promise.all([this.#calls.end(), this.#transactions.end()]).catch(() => {})
    try {
      await this.#engine.close()
    } finally {
      await this.#owner?.release()
    }
  }

  async #transact<T>(body: (tx: Tx) => Promise<T>): Promise<T> {
    const client = this.#transactions
    let isOpen = true
    const run = <R>(text: string, params?: readonly unknown[]) => {
      if (!isOpen) throw transactionOverError()
      return this.#run<R>(client, { text, ...(params && { values: [...params] }) })
    }
    const tx: Tx = {
      query: async (sql, params) => await run(sql, params),
      script: async (sql) => void (await run(sql)),
    }
    await this.#run(client, { text: 'begin' })
    try {
      const result = await this.#sole.run(() => body(tx))
      isOpen = false
      await this.#commit(client)
      return result
    } catch (error) {
      isOpen = false
      await this.#end(client, 'rollback').catch(() => {})
      throw error
    }
  }

  async #commit(client: pg.Client): Promise<void> {
    const { command } = await this.#end(client, 'commit').catch((error: unknown) => {
      throw this.#explain(error)
    })
    if (command === 'ROLLBACK') throw silentRollbackError()
  }

  /** Ends a transaction after all queries that its body began: one that came later would be outside of it. */
  async #end(client: pg.Client, how: 'commit' | 'rollback'): Promise<pg.QueryResult> {
    await this.#lastQuery.get(client)
    return client.query(how)
  }

  async #run<R>(client: pg.Client, config: pg.QueryConfig): Promise<R[]> {
    if (sizeOf([config.text, config.values]) > statementBytesMax)
      throw new UsageError(
        'SLUICE_PAYLOAD_TOO_LARGE',
        'a statement is larger than the 64 MB that the embedded engine takes; divide it',
      )
    // One query at a time on each connection: node-postgres deprecates its own queue.
    const before = this.#lastQuery.get(client)
    const turn = (before ?? Promise.resolve()).then(() => client.query(config))
    this.#lastQuery.set(
      client,
      turn.catch(() => {}),
    )
    try {
      const result = await turn
      return (Array.isArray(result) ? [] : result.rows) as R[]
    } catch (error) {
      throw this.#explain(error)
    }
  }

  #check(): void {
    this.checkOutside()
    if (this.#closed !== undefined) throw closedError()
  }

  /** Converts errors: those of PostgreSQL stay as they are; those of the connection mean that the engine is gone. */
  #explain(error: unknown): unknown {
    if (error instanceof driver.DatabaseError && error.severity !== 'FATAL') return error
    if (this.#engine.stopped === undefined && this.#closed === undefined && !(error instanceof driver.DatabaseError))
      return error
    const why = textOfError(error)
    return new StoreError('SLUICE_STORE_UNREACHABLE', `the embedded engine (${this.where}) is gone (${why})`, {
      cause: error,
    })
  }
}

function client(wire: Wire): pg.Client {
  // node-postgres requires an address although `stream` is used.
  const made = new driver.Client({
    host: 'embedded',
    user: 'postgres',
    password: '',
    database: 'postgres',
    ssl: false,
    stream: () => wire.line(),
  })
  // The query in progress reports the error.
  made.on('error', () => {})
  return made
}
