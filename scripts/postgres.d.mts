/** How to stop PostgreSQL: `smart` waits for clients, `fast` ends them, `immediate` is a crash (recovery at the next start). */
export type StopMode = 'smart' | 'fast' | 'immediate'

/** How to start a temporary server. */
export interface PostgresOptions {
  /** Server settings; they override the durable defaults. */
  settings?: Record<string, string | number>
  /** Data directory; initialised when empty, and kept. Default: a temporary one, removed by `close` or at exit. */
  dir?: string
}

/** The URLs of a server. */
export interface PostgresUrls {
  /** For the ordinary role `sluice`, which owns the database `sluice`. */
  url: string
  /** For the superuser, in the database `postgres`. */
  adminUrl: string
}

/** A server that ends with this process, however this process ends. */
export interface PostgresServer extends PostgresUrls {
  port: number
  /** The data directory. */
  dir: string
  /** Process id of the postmaster; undefined while stopped. */
  readonly pid: number | undefined
  /** Stops the server and keeps its data and port. Default mode: `fast`. Resolves when the postmaster has ended. */
  stop(mode?: StopMode): Promise<void>
  /** Starts it again on the same port. Resolves when it accepts connections. */
  start(): Promise<void>
  /** Ends the server for good and removes its temporary directory. */
  close(): Promise<void>
}

/** Starts a temporary server. @throws Error with instructions if there is no PostgreSQL and none can be installed */
export function startPostgres(options?: PostgresOptions): Promise<PostgresServer>

/** Returns the server of SLUICE_TEST_DATABASE_URL (for a role that may create databases), else starts a temporary one. */
export function openPostgres(options?: PostgresOptions): Promise<PostgresUrls & { close(): Promise<void> }>

/** Finds a free port on 127.0.0.1, outside the range that the system uses for outgoing connections. */
export function freePort(): Promise<number>

/** Returns the user that servers run as: for root an ordinary user, else empty (the present user). */
export function serverUser(): Promise<{ uid?: number; gid?: number }>

/** Installs a Debian package, as root; writes the reason to stderr if that fails. */
export function install(name?: string): Promise<void>

/** Returns whether this process may execute the file. */
export function isExecutable(path: string): boolean
