/** How PostgreSQL ends: `smart` waits for clients, `fast` ends them, `immediate` is a crash (recovery at the next start). */
export type StopMode = 'smart' | 'fast' | 'immediate'

/** How to start a server of one's own. */
export interface PostgresOptions {
  /** Server settings, over the durable defaults. */
  settings?: Record<string, string | number>
  /** Data directory; initialised when empty, and kept. Default: a temporary one, removed by `close` or at exit. */
  dir?: string
}

/** Where a server is reached. */
export interface PostgresUrls {
  /** As the ordinary role `sluice`, which owns the database `sluice`. */
  url: string
  /** As superuser, in the database `postgres`. */
  adminUrl: string
}

/** A server that belongs to this process and does not outlive it, however this process ends. */
export interface PostgresServer extends PostgresUrls {
  port: number
  /** The data directory. */
  dir: string
  /** Of the postmaster; undefined while stopped. */
  readonly pid: number | undefined
  /** Ends the server and keeps its data and port. Default mode: `fast`. Resolves when the postmaster is gone. */
  stop(mode?: StopMode): Promise<void>
  /** Starts it again on the same port. Resolves when it accepts connections. */
  start(): Promise<void>
  /** Ends the server for good and removes its temporary directory. */
  close(): Promise<void>
}

/** Starts a server of one's own. Throws, saying what to do, when there is no PostgreSQL and none can be installed. */
export function startPostgres(options?: PostgresOptions): Promise<PostgresServer>

/** The server named by SLUICE_TEST_DATABASE_URL (a role that may create databases), else one of one's own. */
export function openPostgres(options?: PostgresOptions): Promise<PostgresUrls & { close(): Promise<void> }>

/** A port on 127.0.0.1 that nobody listens on, outside the range that the system gives to outgoing connections. */
export function freePort(): Promise<number>

/** Who a server runs as: nobody else, or, for root, an ordinary user. */
export function serverUser(): Promise<{ uid?: number; gid?: number }>

/** Installs a package of Debian, as root; says why when that fails. */
export function install(name?: string): Promise<void>

/** Whether this is a file that we may run. */
export function isExecutable(path: string): boolean
