/** Transactions of users' libraries: every library keeps every guarantee. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PGlite } from '@electric-sql/pglite'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { migrate } from '../../src/db/migrate.ts'
import type { Db, Tx } from '../../src/db/db.ts'
import { within } from '../../src/db/tx.ts'
import { Sluice, type TxLike } from '../../src/index.ts'
import { engines, openOn } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { ownPglite } from '../servers/pglite.ts'
import { type At, elsewhere, guarantees, note, openElsewhere, quiet, ran, Regret, spaceless } from './guarantees.ts'
import { type Connected, embedded, libraries, type Open } from './library.ts'
import { forAllInTime } from '../for-all.ts'

openElsewhere()

/** On a store of its own for the libraries that speak to servers. */
const stores = [
  {
    name: 'PostgreSQL',
    among: libraries,
    open: async () => ({ store: (await freshDatabase()).url, shut: async () => {} }),
  },
  {
    name: 'the owner of an embedded directory',
    // The owner must accept the protocol of each driver.
    among: libraries.filter(({ name }) => /^(a client of node-postgres|postgres.js|Kysely)$/.test(name)),
    async open() {
      const dir = mkdtempSync(join(tmpdir(), 'sluice-tx-'))
      const owner = await Sluice.open({ store: dir })
      const shut = async () => (await owner.close(), rmSync(dir, { recursive: true, force: true }))
      return { store: dir, shut }
    },
  },
]

for (const { name, among, open } of stores)
  describe(`on ${name}`, () => {
    const at = {} as At
    let shut: () => Promise<void>
    beforeAll(async () => {
      const opened = await open()
      shut = opened.shut
      at.sluice = await Sluice.open({ store: opened.store })
      await at.sluice.db.script('create table mine (n integer)')
    })
    beforeEach(async () => {
      await at.sluice.db.script('delete from mine; delete from sluice.job; delete from sluice.idempotency')
    })
    afterAll(async () => {
      await at.sluice.close()
      await shut()
    })

    describe.each(among)('$name', ({ connect }) => {
      beforeAll(async () => void (at.library = await connect(at.sluice.url ?? '')))
      afterAll(() => at.library.close())
      it.each(Object.entries(guarantees))('%s', async (_, guarantee) => {
        expect.hasAssertions()
        await guarantee(at)
      })
    })

    describe('sluice.transaction', () => {
      beforeAll(() => void (at.library = own(at.sluice)))
      it.each(Object.entries(guarantees))('%s', async (_, guarantee) => {
        expect.hasAssertions()
        await guarantee(at)
      })
    })

    it('jobs of every library run', async () => {
      const worker = await at.sluice.work([note])
      for (const { name: text, connect } of among) {
        const library = await connect(at.sluice.url ?? '')
        const id = await library.transaction(({ tx }) => at.sluice.send(note, { text }, { tx }))
        expect((await at.sluice.waitFor(id)).state).toBe('done')
        await library.close()
      }
      await worker.stop()
      expect(ran.splice(0)).toEqual(among.map((library) => library.name))
    })
  })

/** `sluice.transaction` as a library. */
function own(sluice: Sluice): Connected {
  const open = (tx: Tx): Open => ({
    tx,
    run: (sql) => tx.query(sql),
    async nested(body) {
      await tx.query('savepoint mine')
      try {
        await body(open(tx))
      } catch (error) {
        await tx.query('rollback to savepoint mine')
        throw error
      }
    },
  })
  return {
    transaction: (body) => sluice.transaction((tx) => body(open(tx))),
    roots: { db: sluice.db },
    close: async () => {},
  }
}

describe('on an embedded engine of the user’s own', () => {
  let pglite: PGlite
  let sluice: Sluice
  beforeAll(async () => {
    pglite = await ownPglite()
    const tx = (on: Pick<PGlite, 'query' | 'exec'>): Tx => ({
      query: async (sql, params) => (await on.query(sql, [...(params ?? [])])).rows as never,
      script: async (sql) => void (await on.exec(sql)),
    })
    const transaction = (body: (t: Tx) => Promise<unknown>) => pglite.transaction((own) => body(tx(own)))
    await migrate({ ...tx(pglite), transaction } as unknown as Db)
    sluice = await openOn(engines[1])
  })
  afterAll(async () => {
    await sluice.close()
    await pglite.close()
  })

  it.each(embedded)(
    '$name sends the jobs of committed transactions, and none of rolled back ones',
    async ({ connect }) => {
      const library = connect(pglite)
      await pglite.exec('delete from sluice.job; delete from sluice.idempotency')
      const send = ({ tx }: Open, text: string, idempotencyKey: string) =>
        sluice.send(note, { text, account: 'a' }, { tx, idempotencyKey, tags: [text], priority: 3 })
      const regret = library.transaction(async (open) => {
        await send(open, 'no', 'k')
        throw new Regret()
      })
      await expect(regret).rejects.toThrow(Regret)
      const ids = await library.transaction(async (open) => {
        const undone = open.nested(async (inner) => {
          await send(inner, 'undone', 'k')
          throw new Regret()
        })
        await expect(undone).rejects.toThrow(Regret)
        return [await send(open, spaceless, 'k'), await send(open, 'twice', 'k')]
      })
      expect(new Set(ids).size).toBe(1)
      const { rows } = await pglite.query('select id, tags, buckets, priority from sluice.job')
      expect(rows).toEqual([{ id: ids[0], tags: [spaceless], buckets: ['tx-notes:a'], priority: 3 }])
      for (const root of Object.values(library.roots))
        await expect(sluice.send(quiet, { text: 'x' }, { tx: root as TxLike })).rejects.toMatchObject({
          code: 'SLUICE_BAD_TX',
        })
    },
  )
})

it('a value that is no transaction is refused with a list of valid ones', async () => {
  for (const tx of [null, 'tx', 5, {}, () => {}, { query: [] }, Promise.resolve({}), { select() {}, query: {} }]) {
    const message = expect.stringMatching(/Prisma.*Kysely.*postgres\.js.*Knex.*Drizzle.*node-postgres.*PGlite/)
    const refused = { code: 'SLUICE_BAD_TX', message }
    await expect(elsewhere.send(quiet, { text: 'x' }, { tx: tx as never })).rejects.toMatchObject(refused)
    await expect(elsewhere.sendMany(quiet, [], { tx: tx as never })).rejects.toMatchObject(refused)
  }
})

it('a transaction of TypeORM or pg-promise that reports itself as not open is refused', async () => {
  const query = async () => [{ id: 'said' }]
  const tasks = { query, task() {}, tx() {} }
  const runner = { query, isTransactionActive: false }
  const outside = [runner, { ...tasks, $pool: {} }, { ...tasks, ctx: { isTX: false } }]
  for (const tx of outside) expect(() => within(tx)).toThrow(expect.objectContaining({ code: 'SLUICE_BAD_TX' }))
  const inside = [{ isTX: true }, { isTX: false, inTransaction: true }].map((ctx) => ({ ...tasks, ctx }))
  for (const tx of [...inside, { query, isTransactionActive: true }])
    expect(await within(tx).query('select 1')).toEqual([{ id: 'said' }])
})

it('only the error of a missing function or schema is reworded, however it is wrapped', async () => {
  const said = { code: '42883', message: 'no such function' }
  const prismas = { originalCode: said.code, originalMessage: said.message }
  const query = (error: unknown) => within({ query: () => Promise.reject(error as Error) }).query('select 1')
  for (const error of [
    said,
    { code: '3F000', message: said.message },
    Object.assign(new Error('Failed query: select …'), { cause: said }),
    { code: 'P2010', message: 'Raw query failed', meta: { driverAdapterError: { cause: prismas } } },
  ])
    await expect(query(error)).rejects.toMatchObject({
      code: 'SLUICE_TX_ELSEWHERE',
      message: expect.stringContaining(`(${said.message})`),
      cause: error,
    })
  for (const error of [{ code: '40001' }, { code: 'P2028', meta: {} }, new Error('other'), 'text', undefined])
    await expect(query(error)).rejects.toBe(error)
})

it('any text arrives unchanged, whatever the library', async () => {
  const sluice = await openOn(engines[0])
  const all = await Promise.all(libraries.map(({ connect }) => connect(sluice.url ?? '')))
  const text = fc.string({ unit: 'binary' }).filter((s) => s.isWellFormed() && !s.includes('\0'))
  await forAllInTime(
    50,
    fc.constantFrom(...all),
    fc.array(text, { minLength: 1, maxLength: 5 }),
    async (library, texts) => {
      await sluice.db.query('delete from sluice.job')
      await library.transaction(({ tx }) =>
        sluice.sendMany(
          quiet,
          texts.map((one) => ({ text: one })),
          { tx },
        ),
      )
      const rows = await sluice.db.query<{ text: string }>(
        `select input ->> 'text' as text from sluice.job order by seq`,
      )
      expect(rows.map((row) => row.text)).toEqual(texts)
    },
  )
  await Promise.all(all.map((library) => library.close()))
  await sluice.close()
})
