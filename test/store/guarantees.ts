/** What each library's transactions guarantee, as tests of a store and a library that is connected to it. */
import { afterAll, beforeAll, expect } from 'vitest'
import { z } from 'zod'
import { newId } from '../../src/core/hash.ts'
import { limit, Sluice, task, type TxLike } from '../../src/index.ts'
import { count, enter } from '../claim/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import type { Connected, Open } from './library.ts'
import { forgetIdle, registerIdle } from './engine.ts'

/** What has run. */
export const ran: string[] = []
/** A task with a limit. */
export const note = task('note', {
  input: z.object({ text: z.string(), account: z.string().optional() }),
  limits: [
    limit('tx-notes', { rate: '1000000/s', by: (input: { account?: string | undefined }) => input.account ?? 'none' }),
  ],
  run: ({ text }) => void ran.push(text),
})
/** A task without limits. */
export const quiet = task('quiet', { input: z.object({ text: z.string() }), run: () => undefined })

/** Text that could be mistaken for syntax: of JSON, arrays, bindings of Knex, names of postgres.js. */
const awkward = `"'\\{}?,:name $1 ?? \\? NULL ${'é漢\u{1f600}'} \n\t—`
/** The same for tags and keys of limits, which take no control characters. */
export const spaceless = awkward.replaceAll(/\s/g, '')

/** On a database and in a schema of its own. */
export let elsewhere: Sluice

/** Opens it for the tests of a file. */
export function openElsewhere(): void {
  beforeAll(
    async () => void (elsewhere = await Sluice.open({ store: (await freshDatabase()).url, schema: 'not_there' })),
  )
  afterAll(() => elsewhere.close())
}

/** What a test throws to have a transaction rolled back. */
export class Regret extends Error {}

/** A store, and a library connected to it. */
export interface At {
  sluice: Sluice
  library: Connected
}

/** What each library guarantees, by what it is. */
export const guarantees: Record<string, (at: At) => Promise<void>> = {
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
      expect(await sluice.sendMany(note, rows, { tx, tags: ['bulk'] })).toHaveLength(1_100)
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
    await registerIdle(sluice.db, await enter(sluice.db))
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
    await forgetIdle(sluice.db)
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
