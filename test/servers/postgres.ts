/** A real PostgreSQL of a test's own, to stop and kill; the benchmarks start theirs with the same script. */
export { startPostgres, openPostgres, freePort } from '../../scripts/postgres.mjs'
export type { PostgresOptions, PostgresServer, PostgresUrls, StopMode } from '../../scripts/postgres.mjs'
