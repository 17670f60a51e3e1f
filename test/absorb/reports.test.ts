/** Reports to Celery producers of which a part cannot be sent. */
import { afterEach, expect, it } from 'vitest'
import { Reporter } from '../../src/absorb/reporter.ts'
import type { TaskResult } from '../../src/celery/result.ts'
import { StoreError } from '../../src/core/errors.ts'
import { storeOn } from '../../src/db/store.ts'
import { newId, Sluice, task } from '../../src/index.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

const ends: (() => unknown)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

it('sends the end of a call once, though that of another one could not be sent', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  ends.push(() => sluice.close())
  const { db } = sluice
  const note = task('note', { run: () => 'noted' })
  await sluice.work([note])
  const calls = ['good', 'bad']
  for (const id of calls) {
    const job = newId()
    await sluice.send(note, null, { id: job })
    await sluice.waitFor(job)
    await db.query(`insert into sluice.celery_call (id, job, call, created_at) values ($1, $2, '{}', sluice.now())`, [
      id,
      job,
    ])
  }
  const sent: string[] = []
  let failures = 2
  const results = {
    async finish(_: unknown, { id }: TaskResult) {
      if (id === 'bad' && failures-- > 0) throw new StoreError('SLUICE_REDIS_UNREACHABLE', 'it is away')
      sent.push(id)
    },
  }
  const events = { isOn: false, started() {}, reported() {} }
  const store = storeOn(db)
  const reporter = new Reporter({
    store,
    results: results as never,
    events: events as never,
    name: 'a',
    tracksStarted: false,
  })
  ends.push(() => reporter.close())
  reporter.start()
  await until(() => sent.includes('bad'), 'both are sent')
  await until(async () => {
    const [row] = await db.query<{ n: string }>(
      'select count(*) as n from sluice.celery_call where replied_at is null and reported = 0',
    )
    return row?.n === '0'
  }, 'both are recorded')
  expect(sent).toEqual(calls)
})
