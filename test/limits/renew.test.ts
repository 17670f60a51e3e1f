/** A changed definition meets a ledger that is too long for a claim to read in its time. */
import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { hash64 } from '../../src/core/hash.ts'
import { limit, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { limiterNow, roomOf } from './engine.ts'

const why = { reason: 'test' }
const input = z.object({ key: z.string() })
const bytes = limit('bytes', { window: ['5000000/s', '5000000/min', '500000/h'], by: 'key' })
const work = task('work', { input, limits: [bytes], run: () => undefined })
const other = task('other', { input, run: () => undefined })

/** Gives a bucket this number of rows within the last hour, as of grants of one unit, each twentieth of them refunded. */
async function fill(db: pg.Client, key: string, rows: number): Promise<void> {
  await db.query(
    `insert into sluice.ledger (bucket, n, at, debt, parts, version, units, hold, claim)
     select l.bucket, l.n - $2 - 1 + i, l.at - 1800000000 + i::bigint * 8000, l.debt, l.parts, l.version, case when i % 20 = 0 then -1 else 1 end, 0,
            md5((case when i % 20 = 0 then i - 5 else i end)::text)::uuid
     from (select * from sluice.ledger where bucket = $1 order by at desc, n desc limit 1) l, generate_series(1, $2::integer) i`,
    [hash64(`bytes:${key}`), rows],
  )
}

it('a new definition of 200,000 rows in a window takes effect by statements of half a second, while other buckets go on', async () => {
  const { url } = await freshDatabase()
  const admin = new pg.Client(url)
  await admin.connect()
  onTestFinished(() => admin.end())
  const open = async () => {
    const sluice = await Sluice.open({ store: url })
    onTestFinished(() => sluice.close())
    const worker = await sluice.work([work, other])
    onTestFinished(() => worker.stop())
    return { sluice, worker }
  }
  const first = await open()
  await first.sluice.waitFor(await first.sluice.send(work, { key: 'a' }))
  await first.worker.stop()
  await fill(admin, 'a', 200_000)
  await admin.query('vacuum analyze sluice.ledger')
  await admin.query(`alter role current_user in database ${admin.database} set statement_timeout = '500ms'`)
  const { sluice } = await open()
  await sluice.limits.set('bytes', { window: ['5000000/s', '5000001/min', '180002/h'] }, why)
  const [own, beside] = [await sluice.send(work, { key: 'a' }), await sluice.send(other, { key: 'x' })]
  // 190,001 were granted and 10,000 refunded: with 180,002 an hour there is room for one more.
  for (const id of [beside, own]) expect(await sluice.waitFor(id, { timeout: '60s' })).toMatchObject({ state: 'done' })
  const { rows } = await admin.query(`select r.avail, r.stale from ${roomOf('$1', limiterNow())} r`, [
    [hash64('bytes:a')],
  ])
  expect(rows).toEqual([{ avail: '0', stale: false }])
  expect((await admin.query('select * from sluice.renewal')).rows).toEqual([])
}, 180_000)
