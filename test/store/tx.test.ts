import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PGlite } from '@electric-sql/pglite'
import fc from 'fast-check'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { newId } from '../../src/core/hash.ts'
import { migrate } from '../../src/db/migrate.ts'
import type { Db, Tx } from '../../src/db/db.ts'
import { within } from '../../src/db/tx.ts'
import { limit, Sluice, task, type TxLike } from '../../src/index.ts'
import { count, engines, openOn } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { ownPglite } from '../servers/pglite.ts'
import { type Connected, embedded, libraries, type Open } from './library.ts'

// Every library keeps every guarantee: one list of guarantees, one of libraries.

const ran: string[] = []
const note = task('note', {
  input: z.object({ text: z.string(), account: z.string().optional() }),
  limits: [
    limit('tx-notes', { rate: '1000000/s', by: (input: { account?: string | undefined }) => input.account ?? 'none' }),
  ],
  run: ({ text }) => void ran.push(text),
})
const quiet = task('quiet', { input: z.object({ text: z.string() }), run: () => undefined })

/** Text that could be mistaken for syntax: of JSON, arrays, bindings of Knex, names of postgres.js. */
const awkward = `"'\\{}?,:name $1 ?? \\? NULL ${'é漢\u{1f600}'} \n\t—`
/** The same for tags and keys of limits, which take no control characters. */
const spaceless = awkward.replaceAll(/\s/g, '')

/** On a database and in a schema of its own. */
let elsewhere: Sluice
beforeAll(async () => void (elsewhere = await Sluice.open({ store: (await freshDatabase()).url, schema: 'not_there' })))
afterAll(() => elsewhere.close())

class Regret extends Error {}

/** A store, and a library connected to it. */
interface At {
  sluice: Sluice
  library: Connected
}

const guarantees: Record<string, (at: At) => Promise<void>> = {
  async 'a committed job exists as it was sent, beside the row of its transaction'({ sluice, library }) {
    const id = newId()
    const how = { priority: -7, tags: ['a', spaceless], queue: 'slow' }
    await library.transaction(async ({ tx, run }) => {
      await run('insert into mine values (1)')
      const input = { text: awkward, account: spaceless }
      expect(await sluice.send(note, input, { tx, id, delay: '1h', ...how })).toBe(id)
      await run('insert into mine values (2)')
    })
    const job = { state: 'scheduled', ...how, input: { text: awkward }, limits: [`tx-notes:${spaceless}`] }
    expect(await sluice.jobs.get(id)).toMatchObject(job)
    expect(await count(sluice.db, 'mine')).toBe(2)
  },

  async 'a rolled back job and its idempotency key do not exist'({ sluice, library }) {
    const send = ({ tx }: Open) => sluice.send(note, { text: 'x' }, { tx, idempotencyKey: 'once' })
    const regret = library.transaction(async (open) => {
      await open.run('insert into mine values (1)')
      await send(open)
      await sluice.sendMany(note, [{ text: 'y' }, { text: 'z' }], { tx: open.tx })
      throw new Regret()
    })
    await expect(regret).rejects.toThrow(Regret)
    expect(await count(sluice.db, 'sluice.job')).toBe(0)
    expect(await count(sluice.db, 'mine')).toBe(0)
    const id = await library.transaction(send)
    expect((await sluice.jobs.get(id))?.id).toBe(id)
  },

  async 'an idempotency key holds within the transaction, after it, and for sends outside of it'({ sluice, library }) {
    const options = { idempotencyKey: awkward }
    const id = await library.transaction(async ({ tx }) => {
      const first = await sluice.send(note, { text: 'a' }, { tx, ...options })
      expect(await sluice.send(note, { text: 'b' }, { tx, ...options })).toBe(first)
      expect(await sluice.send(note, { text: 'c' }, { tx, idempotencyKey: 'other' })).not.toBe(first)
      return first
    })
    expect(await library.transaction(({ tx }) => sluice.send(note, { text: 'd' }, { tx, ...options }))).toBe(id)
    expect(await sluice.send(note, { text: 'e' }, options)).toBe(id)
    expect(await count(sluice.db, 'sluice.job')).toBe(2)
  },

  async 'a replacing send is refused, because it would hold the other job until the commit'({ sluice, library }) {
    const options = { idempotencyKey: 'k', replace: true }
    const sent = library.transaction(({ tx }) => sluice.send(note, { text: 'a' }, { tx, ...options }))
    await expect(sent).rejects.toMatchObject({ code: 'SLUICE_BAD_OPTION' })
    expect(await count(sluice.db, 'sluice.job')).toBe(0)
  },

  async 'one transaction can send many jobs: single, with one id twice, and in bulk beyond a batch'({
    sluice,
    library,
  }) {
    const id = newId()
    const text = awkward.repeat(4_000)
    await library.transaction(async ({ tx }) => {
      for (const input of [{ text }, { text: 'again' }]) expect(await sluice.send(quiet, input, { tx, id })).toBe(id)
      await sluice.send(quiet, { text: 'at' }, { tx, at: new Date('2001-01-01') })
      const rows = Array.from({ length: 1_100 }, (_, i) => ({ text: `${i}`, account: `${i % 7}` }))
      expect(await sluice.sendMany(note, rows, { tx, tags: ['bulk'] })).toBe(1_100)
    })
    expect((await sluice.jobs.get(id))?.input).toEqual({ text })
    expect(await count(sluice.db, 'sluice.job')).toBe(1_102)
    const ordered = await sluice.db.query<{ text: string }>(
      `select input ->> 'text' as text from sluice.job where task = 'note' order by seq`,
    )
    expect(ordered.map((row) => Number(row.text))).toEqual(Array.from({ length: 1_100 }, (_, i) => i))
  },

  async 'a refused send leaves the transaction as it was'({ sluice, library }) {
    const id = await library.transaction(async ({ tx, run }) => {
      const refused = (sent: Promise<unknown>, code: string) => expect(sent).rejects.toMatchObject({ code })
      await refused(sluice.send(note, { text: 1 } as never, { tx }), 'SLUICE_INVALID_INPUT')
      await refused(sluice.send(note, { text: '\0' }, { tx }), 'SLUICE_BAD_PAYLOAD')
      await refused(sluice.sendMany(note, [{ text: 1 } as never], { tx }), 'SLUICE_INVALID_INPUT')
      await run('insert into mine values (1)')
      return sluice.send(note, { text: 'good' }, { tx })
    })
    expect((await sluice.jobs.get(id))?.input).toEqual({ text: 'good' })
    expect(await count(sluice.db, 'mine')).toBe(1)
  },

  async 'jobs after a savepoint are undone with it, and the others exist'({ sluice, library }) {
    await library.transaction(async (open) => {
      await sluice.send(note, { text: 'kept' }, { tx: open.tx })
      const undone = open.nested(async (inner) => {
        await inner.run('insert into mine values (1)')
        await sluice.send(note, { text: 'undone' }, { tx: inner.tx, idempotencyKey: 'k' })
        throw new Regret()
      })
      await expect(undone).rejects.toThrow(Regret)
      await open.nested(async (inner) => {
        await sluice.send(note, { text: 'kept too' }, { tx: inner.tx, idempotencyKey: 'k' })
      })
    })
    const rows = await sluice.db.query(`select input ->> 'text' as text from sluice.job order by seq`)
    expect(rows).toEqual([{ text: 'kept' }, { text: 'kept too' }])
    expect(await count(sluice.db, 'mine')).toBe(0)
  },

  async 'idle workers are notified at the commit, and not before'({ sluice, library }) {
    await sluice.db.query('insert into sluice.idle (worker, wake_at) values (1, 0)')
    const heard: string[] = []
    const stop = await sluice.db.listen('sluice.wake', (payload) => void heard.push(payload))
    await expect.poll(() => sluice.db.listening()).toBe(true)
    const regret = library.transaction(async ({ tx }) => {
      await sluice.send(quiet, { text: 'x' }, { tx, queue: 'undone' })
      throw new Regret()
    })
    await expect(regret).rejects.toThrow(Regret)
    await library.transaction(({ tx }) => sluice.send(quiet, { text: 'x' }, { tx, queue: 'kept' }))
    await expect.poll(() => heard).toEqual(['kept'])
    await stop()
    await sluice.db.query('delete from sluice.idle')
  },

  async 'a transaction elsewhere is refused with advice, and nothing is stored'({ sluice, library }) {
    for (const options of [{}, { idempotencyKey: 'k' }]) {
      const sent = library.transaction(({ tx }) => elsewhere.send(quiet, { text: 'x' }, { tx, ...options }))
      const message = expect.stringMatching(/lacks.*not_there.*the store's own database/)
      await expect(sent).rejects.toMatchObject({ code: 'SLUICE_TX_ELSEWHERE', message })
    }
    expect(await count(sluice.db, 'sluice.job')).toBe(0)
  },

  async 'a value that is in no transaction is refused: pools and roots, and ended transactions'({ sluice, library }) {
    const sent = (tx: unknown) => sluice.send(note, { text: 'x' }, { tx: tx as TxLike })
    const refused = {
      code: 'SLUICE_BAD_TX',
      message: expect.stringMatching(/not in an open transaction.*leave `tx` out/),
    }
    for (const root of Object.values(library.roots)) await expect(sent(root)).rejects.toMatchObject(refused)
    const { ended } = await library.transaction(async ({ tx }) => ({ ended: tx }))
    if (library.hidesEnd) await sluice.jobs.cancel(await sent(ended))
    else await expect(sent(ended)).rejects.toThrow(/not in an open transaction|already (committed|closed)|has ended/)
    expect(await count(sluice.db, 'sluice.job')).toBe(0)
  },
}

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
      const { rows } = await pglite.query('select id, tags, takes, priority from sluice.job')
      expect(rows).toEqual([{ id: ids[0], tags: [spaceless], takes: ['tx-notes:a'], priority: 3 }])
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
  await fc.assert(
    fc.asyncProperty(
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
    ),
    { numRuns: 50 },
  )
  await Promise.all(all.map((library) => library.close()))
  await sluice.close()
})
