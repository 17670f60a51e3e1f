import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { inWords, readUses } from '../../src/cli/live.ts'
import { sqlOn } from '../../src/db/store.ts'
import { limit } from '../../src/limits/limit.ts'
import { Sluice } from '../../src/sluice.ts'
import { task } from '../../src/tasks/task.ts'
import { addBucket, grantOf, refund } from '../limits/engine.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'

it('what dev shows has each rule of a limit: rates and windows, quotas with their end, and places that are taken', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  let open: (() => void) | undefined
  const gate = new Promise<void>((resolve) => (open = resolve))
  onTestFinished(async () => {
    open?.()
    await sluice.close()
  })
  const crm = limit('crm', { rate: '500/min', window: '60/h', concurrency: 2, by: 'accountId' })
  const all = limit('all', { quota: '10/month' })
  const idle = limit('idle', { rate: '5/s', concurrency: 3 })
  const sync = task('sync', {
    input: z.object({ accountId: z.string() }),
    limits: [crm, all],
    run: () => gate,
  })
  await sluice.define([sync, task('other', { input: z.object({}), limits: [idle], run() {} })])
  const uses = async () => (await readUses(sqlOn(sluice.db))).map(inWords)
  expect(await uses()).toEqual([])
  await sluice.sendMany(sync, [{ accountId: 'a1' }, { accountId: 'a1' }, { accountId: 'a1' }, { accountId: 'a2' }])
  const worker = await sluice.work([sync])
  await until(() => worker.running === 3, 'three attempts')
  expect(await uses()).toEqual([
    'crm for a1: 2 of 2 running',
    'crm for a2: 1 of 2 running',
    expect.stringMatching(/^all: 3 of 10\/month until 20\d\d-\d\d-01T00:00:00Z$/),
    'crm for a1: 2 of 60/h',
    'crm for a2: 1 of 60/h',
    'crm for a1: 2 of 500/min',
    'crm for a2: 1 of 500/min',
  ])
  open?.()
  await until(async () => (await sluice.jobs.status()).done === 4, 'all jobs')
  expect((await uses()).filter((text) => text.includes('running'))).toEqual([])
})

it('what is given back of units from before a window takes nothing from what dev shows of it', async () => {
  const sluice = await Sluice.open({ store: (await freshDatabase()).url })
  onTestFinished(() => sluice.close())
  const tokens = limit('tokens', { window: '9000/min' })
  await sluice.define([task('ask', { input: z.object({}), limits: [tokens], run() {} })])
  await addBucket(sluice.db, tokens.name)
  const before = await grantOf(sluice.db, tokens.name, 1_000)
  await sluice.db.query('update sluice.ledger set at = at - 120000000')
  await grantOf(sluice.db, tokens.name, 10)
  await refund(sluice.db, tokens.name, before, 950)
  expect((await readUses(sqlOn(sluice.db))).map(inWords)).toEqual(['tokens: 10 of 9000/min'])
})
