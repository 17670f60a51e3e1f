/** Connects to a PostgreSQL server, through node-postgres. */
import type pg from 'pg'
import { driver } from './driver.ts'
import type { Clock } from '../core/clock.ts'
import { closedError, codeOf, SluiceError } from '../core/errors.ts'
import {
  closingError,
  describe,
  resolveInTime,
  isLost,
  isStale,
  LateError,
  unconnectedError,
  unreachableError,
  wasNotRun,
} from './connection-error.ts'
import { LateRequests } from './late-requests.ts'
import { makePool, pooled, sessions } from './pool.ts'
import type { Successor } from './successor.ts'
import { type Db, type Row, silentRollbackError, SingleConnection, transactionOverError, type Tx } from './db.ts'

/** Options for a server. */
export interface PgOptions {
  /** `postgres://user:password@host:port/database`. */
  url: string
  /** URL for LISTEN if `url` is a pooler in transaction mode. Default: `url`. */
  listenUrl?: string
  /** Connections for transactions and queries; 1 to 1000, default 10. The engine adds its own: see docs/deploying.md. */
  connections?: number | undefined
  /** A statement without a reply after this many ms counts as lost, and its connection is closed. Default 10,000. */
  answerMs?: number
  clock: Clock
  /** Set: the server is the owner of an embedded directory, with one transaction at a time for all clients. */
  successor?: Successor
}

/** Opens a pool; connects only for the first statement. */
export function openPg(options: PgOptions): Db {
  return new PgDb(options)
}

/** Functions that claim jobs; they have connections of their own. */
const claims = new Set([
  'claim_jobs',
  'create_announced_classes',
  'plan_claim_statements',
  'promote_due_jobs',
  'send_and_claim_job',
])

/** What has less time than other statements for its answer, in ms: a place is lost 14 s after its last renewal. */
const hastyMs = new Map([['renew_holder', 3_000]])

/** After one connection was silent, any other that does not answer `select 1` within this many ms is dropped. */
const checkMs = 2_000

/** For how long, in ms, a connection is tried again if the server has none free (53300), and a statement if it was not run. */
const againMs = 15_000

class PgDb implements Db {
  readonly kind = 'pg'
  readonly where: string
  readonly ended = new Promise<never>(() => {})
  /** For users: `query`, `transaction`, and sends. */
  readonly #pool: pg.Pool
  /** Claims have their own connections, which stay warm: planning a first claim takes longer than the life of a grant. */
  readonly #claimPool: pg.Pool
  /**
   * For all other work of the engine: handlers may hold all of the users' connections while they wait for a grant. Four
   * suffice for a finish, a round and two further grants at a time; more would only wait for each other in the server.
   */
  readonly #enginePool: pg.Pool
  /** Only for an embedded engine. */
  readonly #sole: SingleConnection | undefined
  readonly #options: PgOptions
  readonly #listeners = new Map<string, Set<(payload: string) => void>>()
  readonly #missed = new Set<() => void>()
  readonly #lateSends: LateRequests
  readonly #lateClaims: LateRequests
  #listener: pg.Client | undefined
  #answered = false
  #closed: Promise<void> | undefined
  #wakeListener: AbortController | undefined

  constructor(options: PgOptions) {
    this.#options = options
    this.where = describe(options.url, options.successor !== undefined)
    this.#lateSends = new LateRequests(options.clock, false)
    this.#lateClaims = new LateRequests(options.clock, true)
    const connections = options.connections ?? 10
    this.#pool = makePool(options.url, connections)
    this.#claimPool = makePool(options.url, Math.min(2, connections))
    this.#enginePool = makePool(options.url, Math.min(4, connections))
    this.#sole = options.successor && new SingleConnection()
  }

  async query<R = Row>(sql: string, params?: readonly unknown[]): Promise<R[]> {
    return this.#use(async (client) => (await client.query(sql, params as unknown[])).rows as R[])
  }

  async call<R = Row>(name: string, sql: string, params: readonly unknown[]): Promise<R[]> {
    const values = params as unknown[]
    const run = async (client: pg.PoolClient) =>
      (await client.query(pooled.has(client) ? { text: sql, values } : { name, text: sql, values })).rows as R[]
    const isSend = name.startsWith('send')
    // Users may send much at once, which must not delay finishes.
    const pool = claims.has(name) ? this.#claimPool : isSend ? this.#pool : this.#enginePool
    const late = isSend ? this.#lateSends : name === 'claim_jobs' ? this.#lateClaims : undefined
    return this.#use(run, pool, late, hastyMs.get(name))
  }

  async script(sql: string): Promise<void> {
    await this.#use((client) => client.query(sql))
  }

  async transaction<T>(body: (tx: Tx) => Promise<T>): Promise<T> {
    this.checkOutside()
    const client = await this.#connect()
    let broken: Error | undefined
    let isOld = false
    const run = async (sql: string, params?: readonly unknown[]) => {
      try {
        return await this.#watch(client, client.query(sql, params as unknown[]))
      } catch (error) {
        isOld ||= isStale(error)
        if (!isLost(error)) throw error
        broken = error as Error
        if (error instanceof LateError) this.#checkIdle()
        throw unreachableError(this.where, error)
      }
    }
    let isOpen = true
    const inside: typeof run = async (sql, params) => {
      if (!isOpen) throw transactionOverError()
      return run(sql, params)
    }
    const tx: Tx = {
      query: async <R>(sql: string, params?: readonly unknown[]) => (await inside(sql, params)).rows as R[],
      script: async (sql) => void (await inside(sql)),
    }
    try {
      await run('begin')
      const result = await (this.#sole === undefined ? body(tx) : this.#sole.run(() => body(tx)))
      isOpen = false
      if ((await run('commit')).command === 'ROLLBACK') throw silentRollbackError()
      return result
    } catch (error) {
      isOpen = false
      // An error of the body does not mean that the connection is bad; only a failed rollback does.
      const rollback = { text: 'rollback', query_timeout: this.#answerMs }
      if (broken === undefined) await client.query(rollback).catch((failed: Error) => (broken = failed))
      throw error
    } finally {
      client.release(broken ?? isOld)
    }
  }

  checkOutside(what?: string): void {
    this.#sole?.check(what)
  }

  async listen(
    channel: string,
    onNotice: (payload: string) => void,
    missed?: () => void,
  ): Promise<() => Promise<void>> {
    if (missed !== undefined) this.#missed.add(missed)
    const set = this.#listeners.get(channel) ?? new Set()
    this.#listeners.set(channel, set.add(onNotice))
    if (this.#wakeListener === undefined) {
      this.#wakeListener = new AbortController()
      void this.#keepListening(this.#wakeListener.signal)
    } else await this.#listener?.query(`listen ${driver.escapeIdentifier(channel)}`).catch(() => {})
    return async () => {
      set.delete(onNotice)
      if (missed !== undefined) this.#missed.delete(missed)
    }
  }

  listening(): boolean {
    return this.#answered
  }

  close(): Promise<void> {
    this.#closed ??= (async () => {
      this.#wakeListener?.abort()
      await this.#listener?.end().catch(() => {})
      await Promise.all([this.#pool, this.#claimPool, this.#enginePool].map((pool) => pool.end()))
      await this.#options.successor?.close()
    })()
    return this.#closed
  }

  get #answerMs(): number {
    return this.#options.answerMs ?? 10_000
  }

  /** Returns a connection of a pool; retries while the server has none free (many short processes at once). */
  async #connect(pool = this.#pool): Promise<pg.PoolClient> {
    const { clock } = this.#options
    for (const untilMs = clock.monotonicMs() + againMs; ;) {
      try {
        return await pool.connect()
      } catch (error) {
        if (SluiceError.is(error)) throw error
        if (this.#closed !== undefined) throw closedError()
        const isBack = isLost(error) && (await this.#options.successor?.takeOver()) === true
        if ((codeOf(error) !== '53300' && !isBack) || clock.monotonicMs() > untilMs)
          throw await unconnectedError(this.where, this.#options.url, error)
        await clock.sleep(50 + clock.random() * 200)
      }
    }
  }

  /**
   * Runs on a pooled connection, and again if an embedded directory's owner was closing. A statement without a reply in time is
   * given up together with its connection.
   * @param late earlier requests of this kind without a reply: nothing is sent before their sessions have ended
   */
  async #use<T>(
    body: (client: pg.PoolClient) => Promise<T>,
    pool = this.#pool,
    late?: LateRequests,
    mostMs = Infinity,
    untilMs = this.#options.clock.monotonicMs() + againMs,
  ): Promise<T> {
    this.checkOutside()
    const client = await this.#connect(pool)
    let broken: Error | boolean = false
    try {
      const run = late === undefined ? body(client) : late.end(client).then(() => body(client))
      return await resolveInTime(run, Math.min(mostMs, this.#answerMs))
    } catch (error) {
      broken = isLost(error) ? (error as Error) : isStale(error)
      if (broken !== error) throw error
      late?.add(sessions.get(client))
      if (error instanceof LateError) this.#checkIdle()
      if (this.#sole === undefined || !wasNotRun(error)) throw unreachableError(this.where, error)
      if (this.#options.clock.monotonicMs() > untilMs) throw closingError(this.where, error)
    } finally {
      client.release(broken)
    }
    return this.#use(body, pool, late, mostMs, untilMs)
  }

  /**
   * Awaits a statement of a user's transaction, which may take any time. Now and then another connection checks whether the
   * server still works on it; if it twice did not, the reply was lost.
   */
  #watch<T>(client: pg.PoolClient, answer: Promise<T>): Promise<T> {
    const { processID } = client as unknown as { processID: number }
    if (processID === 0 || pooled.has(client)) return answer
    const { clock } = this.#options
    const idleSql = `select count(*) filter (where state is null or state not like 'idle%') = 0 as idle from pg_stat_activity where pid = $1`
    return new Promise((resolve, reject) => {
      let times = 0
      let cancel = () => {}
      let isOver = false
      const look = async () => {
        const [row] = await this.call<{ idle: boolean }>('', idleSql, [processID]).catch(() => [])
        times = row?.idle ? times + 1 : 0
        if (times === 2) reject(new LateError('the server no longer works on it, and no reply arrived'))
        else if (!isOver) again()
      }
      const again = () => (cancel = clock.after(this.#answerMs / 2, () => void look()))
      again()
      const over = () => {
        isOver = true
        cancel()
      }
      answer.finally(over).then(resolve, reject)
    })
  }

  /**
   * Checks whether idle connections are alive: if one was half-open, the others probably are, and the next statements would
   * each wait for the timeout in turn. Statements sent meanwhile get new connections.
   */
  #checkIdle(): void {
    const check = async (pool: pg.Pool) => {
      const client = await pool.connect()
      const question = { text: 'select 1', query_timeout: checkMs }
      const failed = await client.query(question).then(
        () => undefined,
        (error: Error) => error,
      )
      client.release(failed)
    }
    for (const pool of [this.#pool, this.#claimPool, this.#enginePool])
      for (let idle = pool.idleCount; idle > 0; idle--) check(pool).catch(() => {})
  }

  #setListening(does: boolean): void {
    if (does === this.#answered) return
    this.#answered = does
    for (const missed of this.#missed) missed()
  }

  /** Keeps one connection for LISTEN, pinged every 5 s to detect a half-open one, and replaced until `signal`. */
  async #keepListening(signal: AbortSignal): Promise<void> {
    for (let failures = 0; !signal.aborted; failures++) {
      const client = new driver.Client({
        connectionString: this.#options.listenUrl ?? this.#options.url,
        fallback_application_name: 'sluice',
        keepAlive: true,
        connectionTimeoutMillis: 5_000,
      })
      const send = (sql: string) => resolveInTime(client.query(sql), this.#answerMs / 2)
      // Ends the pings of this connection. A handler on a long-lived signal lives as long, so there is one, and it is
      // removed.
      const gone = new AbortController()
      const end = () => gone.abort()
      client.on('error', end)
      client.on('end', end)
      signal.addEventListener('abort', end)
      client.on('notification', (message) => {
        for (const onNotice of this.#listeners.get(message.channel) ?? []) onNotice(message.payload ?? '')
      })
      try {
        await client.connect()
        for (const channel of this.#listeners.keys()) await send(`listen ${driver.escapeIdentifier(channel)}`)
        this.#listener = client
        this.#setListening(await isDirect(client, send))
        failures = 0
        while (!gone.signal.aborted) {
          await this.#options.clock.sleep(5_000, gone.signal, false)
          if (!gone.signal.aborted) await send('select 1')
        }
      } catch {
        // The loop tries again; until then idle workers poll.
      }
      signal.removeEventListener('abort', end)
      this.#setListening(false)
      this.#listener = undefined
      void client.end().catch(() => {})
      if (!signal.aborted) await this.#options.clock.sleep(Math.min(2_000, 100 * 2 ** failures), signal, false)
    }
  }
}

/** Returns false behind a pooler: a notification there may go to a session that another client has by then. */
async function isDirect(client: pg.Client, send: (sql: string) => Promise<pg.QueryResult>): Promise<boolean> {
  const { processID } = client as unknown as { processID: number }
  // The embedded engine's owner leaves it at 0.
  return processID === 0 || (await send('select pg_backend_pid() as pid')).rows[0]?.pid === processID
}
