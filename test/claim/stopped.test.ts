import pg from 'pg'
import { expect, it } from 'vitest'
import { storeOn } from '../../src/db/store.ts'
import { systemClock } from '../../src/core/clock.ts'
import { newId } from '../../src/core/hash.ts'
import { Claims } from '../../src/claim/claim.ts'
import { limit } from '../../src/limits/limit.ts'
import { later, until } from '../until.ts'
import { queryable } from '../servers/database.ts'
import { claim, claimsInHand, engines, enter, openOn, quietTask } from './engine.ts'
import { createClasses } from './engine-parts.ts'

it('a claimer that is stopped before it reads a large reply blocks no other client', async () => {
  const sluice = await openOn(engines[0])
  const big = quietTask('big', [limit('wide', { rate: '1000000/s', burst: 1_000_000 })])
  // Half of them are short in their rows, because they compress well, and long on the wire.
  const text = (n: number) =>
    n % 2
      ? 'x'.repeat(30_000)
      : Array.from({ length: 10_000 }, () => Math.floor(systemClock.random() * 36).toString(36)).join('')
  await sluice.sendMany(
    big,
    Array.from({ length: 1_000 }, (_, n) => ({ n, text: text(n) })),
  )
  await createClasses(sluice.db)
  const stopped = new pg.Client(sluice.url)
  await stopped.connect()
  const worker = await enter(sluice.db)
  const stream = (stopped as unknown as { connection: { stream: { pause(): void; resume(): void } } }).connection.stream
  stream.pause()
  const id = newId()
  let reply: unknown
  const query = async (sql: string, params?: readonly unknown[]) =>
    (reply = await queryable(stopped).query(sql, params)) as never
  const pending = later(claim({ query }, worker, ['big'], 500, id, { idle: true }))
  await until(
    async () => (await claimsInHand(sluice.db)) === 1,
    'the claim is committed, though nobody reads its reply',
  )
  const other = await enter(sluice.db)
  // The first claimer does not read before this one has its reply, so this one cannot have waited for the first.
  expect((await claim(sluice.db, other, ['big'], 500)).jobs).toHaveLength(500)
  stream.resume()
  await pending
  expect(JSON.stringify(reply).length).toBeLessThan(65_536 + 500 * 400)
  await stopped.end()

  // Inputs that were left out are fetched in the same way as by workers.
  const claims = new Claims(storeOn(sluice.db))
  const jobs = await claims.adopt(id)
  expect(jobs).toHaveLength(500)
  expect(jobs.every(({ input }) => (input as { text: string }).text.length >= 10_000)).toBe(true)
  expect(jobs.every(({ grantedMs }) => grantedMs === -Infinity)).toBe(true)
  await sluice.close()
})
