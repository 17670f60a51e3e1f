import { expect, it, onTestFinished } from 'vitest'
import { sqlOn } from '../../src/db/store.ts'
import { restores, steps } from '../../src/cli/epoch.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { limiterNow } from '../limits/engine.ts'

it('doctor and status report a loss of data for as long as it matters, and a step of the clock', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  const { db } = sluice
  const at = { sql: sqlOn(db), schema: 'sluice', isEmbedded: false }
  await defineLimit(sqlOn(db), limit('minute', { window: '9/min' }))
  await defineLimit(sqlOn(db), limit('day', { window: '9/day' }))
  await defineLimit(sqlOn(db), limit('places', { concurrency: 3 }))
  expect(await restores(at)).toEqual({ status: 'ok', text: 'the store was not restored and did not fail over' })
  expect(await steps(at)).toEqual({ status: 'ok', text: "the store's clock did not step within the last day" })

  await db.query(
    `update sluice.epoch set stepped_us = -3600000000, stepped_at = sluice.now(), n = 2, closed_us = ${limiterNow()}`,
  )
  expect(await steps(at)).toMatchObject({ status: 'warn', text: expect.stringMatching(/was set back by (1 h|60 min)/) })
  const closed = await restores(at)
  expect(closed).toMatchObject({ status: 'warn', text: expect.stringContaining('epoch 2') })
  expect(closed?.text).toMatch(/so that none is exceeded: day, minute, places; day: longer than an hour/)

  // Two hours later by the limits' clock only the long loss is still reported, and after two days none.
  await db.query('update sluice.epoch set closed_us = closed_us - 7200000000')
  expect((await restores(at))?.text).toMatch(/\(epoch 2\); acknowledged data may be lost; day: longer than an hour/)
  await db.query('update sluice.epoch set closed_us = closed_us - 172800000000, identity = identity')
  expect(await restores(at)).toMatchObject({ status: 'ok' })
  await db.query(`update sluice.epoch set stepped_at = sluice.now() - interval '2 days', identity = null`)
  expect(await steps(at)).toMatchObject({ status: 'ok' })
  expect(await restores(at)).toMatchObject({
    status: 'warn',
    text: expect.stringContaining('does not show its identity'),
  })
})
