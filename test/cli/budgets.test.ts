import { expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { limit, money, task } from '../../src/index.ts'
import { acquire } from '../takes/engine.ts'
import { Sluice } from '../../src/sluice.ts'
import { freshDatabase } from '../servers/database.ts'
import { until } from '../until.ts'
import { unhurried } from '../worker/patience.ts'
import { createProject, objects } from './program.ts'

// As in the project's file, and run here with a clock on which no grant grows too old: one that is given back shows as refunded.
const spend = limit('spend', { quota: '50 USD/month', by: 'tenant', cost: () => money(0.002) })
const ask = task('ask', { input: z.object({ tenant: z.string() }), limits: [spend], run: () => 'asked' })
const tasks = `
import { limit, money, task } from 'sluice'
import { z } from 'zod'
const spend = limit('spend', { quota: '50 USD/month', by: 'tenant', cost: () => money(0.002) })
export const ask = task('ask', { input: z.object({ tenant: z.string() }), limits: [spend], run: () => 'asked' })
`

it('people see what a budget in money allows, and what each key has used of it', async () => {
  const { url } = await freshDatabase()
  const project = createProject({ DATABASE_URL: url })
  onTestFinished(() => project.close())
  project.write('tasks.ts', tasks)
  const sluice = await Sluice.open({ store: url, clock: unhurried() })
  await project.run(['send', 'ask', '{"tenant":"acme"}', '--tasks', 'tasks.ts'])
  await project.run(['send', 'ask', '{"tenant":"zeta"}', '--tasks', 'tasks.ts'])
  const usage = (...args: string[]) => project.runWarm(['limits', 'usage', ...args])
  expect(await usage()).toMatchObject({ code: 0, err: expect.stringContaining('nothing was used') })
  await sluice.dispatchOnce([ask])
  const [done] = await sluice.jobs.list({ state: 'done', limit: 'spend', key: 'acme' })
  const record = await project.runWarm(['jobs', 'show', String(done?.id)])
  expect(record.out).toMatch(/^ATTEMPT .+ UNITS .+\n1 .+ spend:acme 0\.002 USD/m)
  expect((await acquire(sluice.db, 'spend:acme', { cost: 41_498_000 })).granted).toBe(true)

  const day = new Date().toISOString().slice(0, 10)
  const all = await usage()
  expect(all.out).toMatch(/^DAY +LIMIT +USED +REFUNDED$/m)
  expect(all.out).toMatch(new RegExp(`^${day} +spend +41.502 USD +0 USD$`, 'm'))
  const keys = await usage('spend', '--by', 'month', '--max', '1')
  expect(keys.out).toMatch(new RegExp(`^${day.slice(0, 7)} +acme +41.50 USD +0 USD$`, 'm'))
  expect(keys.err).toContain('there are more lines')
  const one = await usage('spend', '--key', 'zeta', '--since', '2d', '--json')
  expect(objects(one.out)).toEqual([
    { limit: 'spend', key: 'zeta', period: day, units: 2_000, refunded: 0, currency: 'USD' },
  ])
  expect((await project.runWarm(['limits', 'show', 'spend'])).out).toMatch(
    /^quota 50 USD\/month +50 USD +0\.000019 USD\/s +100 % +100 USD/m,
  )
  await sluice.send(ask, { tenant: 'acme' })
  // What was granted within the last minute: on a slow machine nothing, hence again.
  await until(async () => {
    await acquire(sluice.db, 'spend:zeta', { cost: 10_000 })
    return /^spend +1 +1 .+ \d+\.\d+ USD +has room/m.test((await project.runWarm(['status'])).out)
  })
  await sluice.close()
  const set = await project.run(['limits', 'set', 'spend', '--quota', '80 USD/month', '--reason', 'a larger plan'])
  expect(set).toMatchObject({ code: 0, out: expect.stringContaining('quota 80 USD/month') })
  for (const [args, code, says] of [
    [['usage', 'spent'], 1, 'SLUICE_NO_SUCH_LIMIT'],
    [['usage', '--key', 'acme'], 2, 'a key belongs to a limit'],
    [['usage', '--by', 'year'], 2, 'Allowed choices are day, month'],
    [['set', 'spend', '--quota', '80/month', '--reason', 'x'], 2, 'its costs are in USD'],
  ] as const)
    expect(await project.runWarm(['limits', ...args])).toMatchObject({ code, err: expect.stringContaining(says) })
}, 300_000)
