import type { PGlite, Transaction as PgliteTransaction } from '@electric-sql/pglite'
import { drizzle as drizzlePg, type NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PgliteDatabase } from 'drizzle-orm/pglite'
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import { integer, pgTable } from 'drizzle-orm/pg-core'
import type { Knex } from 'knex'
import type { ControlledTransaction, Kysely, Transaction } from 'kysely'
import type pg from 'pg'
import type postgres from 'postgres'
import { expect, expectTypeOf, it } from 'vitest'
import type { Tx, TxLike } from '../../src/index.ts'

// What must not compile is marked; tsc fails when a marked line does compile.

const mine = pgTable('mine', { n: integer() })
const make = () => drizzlePg({ client: {} as pg.Pool, schema: { mine } })
type Fn = (...args: never[]) => unknown
type InTransaction<Db extends { transaction: Fn }> = Parameters<Extract<Parameters<Db['transaction']>[0], Fn>>[0]

/** The generated client's `Prisma.TransactionClient`, as far as it matters. */
interface PrismaTransaction {
  $queryRawUnsafe<T = unknown>(
    query: string,
    ...values: unknown[]
  ): Promise<T> & { [Symbol.toStringTag]: 'PrismaPromise' }
  $queryRaw<T = unknown>(query: TemplateStringsArray, ...values: unknown[]): Promise<T>
  note: { create(args: { data: { text: string } }): Promise<{ id: number }> }
}

it('the transactions of each library are taken as they are', () => {
  expect.assertions(0)
  expectTypeOf<Tx>().toExtend<TxLike>()
  expectTypeOf<pg.Client>().toExtend<TxLike>()
  expectTypeOf<pg.PoolClient>().toExtend<TxLike>()
  expectTypeOf<pg.ClientBase>().toExtend<TxLike>()
  expectTypeOf<PgliteTransaction>().toExtend<TxLike>()
  expectTypeOf<postgres.TransactionSql>().toExtend<TxLike>()
  expectTypeOf<postgres.TransactionSql<{ bigint: bigint }>>().toExtend<TxLike>()
  expectTypeOf<postgres.ReservedSql>().toExtend<TxLike>()
  expectTypeOf<InTransaction<ReturnType<typeof make>>>().toExtend<TxLike>()
  expectTypeOf<InTransaction<NodePgDatabase>>().toExtend<TxLike>()
  expectTypeOf<InTransaction<PostgresJsDatabase>>().toExtend<TxLike>()
  expectTypeOf<InTransaction<PgliteDatabase>>().toExtend<TxLike>()
  expectTypeOf<Transaction<{ mine: { n: number } }>>().toExtend<TxLike>()
  expectTypeOf<ControlledTransaction<{ mine: { n: number } }, ['one']>>().toExtend<TxLike>()
  expectTypeOf<Knex.Transaction>().toExtend<TxLike>()
  expectTypeOf<Knex.Transaction<{ n: number }, { n: number }[]>>().toExtend<TxLike>()
  expectTypeOf<PrismaTransaction>().toExtend<TxLike>()
})

it('an object that only begins transactions is not accepted as one, where types can distinguish them', () => {
  const take = (tx: TxLike) => tx
  const misuse = () => {
    // @ts-expect-error no transaction
    take(make())
    // @ts-expect-error no transaction
    take({} as Kysely<{ mine: { n: number } }>)
    // @ts-expect-error no transaction
    take({} as Knex)
    // @ts-expect-error nothing that runs statements
    take({} as { query: string })
    // These look like one: they are refused when they are used.
    take({} as PGlite)
    take({} as postgres.Sql)
  }
  expect(misuse).toBeTypeOf('function')
})
