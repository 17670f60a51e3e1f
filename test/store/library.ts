import { PGlite } from '@electric-sql/pglite'
import { sql as drizzleSql } from 'drizzle-orm'
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzlePglite } from 'drizzle-orm/pglite'
import { drizzle as drizzlePostgres } from 'drizzle-orm/postgres-js'
import knex from 'knex'
import { CamelCasePlugin, Kysely, PostgresDialect, sql as kyselySql } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import type { TxLike } from '../../src/db/tx.ts'

/** A transaction as a user of its library has it. */
export interface Open {
  /** The value for `send`. */
  tx: TxLike
  /** A statement of the user's own. */
  run(sql: string): Promise<unknown>
  /** The library's own savepoint: rolls back to it when `body` throws. */
  nested(body: (inner: Open) => Promise<void>): Promise<void>
}

/** A library, connected. */
export interface Connected {
  /** The library's own transaction: commits, or rolls back when `body` throws. */
  transaction<T>(body: (open: Open) => Promise<T>): Promise<T>
  /** A value that a user might pass by mistake: it is in no transaction. */
  roots: { [name: string]: unknown }
  /** The library does not show that its transaction has ended: a later send in it is committed by itself. */
  hidesEnd?: true
  close(): Promise<unknown>
}

/** An object that runs statements: a client of node-postgres, a transaction of PGlite. */
type Query = (sql: string, params?: unknown[]) => Promise<unknown>

/** A savepoint for libraries that have none of their own. */
const bySavepoint =
  (query: Query, tx: TxLike): Open['nested'] =>
  async (body) => {
    await query('savepoint mine')
    try {
      await body(plain(query, tx))
      await query('release savepoint mine')
    } catch (error) {
      await query('rollback to savepoint mine')
      throw error
    }
  }

const plain = (query: Query, tx: TxLike): Open => ({ tx, run: (sql) => query(sql), nested: bySavepoint(query, tx) })

async function onClient<T>(client: pg.ClientBase, body: () => Promise<T>): Promise<T> {
  await client.query('begin')
  try {
    const result = await body()
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback')
    throw error
  }
}

async function pgClient(url: string): Promise<Connected> {
  const client = new pg.Client(url)
  await client.connect()
  const query: Query = (sql, params) => client.query(sql, params)
  return {
    transaction: (body) => onClient(client, () => body(plain(query, client))),
    roots: { client },
    close: () => client.end(),
  }
}

async function pgPool(url: string): Promise<Connected> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  return {
    async transaction(body) {
      const client = await pool.connect()
      try {
        return await onClient(client, () => body(plain((sql) => client.query(sql), client)))
      } finally {
        client.release()
      }
    },
    roots: { pool },
    close: () => pool.end(),
  }
}

/** A client that gets the socket of an embedded owner apart, because the library does not read it from a URL. */
function postgresAt(url: string, options: postgres.Options<{}> = {}): postgres.Sql {
  const host = new URL(url).searchParams.get('host')
  return postgres(url, { max: 1, onnotice: () => {}, ...(host === null ? {} : { host }), ...options })
}

function postgresJs(options: postgres.Options<{}>): (url: string) => Promise<Connected> {
  return async (url) => {
    const root = postgresAt(url, options)
    const open = (tx: postgres.TransactionSql): Open => ({
      tx,
      run: (sql) => tx.unsafe(sql),
      nested: (body) => tx.savepoint((inner) => body(open(inner))),
    })
    return {
      transaction: <T>(body: (open: Open) => Promise<T>) => root.begin((tx) => body(open(tx))) as Promise<T>,
      roots: { sql: root },
      hidesEnd: true,
      close: () => root.end(),
    }
  }
}

/** Drizzle's transactions have one shape over all drivers. */
interface DrizzleTx {
  execute(sql: ReturnType<typeof drizzleSql.raw> | string): PromiseLike<unknown>
  rollback(): never
  transaction<T>(body: (tx: DrizzleTx) => Promise<T>): Promise<T>
}

function drizzled(db: unknown, close: () => Promise<unknown>): Connected {
  const root = db as DrizzleTx
  const open = (tx: DrizzleTx): Open => ({
    tx: tx as TxLike,
    run: async (sql) => tx.execute(drizzleSql.raw(sql)),
    nested: (body) => tx.transaction((inner) => body(open(inner))),
  })
  return { transaction: (body) => root.transaction((tx) => body(open(tx))), roots: { db }, close }
}

async function drizzleOnPg(url: string): Promise<Connected> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  return drizzled(drizzlePg(pool), () => pool.end())
}

async function drizzleOnPostgres(url: string): Promise<Connected> {
  const client = postgresAt(url)
  return { ...drizzled(drizzlePostgres(client), () => client.end()), hidesEnd: true }
}

async function kysely(url: string): Promise<Connected> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] })
  return {
    transaction: (body) =>
      db.transaction().execute((tx) => body(plain(async (sql) => kyselySql.raw(sql).execute(tx), tx))),
    roots: { db },
    close: () => db.destroy(),
  }
}

async function kyselyControlled(url: string): Promise<Connected> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }) })
  return {
    async transaction(body) {
      const tx = await db.startTransaction().execute()
      const run = async (sql: string) => kyselySql.raw(sql).execute(tx)
      const nested: Open['nested'] = async (inside) => {
        const inner = await tx.savepoint('mine').execute()
        try {
          await inside({ tx: inner, run, nested })
          await inner.releaseSavepoint('mine').execute()
        } catch (error) {
          await inner.rollbackToSavepoint('mine').execute()
          throw error
        }
      }
      try {
        const result = await body({ tx, run, nested })
        await tx.commit().execute()
        return result
      } catch (error) {
        await tx.rollback().execute()
        throw error
      }
    },
    roots: { db },
    close: () => db.destroy(),
  }
}

async function knexed(url: string): Promise<Connected> {
  const db = knex({ client: 'pg', connection: url, pool: { min: 0, max: 1 } })
  const open = (tx: knex.Knex.Transaction): Open => ({
    tx,
    run: async (sql) => tx.raw(sql),
    nested: (body) => tx.transaction((inner) => body(open(inner))),
  })
  return {
    transaction: (body) => db.transaction((tx) => body(open(tx))),
    roots: { knex: db },
    close: () => db.destroy(),
  }
}

/** The relevant part of a Prisma transaction; the real one was tried by hand, see docs/transactions.md. */
async function prismaShaped(url: string): Promise<Connected> {
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  const raw = (client: pg.ClientBase) => ({
    isOver: false,
    // A model of this name is an object.
    query: { findMany: () => [] },
    $transaction() {},
    async $queryRawUnsafe(sql: string, ...params: unknown[]): Promise<unknown> {
      if (this.isOver) throw Object.assign(new Error('Transaction already closed'), { code: 'P2028' })
      return (await client.query(sql, params)).rows
    },
  })
  return {
    async transaction(body) {
      const client = await pool.connect()
      const tx = raw(client)
      try {
        return await onClient(client, () => body(plain((sql) => client.query(sql), tx)))
      } finally {
        tx.isOver = true
        client.release()
      }
    },
    roots: { prisma: { ...raw(pool as never), $connect() {} } },
    close: () => pool.end(),
  }
}

/** The libraries that speak to a server, or to the owner of an embedded directory. */
export const libraries: { name: string; connect(url: string): Promise<Connected> }[] = [
  { name: 'a client of node-postgres', connect: pgClient },
  { name: 'a pooled client of node-postgres', connect: pgPool },
  { name: 'postgres.js', connect: postgresJs({}) },
  {
    name: 'postgres.js that knows no types and renames columns',
    connect: postgresJs({
      fetch_types: false,
      prepare: false,
      transform: { column: postgres.toPascal },
    }),
  },
  { name: 'Drizzle over node-postgres', connect: drizzleOnPg },
  { name: 'Drizzle over postgres.js', connect: drizzleOnPostgres },
  { name: 'Kysely', connect: kysely },
  { name: 'Kysely, controlled', connect: kyselyControlled },
  { name: 'Knex', connect: knexed },
  { name: 'a transaction of Prisma’s shape', connect: prismaShaped },
]

/** The libraries on an embedded engine of the user's own. */
export const embedded: { name: string; connect(pglite: PGlite): Connected }[] = [
  {
    name: 'PGlite',
    connect: (pglite) => ({
      transaction: (body) => pglite.transaction((tx) => body(plain((sql) => tx.query(sql), tx))),
      roots: { pglite },
      close: async () => {},
    }),
  },
  { name: 'Drizzle over PGlite', connect: (pglite) => drizzled(drizzlePglite(pglite), async () => {}) },
]
