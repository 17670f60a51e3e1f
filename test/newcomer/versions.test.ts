/** Two versions of a team's code run at once, and disagree about a limit. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { z } from 'zod'
import { type Rate, Sluice, limit, task } from '../../src/index.ts'
import { defineLimit } from '../../src/claim/definitions/define.ts'
import type { Log } from '../../src/core/log.ts'
import { sqlOn } from '../../src/db/store.ts'
import { freshDatabase } from '../servers/database.ts'
import { copies } from '../rows.ts'
import { until } from '../until.ts'

let store: string
beforeAll(async () => {
  store = (await freshDatabase()).url
})
const open: Sluice[] = []
afterAll(() => Promise.all(open.map((sluice) => sluice.close())))

/** A process with a version of the code: its own Sluice, task and log. */
async function process(window: Rate, at = store) {
  const warned: string[] = []
  const mute = () => {}
  const warn = (text: string) => void (text.includes('both hold') && warned.push(text))
  const log: Log = { debug: mute, info: mute, error: mute, warn }
  const sluice = await Sluice.open({ store: at, log })
  open.push(sluice)
  const called: number[] = []
  const call = task('call-crm', {
    input: z.object({}),
    limits: [limit('crm', { window })],
    run: () => void called.push(Date.now()),
  })
  return { sluice, call, called, warned }
}

it('a late process with old, looser code does not loosen the limit; both log it, and an operator settles it', async () => {
  const [current, old] = [await process('5/h'), await process('500/h')]
  await current.sluice.work([current.call])
  await current.sluice.sendMany(current.call, copies(50))
  await until(() => current.called.length === 5, 'the limit of the current code is used up')
  await old.sluice.work([old.call])
  await until(() => old.warned.length > 0, 'the old process logs it')
  await until(() => current.warned.length > 0, 'the current process logs it')
  expect(old.warned.join()).toMatch(/limit "crm" is window 500\/h .* window 5\/h .* both hold/)
  expect(current.warned.join()).toMatch(/limit "crm" is window 5\/h .* window 500\/h/)
  const [version] = await current.sluice.limits.history('crm')
  expect([version?.numbers.window, version?.beside[0]?.numbers.window]).toEqual(['500/h', '5/h'])
  expect(current.called.length + old.called.length).toBe(5)
  await current.sluice.limits.set('crm', { window: '20/h' }, { reason: 'the vendor raised it' })
  await until(() => current.called.length + old.called.length === 20, 'the operator’s number holds alone')
  expect((await current.sluice.limits.show('crm')).beside).toEqual([])
  expect((await current.sluice.verify()).isProved).toBe(true)
})

it('a process that sends only in transactions of the embedded engine logs it, too, and records its definition after a rollback', async () => {
  const { sluice, call, warned } = await process('5/h', 'memory:')
  await defineLimit(sqlOn(sluice.db), limit('crm', { window: '500/h' }))
  const sending = sluice.transaction(async (tx) => {
    await sluice.send(call, {}, { tx })
    throw new Error('rolled back')
  })
  await expect(sending).rejects.toThrow('rolled back')
  await until(() => warned.length > 0, 'the process logs it')
  expect((await sluice.limits.show('crm')).numbers).toMatchObject({ window: '5/h' })
})
